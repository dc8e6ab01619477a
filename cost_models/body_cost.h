// What one call of a body costs its rank, by walking its instructions.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "cost_models/backlog.h"
#include "cost_models/compute.h"
#include "cost_models/topology.h"
#include "ir/base/units.h"
#include "ir/plan/plan.h"
#include "ir/program/program.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

template <typename T>
using PerGroup = std::array<T, program::kNumGroupKinds>;

// Durations do not overlap each other: they add up to the time on the rank's compute stream, but
// for `beside`. Of reductions that run beside it over tp only what it waits for counts, as
// `reduce`.
struct BodyCost {
  Seconds compute;
  Seconds products, attention, recomputed;  // of it; see ComputeTime
  PerGroup<Seconds> reduce{};               // all-reduce and reduce-scatter
  PerGroup<Seconds> gather{};               // all-gather
  Seconds beside;                           // reductions on Stream::kDpReduce
  Bytes sentForward, sentBackward;          // to other stages, by stream

  Seconds communication(program::GroupKind kind) const {
    return reduce[static_cast<size_t>(kind)] + gather[static_cast<size_t>(kind)];
  }
  // Everything but `beside` and the transfers between stages.
  Seconds total() const;
  BodyCost& operator+=(const BodyCost& other);
  BodyCost operator*(double factor) const;
};

// A body's cost, what a Repeat does apart from the rest: `outside` + `repeated`.
struct WalkedBody {
  BodyCost outside;
  BodyCost repeated;  // all iterations of all layers
  // What the call does to Stream::kDpReduce, and what has been done when the compute stream waits
  // for what others of the role's bodies reduce there; none: it does not wait.
  Backlog backlog;
  std::optional<Backlog> atWait;
  BodyCost total() const;
};

// Costs that many bodies of a program share: segments are timed and groups laid out once.
//
// Streams of reductions run beside the compute stream of a GPU. A host executes their instructions
// when they are issued. Over tp the walk keeps the clocks of both streams: exact, if what an
// iteration of a Repeat awaits was signalled in that iteration.
class BodyWalker {
 public:
  // Requires a device that checkDevice accepts for the program's compute dtype. Keeps a reference
  // to `cluster`. `recomputedOps`: Expansion::recomputedOps; empty: nothing counts as recomputed.
  BodyWalker(const program::Program& program, const plan::Plan& plan,
             const spec::ClusterSpec& cluster, const spec::StackProfile& stack,
             std::span<const int32_t> recomputedOps = {});

  WalkedBody walk(const program::Role& role, const program::Body& body) const;
  const Levels& levels(program::GroupKind kind) const { return levels_[static_cast<size_t>(kind)]; }

 private:
  class Walk;

  Seconds durationOf(const program::Role& role, const program::Instruction& instruction) const;

  const spec::ClusterSpec& cluster_;
  std::vector<ComputeTime> segmentTimes_;
  PerGroup<Levels> levels_;
};

}  // namespace trireme::cost
