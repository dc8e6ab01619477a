#include "cost_models/play.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::cost {

using program::Direction;
using schedule::Schedule;
using schedule::Task;

struct FlushPlayer::Order {
  // A task: where its result, its input's and that of what leaves its slot free are kept, and its
  // time.
  struct Step {
    uint32_t result, input, slot, duration, rank;
    bool isSent;  // the input, from another rank
  };

  Schedule schedule;
  std::vector<std::vector<int32_t>> leftBy;  // schedule::slotsLeftBy()
  std::vector<Step> steps;                   // inputs first; known after the first play
  std::vector<uint32_t> places;  // of tasks in their ranks' order, by result; after the first path
  // Of the last play. Ends of results: forward, backward, weights; each by virtual stage,
  // microbatch; and last, of what there is from the start.
  std::vector<Seconds> ends, durations, free;
};

namespace {

constexpr Seconds kNotPlayed(-1);

// In the orders that are kept, each with some fifty bytes.
constexpr int64_t kMostTasksKept = 400'000;

}  // namespace

class FlushPlayer::Player {
 public:
  Player(const Pipeline& pipeline, Order& order)
      : pipeline_(pipeline),
        order_(order),
        schedule_(order.schedule),
        leftBy_(order.leftBy),
        numStages_(schedule_.order.size()),
        numPasses_(numStages_ * static_cast<size_t>(schedule_.virtualStages) *
                   static_cast<size_t>(schedule_.numMicrobatches)),
        hop_(numStages_ > 1 ? pipeline.hop : Seconds(0)),
        flight_(pipeline.overlapTransfers ? hop_ : Seconds(0)),
        stop_(pipeline.overlapTransfers ? Seconds(0) : hop_),
        usesSlots_(!leftBy_.empty() && flight_.count() > 0),
        ends_(order.ends) {
    putDurations();
    order_.free.assign(numStages_, Seconds(0));
  }

  // The end of the last task.
  Seconds run() {
    order_.steps.empty() ? findSteps() : playSteps();
    return *std::max_element(order_.free.begin(), order_.free.end());
  }

  // After run(): the chain of tasks that held each other up, from the first to the last.
  std::vector<PathItem> path() {
    findPlaces();
    size_t rank = 0;
    for (size_t r = 1; r < numStages_; ++r)
      if (endOf(r, schedule_.order[r].back()) > endOf(rank, schedule_.order[rank].back())) rank = r;
    std::vector<PathItem> items;
    for (size_t place = schedule_.order[rank].size();;) {
      if (place-- == 0) break;
      const Task& task = schedule_.order[rank][place];
      const Input input = inputOf(rank, place);
      const Seconds free = place == 0 ? Seconds(0) : endOf(rank, schedule_.order[rank][place - 1]);
      const bool waits = input.arrival() > free;
      items.push_back(itemOf(rank, task, waits ? input.end : free,
                             (waits ? input.flight : Seconds(0)) + stopOf(task)));
      if (!waits) continue;
      rank = input.rank;
      place = order_.places[input.result] + 1;
    }
    std::reverse(items.begin(), items.end());
    return items;
  }

  // After run(): what each stage is busy with, in order.
  std::vector<std::vector<PathItem>> tasks() {
    std::vector<std::vector<PathItem>> tasks(numStages_);
    for (size_t rank = 0; rank < numStages_; ++rank)
      for (const Task& task : schedule_.order[rank])
        tasks[rank].push_back(
            itemOf(rank, task, endOf(rank, task) - duration(rank, task), stopOf(task)));
    return tasks;
  }

 private:
  // What hands on a task's input, and when. Without one it is there from the start.
  struct Input {
    Seconds end, flight;
    size_t rank = 0, result = 0;
    Seconds arrival() const { return end + flight; }
  };

  static size_t side(Direction direction) {
    return direction == Direction::kForward ? 0 : direction == Direction::kBackward ? 1 : 2;
  }
  // Of a pass among all: by virtual stage, microbatch.
  size_t indexOf(size_t rank, const Task& task) const {
    return (static_cast<size_t>(task.chunk) * numStages_ + rank) *
               static_cast<size_t>(schedule_.numMicrobatches) +
           static_cast<size_t>(task.microbatch);
  }
  size_t resultOf(size_t rank, const Task& task) const {
    return side(task.direction) * numPasses_ + indexOf(rank, task);
  }
  Seconds endOf(size_t rank, const Task& task) const { return ends_[resultOf(rank, task)]; }

  size_t durationAt(size_t rank, const Task& task) const {
    return (rank * 3 + side(task.direction)) * static_cast<size_t>(schedule_.virtualStages) +
           static_cast<size_t>(task.chunk);
  }
  void putDurations() {
    std::vector<Seconds>& durations = order_.durations;
    durations.clear();
    const auto chunks = static_cast<size_t>(schedule_.virtualStages);
    durations.reserve(numStages_ * 3 * chunks);
    for (const StageTimes& stage : pipeline_.stages) {
      for (const auto* times : {&stage.forward, &stage.backward})
        for (const Seconds time : *times) durations.push_back(time + stop_);
      durations.insert(durations.end(), stage.weights.begin(), stage.weights.end());
      durations.resize(durations.size() + chunks - stage.weights.size());
    }
  }
  Seconds duration(size_t rank, const Task& task) const {
    const StageTimes& times = pipeline_.stages[rank];
    const auto chunk = static_cast<size_t>(task.chunk);
    if (task.direction == Direction::kWeights) return times.weights[chunk];
    return (task.direction == Direction::kForward ? times.forward : times.backward)[chunk] + stop_;
  }

  // Goes round the ranks, as far on each as its inputs are there.
  void findSteps() {
    ends_.assign((schedule_.splitsBackward ? 3 : 2) * numPasses_ + 1, kNotPlayed);
    ends_.back() = Seconds(0);  // what there is from the start
    std::vector<size_t> next(numStages_, 0);
    order_.steps.reserve(ends_.size() - 1);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < numStages_; ++rank) {
        const std::vector<Task>& order = schedule_.order[rank];
        for (; next[rank] < order.size(); ++next[rank], moved = true) {
          const Input input = producerOf(rank, order[next[rank]]);
          if (input.end == kNotPlayed) break;
          order_.steps.push_back(stepOf(rank, next[rank], input));
          play(order_.steps.back());
        }
      }
    }
  }

  void playSteps() {
    if (flight_.count() > 0) {
      for (const Order::Step& step : order_.steps) play(step);
      return;
    }
    // Most are played so, and plans are searched by playing thousands.
    Seconds* const ends = ends_.data();
    Seconds* const free = order_.free.data();
    const Seconds* const durations = order_.durations.data();
    for (const Order::Step& step : order_.steps) {
      const Seconds end = std::max(free[step.rank], ends[step.input]) + durations[step.duration];
      ends[step.result] = free[step.rank] = end;
    }
  }

  // When its rank is free, its input there, and what was in its slot has left.
  void play(const Order::Step& step) {
    Seconds arrival = ends_[step.input];
    if (step.isSent) {
      if (usesSlots_) arrival = std::max(arrival, ends_[step.slot]);
      arrival += flight_;
    }
    Seconds& ofRank = order_.free[step.rank];
    ofRank = std::max(ofRank, arrival) + order_.durations[step.duration];
    ends_[step.result] = ofRank;
  }

  Order::Step stepOf(size_t rank, size_t place, const Input& input) const {
    const Task& task = schedule_.order[rank][place];
    const int32_t before = leftBy_.empty() ? -1 : leftBy_[rank][place];
    const size_t slot = before < 0
                            ? ends_.size() - 1
                            : resultOf(rank, schedule_.order[rank][static_cast<size_t>(before)]);
    const auto small = [](size_t n) { return static_cast<uint32_t>(n); };
    return {small(resultOf(rank, task)),   small(input.result), small(slot),
            small(durationAt(rank, task)), small(rank),         input.rank != rank};
  }

  void findPlaces() {
    if (!order_.places.empty()) return;
    order_.places.resize(ends_.size());
    for (size_t rank = 0; rank < numStages_; ++rank)
      for (size_t place = 0; place < schedule_.order[rank].size(); ++place)
        order_.places[resultOf(rank, schedule_.order[rank][place])] = static_cast<uint32_t>(place);
  }

  // Of its transfers, without overlap.
  Seconds stopOf(const Task& task) const {
    return task.direction == Direction::kWeights ? Seconds(0) : stop_;
  }

  Input inputOf(size_t rank, size_t place) const {
    const Input input = producerOf(rank, schedule_.order[rank][place]);
    return usesSlots_ ? intoSlot(rank, place, input) : input;
  }

  // The task that leaves its slot free for the input, if that is later than what hands it on.
  Input intoSlot(size_t rank, size_t place, const Input& input) const {
    const int32_t before = leftBy_[rank][place];
    if (before < 0 || input.flight.count() == 0) return input;
    const size_t last = resultOf(rank, schedule_.order[rank][static_cast<size_t>(before)]);
    if (ends_[last] <= input.end) return input;
    return {ends_[last], flight_, rank, last};
  }

  // A backward at the turn follows its own forward.
  Input producerOf(size_t rank, const Task& task) const {
    const auto microbatches = static_cast<size_t>(schedule_.numMicrobatches);
    const Input none{Seconds(0), Seconds(0), rank, ends_.size() - 1};
    if (task.direction == Direction::kWeights) return none;  // after the backward on its rank
    const size_t index = indexOf(rank, task);
    const bool isForward = task.direction == Direction::kForward;
    if (isForward && index < microbatches) return none;
    const bool turns = !isForward && index + microbatches >= numPasses_;
    const size_t from = turns ? index : isForward ? index - microbatches : index + microbatches;
    Input input;
    input.rank = from / microbatches % numStages_;
    input.result = side(turns ? Direction::kForward : task.direction) * numPasses_ + from;
    input.end = ends_[input.result];
    if (input.rank != rank) input.flight = flight_;
    return input;
  }

  PathItem itemOf(size_t rank, const Task& task, Seconds begin, Seconds transfer) {
    PathItem item;
    item.stage = static_cast<int32_t>(rank);
    item.direction = task.direction;
    item.chunk = task.chunk;
    item.microbatch = task.microbatch;
    item.begin = begin;
    item.end = endOf(rank, task);
    item.transfer = transfer;
    item.compute = item.end - item.begin - item.transfer;
    return item;
  }

  const Pipeline& pipeline_;
  Order& order_;
  const Schedule& schedule_;
  const std::vector<std::vector<int32_t>>& leftBy_;
  const size_t numStages_, numPasses_;
  const Seconds hop_, flight_, stop_;  // in flight beside the rank's work, or stopping it
  const bool usesSlots_;
  std::vector<Seconds>& ends_;
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
  return pipeline.schedule == plan::ScheduleKind::kGpipe || isEven(pipeline);
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

FlushPlayer::FlushPlayer() = default;
FlushPlayer::~FlushPlayer() = default;
FlushPlayer::FlushPlayer(FlushPlayer&&) noexcept = default;

FlushPlayer::Shape FlushPlayer::shapeOf(const Pipeline& pipeline, bool isTwice) {
  return {
      pipeline.schedule,        pipeline.stages.size(),     pipeline.stages.front().forward.size(),
      pipeline.numMicrobatches, pipeline.receivesIntoSlots, isTwice};
}

FlushPlayer::Order& FlushPlayer::orderOf(const Pipeline& pipeline, bool isTwice) {
  const Shape shape = shapeOf(pipeline, isTwice);
  if (const auto known = orders_.find(shape); known != orders_.end()) return *known->second;
  auto order = std::make_unique<Order>();
  order->schedule = isTwice ? twice(orderOf(pipeline).schedule)
                            : schedule::scheduleFor(
                                  pipeline.schedule, static_cast<int32_t>(pipeline.stages.size()),
                                  static_cast<int32_t>(pipeline.stages.front().forward.size()),
                                  static_cast<int32_t>(pipeline.numMicrobatches));
  if (pipeline.receivesIntoSlots) order->leftBy = schedule::slotsLeftBy(order->schedule);
  for (const std::vector<Task>& ofRank : order->schedule.order)
    numTasks_ += static_cast<int64_t>(ofRank.size());
  return *orders_.emplace(shape, std::move(order)).first->second;
}

void FlushPlayer::trim() {
  if (numTasks_ <= kMostTasksKept) return;
  orders_.clear();
  numTasks_ = 0;
}

Simulation FlushPlayer::play(const Pipeline& pipeline, bool keepsTasks) {
  Player player(pipeline, orderOf(pipeline));
  Simulation result;
  result.makespan = player.run();
  result.path = player.path();
  if (keepsTasks) result.tasks = player.tasks();
  return result;
}

Seconds FlushPlayer::timeOf(const Pipeline& pipeline) {
  const Seconds closedForm = pipelineTime(pipeline);
  if (isClosed(pipeline)) return closedForm;
  const Seconds alone = Player(pipeline, orderOf(pipeline)).run();
  if (!pipeline.postValidation) return std::max(closedForm, alone);
  return std::max(closedForm, Player(pipeline, orderOf(pipeline, true)).run() - alone);
}

Simulation play(const Pipeline& pipeline, bool keepsTasks) {
  return FlushPlayer().play(pipeline, keepsTasks);
}

Seconds flushTime(const Pipeline& pipeline) { return FlushPlayer().timeOf(pipeline); }

}  // namespace trireme::cost
