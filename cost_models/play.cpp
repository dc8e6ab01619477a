#include "cost_models/play.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace trireme::cost {

using program::Direction;
using schedule::Schedule;
using schedule::Task;

namespace {

// In the schedules and orders that are kept, each with some twenty bytes.
constexpr int64_t kMostTasksKept = 2'000'000;

}  // namespace

class FlushPlayer::Player {
 public:
  Player(const Pipeline& pipeline, const TaskOrder& order, FlushPlayer& of)
      : order_(order),
        stop_(pipeline.stop()),
        overlaps_(pipeline.overlapTransfers && pipeline.hops.size() > 1),
        usesSlots_(pipeline.receivesIntoSlots && overlaps_),
        ends_(of.ends_),
        arrivals_(of.arrivals_),
        durations_(of.durations_),
        flights_(of.flights_) {
    putDurations(pipeline);
    flights_.assign(order.numWays(), Seconds(0));
    if (overlaps_)
      std::copy(pipeline.hops.begin(), pipeline.hops.end(),
                flights_.begin() + TaskOrder::kFirstHop);
    // Messages are made, and slots are left, a pass apart at least.
    inRows_ =
        usesSlots_ && *std::max_element(pipeline.hops.begin(), pipeline.hops.end()) > shortest_;
    ends_.resize(order.numEnds());
    ends_[order.start()] = Seconds(0);
    ends_[order.never()] = Seconds(-std::numeric_limits<double>::infinity());
    if (!inRows_) return;
    arrivals_.resize(order.numEnds());
    arrivals_[order.never()] = ends_[order.never()];
  }

  // The end of the last task.
  Seconds run() {
    const Seconds* const durations = durations_.data();
    Seconds* const ends = ends_.data();
    Seconds* end = ends;
    // Most are played so, and plans are searched by playing thousands.
    if (!overlaps_)
      for (const Step& step : order_.steps)
        *end++ = std::max(ends[step.before], ends[step.input]) + durations[step.pass];
    else if (!inRows_)
      for (const Step& step : order_.steps)
        *end++ = std::max(ends[step.before], sentAtOnce(step)) + durations[step.pass];
    else
      for (uint32_t i = 0; i < order_.start(); ++i) {
        const Step& step = order_.steps[i];
        arrivals_[i] = std::max(sentAtOnce(step), arrivals_[order_.sentAfter[i]] + flightOf(step));
        ends[i] = std::max(ends[step.before], arrivals_[i]) + durations[step.pass];
      }
    return ends_[lastStep()];
  }

  // After run(): the chain of tasks that held each other up, from the first to the last.
  std::vector<PathItem> path() const {
    std::vector<PathItem> items;
    backwards([&](uint32_t at, uint32_t from, bool waits) {
      items.push_back(
          itemOf(at, ends_[from],
                 (waits ? arrivalOf(at) - ends_[from] : Seconds(0)) + stopOf(order_.steps[at])));
    });
    std::reverse(items.begin(), items.end());
    return items;
  }

  // After run(): of that chain.
  std::vector<int32_t> passes() const {
    std::vector<int32_t> passes(order_.numPasses());
    backwards([&](uint32_t at, uint32_t, bool) { ++passes[order_.steps[at].pass]; });
    return passes;
  }

  // After run(): what each stage is busy with, in order.
  std::vector<std::vector<PathItem>> tasks() const {
    std::vector<std::vector<PathItem>> tasks(order_.numRanks);
    for (uint32_t i = 0; i < order_.start(); ++i) {
      const Step& step = order_.steps[i];
      tasks[order_.passOf(step.pass).rank].push_back(
          itemOf(i, ends_[i] - durations_[step.pass], stopOf(step)));
    }
    return tasks;
  }

 private:
  using Step = TaskOrder::Step;

  void putDurations(const Pipeline& pipeline) {
    const size_t chunks = order_.chunks;
    durations_.clear();
    durations_.reserve(order_.numPasses());
    for (const StageTimes& stage : pipeline.stages) {
      for (const auto* times : {&stage.forward, &stage.backward})
        for (const Seconds time : *times) durations_.push_back(time + stop_);
      if (usesSlots_) shortest_ = std::min(shortest_, stage.shortest());
      durations_.insert(durations_.end(), stage.weights.begin(), stage.weights.end());
      durations_.resize(durations_.size() + chunks - stage.weights.size());
    }
  }

  // The chain from its end: a task, what it began behind, and whether that is its input.
  template <typename Visit>
  void backwards(const Visit& visit) const {
    for (uint32_t next = lastStep(); next != order_.start();) {
      const Step& step = order_.steps[next];
      const bool waits = arrivalOf(next) > ends_[step.before];
      const uint32_t from = waits ? waitedFor(order_.steps[firstOfRow(next)]) : step.before;
      visit(next, from, waits);
      next = from;
    }
  }

  // The last task of the first rank that is among the last to end.
  uint32_t lastStep() const {
    const std::vector<uint32_t>& last = order_.looks.back().last;
    return *std::max_element(last.begin(), last.end(),
                             [&](uint32_t a, uint32_t b) { return ends_[a] < ends_[b]; });
  }
  Seconds flightOf(const Step& step) const { return flights_[step.way]; }
  Seconds arrivalOf(uint32_t i) const {
    return inRows_ ? arrivals_[i] : sentAtOnce(order_.steps[i]);
  }
  // When its input arrives if the link is free.
  Seconds sentAtOnce(const Step& step) const { return ends_[waitedFor(step)] + flightOf(step); }
  // Of messages that wait for each other on a link, up to this one.
  uint32_t firstOfRow(uint32_t i) const {
    if (!inRows_) return i;
    while (arrivals_[i] > sentAtOnce(order_.steps[i])) i = order_.sentAfter[i];
    return i;
  }
  // Its input, or what was in its slot.
  uint32_t waitedFor(const Step& step) const {
    return usesSlots_ && ends_[step.slot] > ends_[step.input] ? step.slot : step.input;
  }
  // Of its transfers, without overlap.
  Seconds stopOf(const Step& step) const {
    return order_.passOf(step.pass).direction == Direction::kWeights ? Seconds(0) : stop_;
  }

  PathItem itemOf(uint32_t index, Seconds begin, Seconds transfer) const {
    const Step& step = order_.steps[index];
    const TaskOrder::Pass pass = order_.passOf(step.pass);
    PathItem item;
    item.stage = static_cast<int32_t>(pass.rank);
    item.direction = pass.direction;
    item.chunk = static_cast<int32_t>(pass.chunk);
    item.microbatch = static_cast<int32_t>(step.microbatch);
    item.begin = begin;
    item.end = ends_[index];
    item.transfer = transfer;
    item.compute = item.end - item.begin - item.transfer;
    return item;
  }

  const TaskOrder& order_;
  const Seconds stop_;
  const bool overlaps_, usesSlots_;
  bool inRows_ = false;                                        // messages wait for each other
  Seconds shortest_{std::numeric_limits<double>::infinity()};  // pass
  std::vector<Seconds>&ends_, &arrivals_, &durations_, &flights_;
};

namespace {

bool isEven(const std::vector<Seconds>& times, Seconds time) {
  return std::all_of(times.begin(), times.end(), [&](Seconds t) { return t == time; });
}

bool isEven(const Pipeline& pipeline) {
  const StageTimes& first = pipeline.stages.front();
  return std::all_of(pipeline.stages.begin(), pipeline.stages.end(), [&](const StageTimes& stage) {
    return isEven(stage.forward, first.forward.front()) &&
           isEven(stage.backward, first.backward.front());
  });
}

// Where pipelineTime is exact.
bool isClosed(const Pipeline& pipeline) {
  if (plan::splitsBackward(pipeline.schedule)) return false;
  if (pipeline.schedule == plan::ScheduleKind::kGpipe) return true;
  const Hops hops(pipeline);
  const bool usesSlots = pipeline.receivesIntoSlots && hops.around() > Seconds(0);
  return isEven(pipeline) && hops.areEven() && !usesSlots;
}

// The same tasks again, of as many microbatches more.
Schedule twice(const Schedule& once) {
  Schedule both = once;
  both.numMicrobatches *= 2;
  for (size_t rank = 0; rank < both.order.size(); ++rank)
    for (Task task : once.order[rank]) {
      task.microbatch += once.numMicrobatches;
      both.order[rank].push_back(task);
    }
  return both;
}

}  // namespace

FlushPlayer::Shape FlushPlayer::shapeOf(const Pipeline& pipeline) {
  return {
      pipeline.schedule,        pipeline.stages.size(),     pipeline.stages.front().forward.size(),
      pipeline.numMicrobatches, pipeline.receivesIntoSlots, false};
}

const Schedule& FlushPlayer::scheduleOf(const Shape& shape) {
  const auto [place, isNew] = schedules_.try_emplace(shape);
  if (isNew) {
    place->second = schedule::scheduleFor(shape.schedule, static_cast<int32_t>(shape.stages),
                                          static_cast<int32_t>(shape.chunks),
                                          static_cast<int32_t>(shape.microbatches));
    if (shape.isTwice) place->second = twice(place->second);
    for (const std::vector<Task>& ofRank : place->second.order)
      numTasks_ += static_cast<int64_t>(ofRank.size());
  }
  return place->second;
}

std::shared_ptr<const TaskOrder> FlushPlayer::orderOf(const Shape& shape, size_t first) {
  std::shared_ptr<const TaskOrder>& order = orders_[{shape, first}];
  if (order == nullptr) {
    order =
        std::make_shared<const TaskOrder>(orderTasks(scheduleOf(shape), first, shape.intoSlots));
    numTasks_ += static_cast<int64_t>(order->steps.size());
  }
  return order;
}

std::shared_ptr<const TaskOrder> FlushPlayer::orderOf(const Pipeline& pipeline, size_t first) {
  return orderOf(shapeOf(pipeline), first);
}

void FlushPlayer::trim() {
  if (numTasks_ <= kMostTasksKept) return;
  schedules_.clear();
  orders_.clear();
  numTasks_ = 0;
}

Simulation FlushPlayer::play(const Pipeline& pipeline, bool keepsTasks) {
  const auto order = orderOf(pipeline);
  Player player(pipeline, *order, *this);
  Simulation result;
  result.makespan = player.run();
  result.path = player.path();
  if (keepsTasks) result.tasks = player.tasks();
  return result;
}

Chain FlushPlayer::chainOf(const Shape& shape, const Pipeline& pipeline) {
  const auto order = orderOf(shape, 0);
  Player player(pipeline, *order, *this);
  const Seconds length = player.run();
  return {length, order->chunks, player.passes()};
}

Chain FlushPlayer::chainOf(const Pipeline& pipeline) {
  return chainOf(shapeOf(pipeline), pipeline);
}

Seconds FlushPlayer::timeOf(const Pipeline& pipeline, Chain* chain) {
  const auto played = [&](const Shape& shape, Chain* of) {
    if (of != nullptr) return (*of = chainOf(shape, pipeline)).length;
    const auto order = orderOf(shape, 0);
    return Player(pipeline, *order, *this).run();
  };
  const Seconds closedForm = pipelineTime(pipeline);
  if (chain == nullptr && isClosed(pipeline)) return closedForm;
  Shape shape = shapeOf(pipeline);
  const Seconds alone = played(shape, chain);
  if (isClosed(pipeline)) return closedForm;
  if (!pipeline.postValidation) return std::max(closedForm, alone);
  shape.isTwice = true;
  Chain both;
  const Seconds added = played(shape, chain == nullptr ? nullptr : &both) - alone;
  if (chain != nullptr) {
    chain->length = added;
    for (size_t i = 0; i < both.passes.size(); ++i)
      chain->passes[i] = both.passes[i] - chain->passes[i];
  }
  return std::max(closedForm, added);
}

Simulation play(const Pipeline& pipeline, bool keepsTasks) {
  return FlushPlayer().play(pipeline, keepsTasks);
}

Seconds flushTime(const Pipeline& pipeline) { return FlushPlayer().timeOf(pipeline); }

}  // namespace trireme::cost
