#include "planner/answer/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "cost_models/cluster_costs.h"
#include "cost_models/described_estimate.h"
#include "cost_models/estimate.h"
#include "ir/expand/expand.h"
#include "ir/plan/sharding.h"
#include "ir/program/walk.h"
#include "ir/spec/stack_on_device.h"

namespace trireme::planner {
namespace {

using cost::PathItem;
using nlohmann::json;
using program::Direction;

Seconds communicationOf(const PathItem& item) {
  Seconds total = item.transfer;
  for (const Seconds time : item.reduce) total += time;
  for (const Seconds time : item.gather) total += time;
  return total;
}

void addTask(const PathItem& item, StageTimeline& sums) {
  sums.communication += communicationOf(item);
  if (item.direction == Direction::kForward)
    sums.forward += item.compute;
  else if (item.direction == Direction::kStep)
    sums.optimizer += item.compute;
  else
    sums.backward += item.compute;
}

// What the stage does not do between the two.
Seconds idleOf(const StageTimeline& sums, Seconds begin, Seconds end) {
  const Seconds busy = sums.forward + sums.backward + sums.communication + sums.optimizer;
  return std::max(end - begin - busy, Seconds(0));
}

// What a stage holds whether or not microbatches are in flight, and what each adds.
std::vector<MemoryPoint> memoryOver(const std::vector<PathItem>& tasks,
                                    const cost::MemoryUse& use) {
  Bytes held = use.total() - use.inFlight;
  std::vector<MemoryPoint> points = {{Seconds(0), held}};
  for (const PathItem& task : tasks) {
    if (task.direction == Direction::kStep) continue;
    const bool isForward = task.direction == Direction::kForward;
    const auto chunk = static_cast<size_t>(task.chunk);
    const Bytes kept = use.perMicrobatch[chunk];
    const Bytes forWeights = use.forWeights.empty() ? Bytes(0) : use.forWeights[chunk];
    held = isForward                                ? held + kept
           : task.direction == Direction::kBackward ? held - kept + forWeights
                                                    : held - forWeights;
    points.push_back({isForward ? task.begin : task.end, held});
  }
  return points;
}

// Each stage is shown by the first of its ranks.
std::vector<program::TraceEvent> eventsOf(const cost::Simulation& simulation,
                                          const plan::Plan& plan) {
  std::vector<program::TraceEvent> events;
  for (const std::vector<PathItem>& tasks : simulation.tasks)
    for (const PathItem& task : tasks) {
      if (task.end <= task.begin) continue;
      program::TraceEvent event;
      event.rank = static_cast<int32_t>(plan::rankOf({.pp = task.stage}, plan));
      event.direction = task.direction;
      event.chunk = task.chunk;
      event.microbatch = task.microbatch;
      event.beginSeconds = task.begin.count();
      event.endSeconds = task.end.count();
      events.push_back(event);
    }
  return events;
}

int64_t nanoseconds(Seconds time) { return std::llround(time.count() * 1e9); }

json tasksJson(const std::vector<PathItem>& tasks, size_t first, size_t last) {
  std::string directions;
  json chunk = json::array(), microbatch = json::array(), begin = json::array(),
       compute = json::array(), communication = json::array(), end = json::array();
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (i >= first && i < last) continue;
    const PathItem& task = tasks[i];
    directions += program::directionLetter(task.direction);
    chunk.push_back(task.chunk);
    microbatch.push_back(task.microbatch);
    begin.push_back(nanoseconds(task.begin));
    compute.push_back(nanoseconds(task.compute));
    communication.push_back(nanoseconds(communicationOf(task)));
    end.push_back(nanoseconds(task.end));
  }
  return {{"direction", directions},
          {"chunk", chunk},
          {"microbatch", microbatch},
          {"begin", begin},
          {"compute", compute},
          {"communication", communication},
          {"end", end}};
}

// Tasks `first` to `last` as one sum.
json betweenJson(const std::vector<PathItem>& tasks, size_t first, size_t last) {
  if (first == last) return {};
  StageTimeline sums;
  for (size_t i = first; i < last; ++i) addTask(tasks[i], sums);
  const Seconds begin = tasks[first].begin, end = tasks[last].begin;
  return {{"after", first},
          {"numTasks", last - first},
          {"begin", nanoseconds(begin)},
          {"end", nanoseconds(end)},
          {"forward", nanoseconds(sums.forward)},
          {"backward", nanoseconds(sums.backward)},
          {"communication", nanoseconds(sums.communication)},
          {"optimizer", nanoseconds(sums.optimizer)},
          {"idle", nanoseconds(idleOf(sums, begin, end))}};
}

json memoryJson(const std::vector<MemoryPoint>& points, Seconds step, size_t most) {
  json time = json::array(), bytes = json::array();
  const auto add = [&](Seconds at, Bytes held) {
    time.push_back(nanoseconds(at));
    bytes.push_back(std::llround(held.count()));
  };
  if (points.size() <= most) {
    for (const MemoryPoint& point : points) add(point.time, point.bytes);
    return {{"time", time}, {"bytes", bytes}, {"window", 0}};
  }
  const Seconds window = step / static_cast<double>(most);
  size_t i = 0;
  Bytes held = points.front().bytes;
  for (size_t w = 0; w < most; ++w) {
    const Seconds begin = window * static_cast<double>(w);
    Bytes largest = held;
    for (; i < points.size() && (points[i].time < begin + window || w + 1 == most); ++i) {
      held = points[i].bytes;
      largest = std::max(largest, held);
    }
    add(begin, largest);
  }
  return {{"time", time}, {"bytes", bytes}, {"window", nanoseconds(window)}};
}

json stageJson(const StageTimeline& s, Seconds step, size_t mostTasks, size_t mostPoints) {
  size_t first = s.tasks.size(), last = first;
  if (s.tasks.size() > mostTasks) {
    first = mostTasks / 2;
    last = s.tasks.size() - (mostTasks - first);
  }
  return {{"stage", s.stage},
          {"ranks", s.numRanks},
          {"forwardSeconds", s.forward.count()},
          {"backwardSeconds", s.backward.count()},
          {"communicationSeconds", s.communication.count()},
          {"optimizerSeconds", s.optimizer.count()},
          {"idleSeconds", s.idle.count()},
          {"peakBytes", s.peak.count()},
          {"numTasks", s.tasks.size()},
          {"tasks", tasksJson(s.tasks, first, last)},
          {"between", betweenJson(s.tasks, first, last)},
          {"memory", memoryJson(s.memory, step, mostPoints)}};
}

}  // namespace

Result<PlayedPlan> playPlan(const Query& query, const plan::Plan& plan,
                            const cost::SimulationOptions& options) {
  PlayedPlan played;
  if (!query.stack.ownPrograms) {
    const spec::StackDescription stack =
        spec::descriptionOn(query.stack.description, plan.training.precision, query.cluster.device);
    const cost::DescribedBlocks blocks =
        cost::describeBlocks(query.model, plan, query.cluster, stack);
    played.simulation = cost::simulateDescribed({blocks, query.model, plan, query.cluster, stack},
                                                options.tasks || options.trace);
    if (options.trace) played.simulation.events = eventsOf(played.simulation, plan);
    return played;
  }
  TRIREME_ASSIGN_OR_RETURN(expand::Expansion expansion, expand::expand(query.model, plan));
  played.program = std::move(expansion.program);
  TRIREME_ASSIGN_OR_RETURN(
      played.simulation,
      cost::simulate(played.program, cost::ClusterCosts(plan, query.cluster, query.stack),
                     options));
  return played;
}

Result<Timeline> timelineOf(const Query& query, const plan::Plan& plan, const PlayedPlan& played) {
  TRIREME_ASSIGN_OR_RETURN(const std::vector<cost::MemoryUse> memory,
                           cost::memoryByStage(query.model, plan, query.cluster, query.stack));
  Timeline timeline;
  timeline.step = played.simulation.makespan;
  timeline.memoryAvailable = query.cluster.device.memory;
  const std::vector<cost::RankUse>& ranks = played.simulation.ranks;
  for (size_t i = 0; i < played.simulation.tasks.size(); ++i) {
    const std::vector<PathItem>& tasks = played.simulation.tasks[i];
    StageTimeline& s = timeline.stages.emplace_back();
    s.stage = tasks.front().stage;
    s.numRanks = ranks.empty() ? plan.numRanks() / plan.pp : ranks[i].numAlike;
    for (const PathItem& task : tasks)
      if (task.end > task.begin) s.tasks.push_back(task);
    for (const PathItem& task : s.tasks) addTask(task, s);
    s.idle = idleOf(s, Seconds(0), timeline.step);
    const cost::MemoryUse& use = memory[static_cast<size_t>(s.stage)];
    s.peak = use.total();
    s.memory = memoryOver(tasks, use);
  }
  return timeline;
}

namespace {

// The event goes on with the stage's last task, or begins another.
void addEvent(const program::TraceEvent& event, Seconds start, StageTimeline& stage) {
  const Seconds begin = Seconds(event.beginSeconds) - start,
                end = Seconds(event.endSeconds) - start;
  const auto isOf = [&](const PathItem& task) {
    return task.direction == event.direction && task.chunk == event.chunk &&
           task.microbatch == event.microbatch;
  };
  if (stage.tasks.empty() || !isOf(stage.tasks.back())) {
    PathItem& task = stage.tasks.emplace_back();
    task.stage = static_cast<int32_t>(stage.stage);
    task.direction = event.direction;
    task.chunk = event.chunk;
    task.microbatch = event.microbatch;
    task.begin = begin;
  }
  PathItem& task = stage.tasks.back();
  task.end = end;
  (program::isCollective(event.kind) ? task.transfer : task.compute) += end - begin;
}

}  // namespace

Timeline timelineOf(const program::Program& program,
                    const std::vector<program::TraceEvent>& events) {
  Timeline timeline;
  if (events.empty()) return timeline;
  int64_t step = 0;
  for (const program::TraceEvent& event : events) step = std::max(step, event.step);
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (const program::TraceEvent& event : events) {
    if (event.step != step) continue;
    first = std::min(first, event.beginSeconds);
    last = std::max(last, event.endSeconds);
  }
  timeline.step = Seconds(last - first);
  std::map<int32_t, StageTimeline> stages;  // by their first rank
  std::map<int64_t, int64_t> numRanks;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const program::RankInfo& info = program.ranks[rank];
    ++numRanks[info.ppIndex];
    if (info.dpIndex == 0 && info.tpIndex == 0)
      stages[static_cast<int32_t>(rank)].stage = info.ppIndex;
  }
  for (const program::TraceEvent& event : events) {
    const auto found = stages.find(event.rank);
    if (event.step == step && found != stages.end() && event.stream == program::Stream::kCompute &&
        event.kind != program::InstructionKind::kWait)
      addEvent(event, Seconds(first), found->second);
  }
  for (auto& [rank, stage] : stages) {
    stage.numRanks = numRanks[stage.stage];
    for (const PathItem& task : stage.tasks) addTask(task, stage);
    stage.idle = idleOf(stage, Seconds(0), timeline.step);
    timeline.stages.push_back(std::move(stage));
  }
  std::sort(timeline.stages.begin(), timeline.stages.end(),
            [](const StageTimeline& a, const StageTimeline& b) { return a.stage < b.stage; });
  return timeline;
}

json toJson(const Timeline& timeline, const TimelineLimits& limits) {
  const size_t share = limits.tasks / std::max<size_t>(1, timeline.stages.size());
  json stages = json::array();
  for (const StageTimeline& s : timeline.stages)
    stages.push_back(stageJson(s, timeline.step, std::max<size_t>(40, share), limits.memoryPoints));
  return {{"stepSeconds", timeline.step.count()},
          {"memoryAvailableBytes", timeline.memoryAvailable.count()},
          {"stages", stages}};
}

}  // namespace trireme::planner
