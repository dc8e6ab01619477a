#include "cost_models/simulate.h"

#include <algorithm>
#include <utility>

#include "ir/program/play.h"

namespace trireme::cost {
namespace {

using program::Body;
using program::Direction;
using program::Flow;
using program::FlowPart;
using program::FlowStep;
using program::Instruction;
using program::InstructionKind;
using program::PlayedStep;
using program::Program;
using program::Role;
using program::Symmetry;
using program::TaskRecord;

size_t at(int64_t i) { return static_cast<size_t>(i); }

// Payload of a message or collective.
int64_t payloadBytes(const Role& role, const Instruction& in) {
  if (in.kind == InstructionKind::kSend || in.kind == InstructionKind::kRecv ||
      program::isCollective(in.kind))
    return role.buffers[at(in.buffers[in.kind == InstructionKind::kAllGather ? 1 : 0])].bytes();
  return 0;
}

Seconds durationOf(const Program& program, const CostProvider& costs, int32_t rank,
                   const Instruction& in) {
  const Role& role = program.roles[at(program.ranks[at(rank)].role)];
  const Bytes payload(static_cast<double>(payloadBytes(role, in)));
  switch (in.kind) {
    case InstructionKind::kCompute:
      return costs.compute(program, rank, program.segments[at(in.segment)]);
    case InstructionKind::kSend:
      return costs.send(program, rank, program::peerRank(program, rank, in.peerStage), payload);
    case InstructionKind::kRecv:
      return costs.send(program, program::peerRank(program, rank, in.peerStage), rank, payload);
    case InstructionKind::kAllReduce:
    case InstructionKind::kReduceScatter:
    case InstructionKind::kAllGather:
      return costs.collective(program, program::groupOf(program, rank, in.group), in.kind, payload);
    case InstructionKind::kRepeat:
    case InstructionKind::kWait:
      return {};
    default:
      return costs.local(program, rank, in);
  }
}

Body onComputeStream(Body body) {
  for (Instruction& in : body.instructions)
    if (program::isReduceStream(in.stream)) in.stream = program::Stream::kCompute;
  return body;
}

// The body's meetings with their durations on `rank`. An instruction is asked for once.
Flow timedFlow(const Program& program, const CostProvider& costs, int32_t rank, const Body& body,
               const std::array<bool, program::kNumGroupKinds>& blocking) {
  std::vector<double> seconds;
  for (const Instruction& in : body.instructions)
    seconds.push_back(durationOf(program, costs, rank, in).count());
  Flow flow = costs.overlapsReductions() ? program::flowOf(body, blocking)
                                         : program::flowOf(onComputeStream(body), blocking);
  for (FlowPart& part : flow.parts) part.seconds = seconds[at(part.instruction)];
  for (FlowStep& step : flow.steps) {
    if (step.kind != FlowStep::Kind::kLocal) step.seconds = seconds[at(step.instruction)];
    for (int32_t p = 0; p < step.numParts; ++p)
      step.seconds += flow.parts[at(step.firstPart + p)].seconds;
  }
  return flow;
}

void addTrace(const Program& program, int32_t rank, const std::vector<Flow>& flows,
              const std::vector<PlayedStep>& played, std::vector<program::TraceEvent>& events) {
  const Role& role = program.roles[at(program.ranks[at(rank)].role)];
  for (const PlayedStep& p : played) {
    const TaskRecord& task = role.tasks[at(p.task)];
    const Flow& flow = flows[at(task.body)];
    const FlowStep& step = flow.steps[at(p.step)];
    double begin = p.begin;
    const auto add = [&](int32_t instruction, int32_t layer, double end) {
      const Instruction& in = role.bodies[at(task.body)].instructions[at(instruction)];
      events.push_back({rank, in.stream, in.kind, task.direction, task.chunk, task.microbatch,
                        layer, in.segment, 0, begin, end, payloadBytes(role, in)});
      begin = end;
    };
    if (step.kind == FlowStep::Kind::kWait) continue;
    if (step.kind != FlowStep::Kind::kLocal) add(step.instruction, step.layer, p.end);
    for (int32_t i = 0; i < step.numParts; ++i) {
      const FlowPart& part = flow.parts[at(step.firstPart + i)];
      add(part.instruction, part.layer, begin + part.seconds);
    }
  }
}

// Counts on the compute stream, whose order is that of the tasks.
void countLive(const Role& role, RankUse& use) {
  std::vector<int32_t> live(role.chunks.size());
  use.peakLivePerChunk.assign(role.chunks.size(), 0);
  int32_t total = 0;
  const Direction last = program::lastDirection(program::splitsBackward(role));
  for (const TaskRecord& task : role.tasks) {
    if (task.direction != Direction::kForward && task.direction != last) continue;
    const int32_t change = task.direction == Direction::kForward ? 1 : -1;
    total += change;
    live[at(task.chunk)] += change;
    use.peakLive = std::max(use.peakLive, total);
    use.peakLivePerChunk[at(task.chunk)] =
        std::max(use.peakLivePerChunk[at(task.chunk)], live[at(task.chunk)]);
  }
}

void addDuration(const Body& body, int32_t instruction, double seconds, PathItem& item) {
  const Instruction& in = body.instructions[at(instruction)];
  const auto group = static_cast<size_t>(in.group);
  if (in.kind == InstructionKind::kSend || in.kind == InstructionKind::kRecv)
    item.transfer += Seconds(seconds);
  else if (in.kind == InstructionKind::kAllGather)
    item.gather[group] += Seconds(seconds);
  else if (program::isCollective(in.kind))
    item.reduce[group] += Seconds(seconds);
  else
    item.compute += Seconds(seconds);
}

// The item goes on with this step.
void addStep(const Body& body, const Flow& flow, const FlowStep& step, const PlayedStep& played,
             PathItem& item) {
  item.end = Seconds(played.end);
  if (step.kind != FlowStep::Kind::kLocal)
    addDuration(body, step.instruction, played.end - played.begin, item);
  for (int32_t part = 0; part < step.numParts; ++part) {
    const FlowPart& local = flow.parts[at(step.firstPart + part)];
    addDuration(body, local.instruction, local.seconds, item);
  }
}

// Steps from the last one to end back to the first, each with the one that held it up.
std::vector<std::pair<size_t, size_t>> criticalSteps(const program::Played& played) {
  size_t rank = 0, step = 0;
  double last = -1;
  for (size_t c = 0; c < played.ranks.size(); ++c)
    for (size_t i = 0; i < played.ranks[c].size(); ++i)
      if (played.ranks[c][i].end > last) {
        last = played.ranks[c][i].end;
        rank = c;
        step = i;
      }
  std::vector<std::pair<size_t, size_t>> steps;
  while (last > 0) {
    steps.emplace_back(rank, step);
    const PlayedStep& p = played.ranks[rank][step];
    if (p.causeStep < 0) break;
    rank = at(p.causeRank);
    step = at(p.causeStep);
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

std::vector<PathItem> pathOf(const Program& program, const Symmetry& symmetry,
                             const std::vector<std::vector<Flow>>& flows,
                             const program::Played& played) {
  std::vector<PathItem> path;
  std::pair<size_t, int32_t> place{0, -1};  // rank and task of the last item
  for (const auto& [c, i] : criticalSteps(played)) {
    const PlayedStep& p = played.ranks[c][i];
    const Role& role = program.roles[at(program.ranks[at(symmetry.representative[c])].role)];
    const TaskRecord& task = role.tasks[at(p.task)];
    const Flow& flow = flows[c][at(task.body)];
    const FlowStep& step = flow.steps[at(p.step)];
    if (step.kind == FlowStep::Kind::kWait || p.end <= p.begin) continue;
    if (place != std::pair(c, p.task))
      path.push_back(
          {role.stage, task.direction, task.chunk, task.microbatch, Seconds(p.begin), {}});
    place = {c, p.task};
    addStep(role.bodies[at(task.body)], flow, step, p, path.back());
  }
  return path;
}

// The instruction on a stream of reductions that a wait of the compute stream is held by, if any.
const Instruction* heldBy(const Role& role, const std::vector<Flow>& flows,
                          const std::vector<PlayedStep>& played, const PlayedStep& wait) {
  if (wait.end <= wait.begin || wait.causeStep < 0) return nullptr;
  const PlayedStep& cause = played[at(wait.causeStep)];
  const int32_t body = role.tasks[at(cause.task)].body;
  const FlowStep& step = flows[at(body)].steps[at(cause.step)];
  if (!program::isReduceStream(step.stream)) return nullptr;
  return &role.bodies[at(body)].instructions[at(step.instruction)];
}

std::vector<PathItem> tasksOf(const Program& program, int32_t rank, const std::vector<Flow>& flows,
                              const std::vector<PlayedStep>& played) {
  const Role& role = program.roles[at(program.ranks[at(rank)].role)];
  std::vector<PathItem> items;
  int32_t last = -1;
  for (const PlayedStep& p : played) {
    const TaskRecord& task = role.tasks[at(p.task)];
    const Flow& flow = flows[at(task.body)];
    const FlowStep& step = flow.steps[at(p.step)];
    const bool isWait = step.kind == FlowStep::Kind::kWait;
    const Instruction* held = isWait ? heldBy(role, flows, played, p) : nullptr;
    if (step.stream != program::Stream::kCompute || (isWait && held == nullptr)) continue;
    if (p.task != last)
      items.push_back(
          {role.stage, task.direction, task.chunk, task.microbatch, Seconds(p.begin), {}});
    last = p.task;
    if (!isWait) {
      addStep(role.bodies[at(task.body)], flow, step, p, items.back());
      continue;
    }
    items.back().end = Seconds(p.end);
    items.back().reduce[static_cast<size_t>(held->group)] += Seconds(p.end - p.begin);
  }
  return items;
}

RankUse useOf(const Program& program, int32_t rank, const std::vector<Flow>& flows,
              const std::vector<PlayedStep>& played) {
  const Role& role = program.roles[at(program.ranks[at(rank)].role)];
  RankUse use;
  use.rank = rank;
  for (const PlayedStep& p : played) {
    const FlowStep& step = flows[at(role.tasks[at(p.task)].body)].steps[at(p.step)];
    if (step.kind != FlowStep::Kind::kWait)
      use.busy[at(static_cast<int>(step.stream))] += Seconds(p.end - p.begin);
  }
  countLive(role, use);
  return use;
}

}  // namespace

Result<Simulation> simulate(const Program& program, const CostProvider& costs,
                            const SimulationOptions& options) {
  if (program.ranks.empty()) return Error(invalidArgument("simulate: the program has no ranks"));
  const Symmetry symmetry = program::findSymmetry(program, options.allRanks);
  const auto blocking = program::blockingKinds(program, symmetry);
  // Of every simulated rank, for its role's bodies.
  std::vector<std::vector<Flow>> flows(symmetry.representative.size());
  for (size_t c = 0; c < flows.size(); ++c) {
    const int32_t rank = symmetry.representative[c];
    for (const Body& body : program.roles[at(program.ranks[at(rank)].role)].bodies)
      flows[c].push_back(timedFlow(program, costs, rank, body, blocking));
  }
  TRIREME_ASSIGN_OR_RETURN(const program::Played played, program::play(program, symmetry, flows));

  Simulation simulation;
  simulation.makespan = Seconds(played.seconds);
  for (size_t c = 0; c < flows.size(); ++c) {
    const int32_t rank = symmetry.representative[c];
    simulation.ranks.push_back(useOf(program, rank, flows[c], played.ranks[c]));
    simulation.ranks.back().numAlike = std::count(
        symmetry.classOfRank.begin(), symmetry.classOfRank.end(), static_cast<int32_t>(c));
    if (options.trace) addTrace(program, rank, flows[c], played.ranks[c], simulation.events);
  }
  if (options.path) simulation.path = pathOf(program, symmetry, flows, played);
  std::sort(simulation.ranks.begin(), simulation.ranks.end(),
            [](const RankUse& a, const RankUse& b) { return a.rank < b.rank; });
  std::stable_sort(simulation.events.begin(), simulation.events.end(),
                   [](const auto& a, const auto& b) { return a.rank < b.rank; });
  for (size_t i = 0; options.tasks && i < simulation.ranks.size(); ++i) {
    const int32_t rank = simulation.ranks[i].rank;
    const size_t c = at(symmetry.classOfRank[at(rank)]);
    simulation.tasks.push_back(tasksOf(program, rank, flows[c], played.ranks[c]));
  }
  return simulation;
}

}  // namespace trireme::cost
