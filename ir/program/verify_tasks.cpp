// (V8) the tasks of a step and their slots; (V9) the step itself.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "ir/program/verify_internal.h"

namespace trireme::program::verify {
namespace {

Status checkChunks(const Context& context, const Group& pipeline) {
  const Program& program = context.program;
  for (int32_t rank : pipeline.ranks) {
    const int32_t index = program.ranks[at(rank)].role;
    const size_t chunks = program.roles[at(index)].chunks.size();
    if (static_cast<int32_t>(chunks) != program.virtualStages)
      return violation("V8", where(context, index, -1),
                       fmt::format("{} chunks, expected {}", chunks, program.virtualStages));
  }
  std::vector<const Chunk*> stages(at(int64_t{program.pp} * program.virtualStages), nullptr);
  for (int32_t rank : pipeline.ranks) {
    const int32_t index = program.ranks[at(rank)].role;
    const Role& role = program.roles[at(index)];
    for (size_t c = 0; c < role.chunks.size(); ++c) {
      const int64_t expected = static_cast<int64_t>(c) * program.pp + role.stage;
      if (role.chunks[c].virtualStage != expected)
        return violation("V8", where(context, index, -1),
                         fmt::format("chunk {} is virtual stage {}, expected {}", c,
                                     role.chunks[c].virtualStage, expected));
      stages[at(expected)] = &role.chunks[c];
    }
  }
  int64_t layer = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (stages[s]->firstLayer != layer)
      return violation(
          "V8", fmt::format("virtual stage {}", s),
          fmt::format("starts with layer {}, expected {}", stages[s]->firstLayer, layer));
    layer += stages[s]->numLayers;
  }
  if (layer != program.numLayers)
    return violation("V8", "program",
                     fmt::format("the chunks hold {} layers of {}", layer, program.numLayers));
  return {};
}

class TaskCheck {
 public:
  // `passes`: tasks of each microbatch, F and B, or F, B and W.
  TaskCheck(const Context& context, int32_t role, int32_t passes)
      : context_(context),
        index_(role),
        role_(context.program.roles[at(role)]),
        microbatches_(context.program.training.numMicrobatches),
        passes_(passes) {}

  Status run() {
    const auto chunks = static_cast<int64_t>(role_.chunks.size());
    int64_t passes = 0;
    for (const TaskRecord& task : role_.tasks) passes += task.direction != Direction::kStep;
    if (passes != passes_ * chunks * microbatches_)
      return violation("V8", where(context_, index_, -1),
                       fmt::format("{} passes, expected {} chunks x {} microbatches x {}", passes,
                                   chunks, microbatches_, passes_));
    TRIREME_RETURN_IF_ERROR(checkBodies());
    TRIREME_RETURN_IF_ERROR(checkRepeats());
    state_.resize(at(chunks * microbatches_));
    tenants_.resize(role_.chunks.size());
    next_.resize(role_.chunks.size());
    for (task_ = 0; task_ < static_cast<int32_t>(role_.tasks.size()); ++task_) {
      const TaskRecord& task = role_.tasks[at(task_)];
      if (task.direction == Direction::kStep) {
        TRIREME_RETURN_IF_ERROR(step(task));
      } else {
        TRIREME_RETURN_IF_ERROR(pass(task));
      }
    }
    if (numSteps_ != 1) return violation("V9", where(context_, index_, -1), "has no step");
    return {};
  }

 private:
  static constexpr const char* kNames[] = {"forward", "backward", "weights pass"};
  // How far a microbatch of a chunk has come.
  struct State {
    int32_t done = 0;  // of kNames
    int32_t slot = -1;
  };

  // A body is of one chunk and one direction.
  Status checkBodies() const {
    std::vector<int32_t> firstTask(role_.bodies.size(), -1);
    for (size_t t = 0; t < role_.tasks.size(); ++t) {
      const TaskRecord& task = role_.tasks[t];
      int32_t& known = firstTask[at(task.body)];
      if (known < 0) known = static_cast<int32_t>(t);
      const TaskRecord& first = role_.tasks[at(known)];
      if (first.chunk != task.chunk || first.direction != task.direction)
        return violation("V8", where(context_, index_, static_cast<int32_t>(t)),
                         fmt::format("runs body {}, which is that of {}",
                                     role_.bodies[at(task.body)].name, taskName(first)));
    }
    return {};
  }

  // What is repeated in a pass is repeated for every layer of its chunk.
  Status checkRepeats() const {
    std::vector<int32_t> layers(role_.bodies.size(), -1);
    for (size_t t = 0; t < role_.tasks.size(); ++t) {
      const TaskRecord& task = role_.tasks[t];
      if (task.direction == Direction::kStep) continue;
      const int32_t expected = role_.chunks[at(task.chunk)].numLayers;
      if (std::exchange(layers[at(task.body)], expected) == expected) continue;
      const std::vector<Instruction>& list = role_.bodies[at(task.body)].instructions;
      for (size_t i = 0; i < list.size(); ++i)
        if (list[i].kind == InstructionKind::kRepeat && list[i].count != expected)
          return violation(
              "V8", where(context_, index_, static_cast<int32_t>(t), -1, static_cast<int32_t>(i)),
              fmt::format("repeats {} times, the chunk has {} layers", list[i].count, expected));
    }
    return {};
  }

  Status error(std::string_view label, const std::string& message) const {
    return violation(label, where(context_, index_, task_), message);
  }

  Status pass(const TaskRecord& task) {
    if (numSteps_ > 0) return error("V9", "comes after the step");
    if (task.microbatch >= microbatches_)
      return error("V8", fmt::format("microbatch {} of {}", task.microbatch, microbatches_));
    ++numPasses_;
    State& state = state_[at(task.chunk * microbatches_ + task.microbatch)];
    std::vector<int32_t>& tenants = tenants_[at(task.chunk)];
    if (at(task.slot) >= tenants.size()) tenants.resize(at(task.slot) + 1, -1);
    int32_t& tenant = tenants[at(task.slot)];
    const int32_t pass =
        task.direction == Direction::kWeights ? 2 : static_cast<int>(task.direction);
    int32_t& next = next_[at(task.chunk)][at(pass)];
    if (state.done < pass)
      return error("V8", fmt::format("{} without a {} before it", kNames[pass], kNames[pass - 1]));
    if (state.done > pass)
      return error("V8", fmt::format("a second {} of this microbatch", kNames[pass]));
    if (pass > 0 && state.slot != task.slot)
      return error(
          "V8", fmt::format("on slot {}, but its forward was on slot {}", task.slot, state.slot));
    if (task.microbatch != next++) return outOfOrder(next - 1);
    if (pass == 0 && tenant >= 0)
      return error("V8", fmt::format("slot {} still belongs to microbatch {}", task.slot, tenant));
    state = {pass + 1, task.slot};
    tenant = pass + 1 < passes_ ? task.microbatch : -1;
    return {};
  }

  // Sums of another order are other numbers.
  Status outOfOrder(int32_t expected) const {
    return error("V8", fmt::format("comes before microbatch {}: losses and gradients are summed in "
                                   "the order of microbatches",
                                   expected));
  }

  // Tasks of the step come first (to prepare the accumulators) or last (the step proper).
  Status step(const TaskRecord& task) {
    std::vector<int32_t> stepped(role_.buckets.size()), squared(role_.buckets.size());
    int32_t scaled = 0;
    bool isScaledLast = true;
    forEachInstruction(role_.bodies[at(task.body)], [&](int32_t i, int32_t) {
      const Instruction& in = role_.bodies[at(task.body)].instructions[at(i)];
      if (in.kind == InstructionKind::kAdamW) {
        ++stepped[at(in.bucket)];
        isScaledLast = isScaledLast && scaled == 0;
      }
      if (in.kind == InstructionKind::kUpdateLossScale) ++scaled;
      if (in.kind == InstructionKind::kSumSquares) ++squared[at(in.bucket)];
    });
    const bool any = std::any_of(stepped.begin(), stepped.end(), [](int32_t n) { return n > 0; });
    if (numPasses_ == 0 && !any && scaled == 0 &&
        task_ + 1 < static_cast<int32_t>(role_.tasks.size())) {
      if (++numBegins_ > 1) return error("V9", "a second beginning");
      return {};
    }
    if (++numSteps_ > 1) return error("V9", "a second step");
    if (numPasses_ != passes_ * static_cast<int64_t>(role_.chunks.size()) * microbatches_)
      return error("V9", "comes before the last backward");
    for (size_t b = 0; b < stepped.size(); ++b)
      if (stepped[b] != 1 || squared[b] != 1)
        return error("V9",
                     fmt::format("bucket {} is stepped {} times and its squares are summed {} "
                                 "times, expected once",
                                 role_.buckets[b].name, stepped[b], squared[b]));
    const int32_t expected = role_.lossScaling >= 0 ? 1 : 0;
    if (scaled != expected || !isScaledLast)
      return error(
          "V9", fmt::format("the loss scale is updated {} times{}, expected {}", scaled,
                            isScaledLast ? "" : ", before the last bucket is stepped", expected));
    return {};
  }

  const Context& context_;
  int32_t index_;
  const Role& role_;
  int64_t microbatches_;
  int32_t passes_;
  int32_t task_ = 0;
  int64_t numPasses_ = 0;
  int32_t numSteps_ = 0, numBegins_ = 0;
  std::vector<State> state_;                   // [chunk][microbatch]
  std::vector<std::array<int32_t, 3>> next_;   // [chunk][of kNames]: microbatch
  std::vector<std::vector<int32_t>> tenants_;  // [chunk][slot]: microbatch, -1 if free
};

}  // namespace

Status checkTasks(const Context& context) {
  std::vector<bool> done(context.symmetry.members.size());
  for (size_t g = 0; g < context.program.groups.size(); ++g) {
    const auto groupClass = at(context.symmetry.classOfGroup[g]);
    if (context.program.groups[g].kind != GroupKind::kPp || done[groupClass]) continue;
    done[groupClass] = true;
    TRIREME_RETURN_IF_ERROR(checkChunks(context, context.program.groups[g]));
  }
  const std::vector<Role>& roles = context.program.roles;
  const int32_t passes = std::any_of(roles.begin(), roles.end(), splitsBackward) ? 3 : 2;
  for (size_t r = 0; r < context.roles.size(); ++r)
    if (context.roles[r].first >= 0)
      TRIREME_RETURN_IF_ERROR(TaskCheck(context, static_cast<int32_t>(r), passes).run());
  return {};
}

}  // namespace trireme::program::verify
