// What one call of a body costs its rank, by walking its instructions.
#pragma once
#include <array>
#include <vector>

#include "cost_models/topology.h"
#include "ir/base/units.h"
#include "ir/plan/plan.h"
#include "ir/program/program.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

template <typename T>
using PerGroup = std::array<T, program::kNumGroupKinds>;

// Durations do not overlap each other: they add up to the time on the rank's compute stream.
struct BodyCost {
  Seconds compute;
  PerGroup<Seconds> reduce{};       // all-reduce and reduce-scatter
  PerGroup<Seconds> gather{};       // all-gather
  Bytes sentForward, sentBackward;  // to other stages, by stream

  Seconds communication(program::GroupKind kind) const {
    return reduce[static_cast<size_t>(kind)] + gather[static_cast<size_t>(kind)];
  }
  // Everything but the transfers between stages.
  Seconds total() const;
  BodyCost& operator+=(const BodyCost& other);
  BodyCost operator*(double factor) const;
};

// A body's cost, what a Repeat does apart from the rest: `outside` + `repeated`.
struct WalkedBody {
  BodyCost outside;
  BodyCost repeated;  // all iterations of all layers
  BodyCost total() const;
};

// Costs that many bodies of a program share: segments are timed and groups laid out once.
class BodyWalker {
 public:
  // Requires a device that checkDevice accepts for the program's compute dtype. Keeps a reference
  // to `cluster`.
  BodyWalker(const program::Program& program, const plan::Plan& plan,
             const spec::ClusterSpec& cluster, const spec::StackProfile& stack);

  WalkedBody walk(const program::Role& role, const program::Body& body) const;
  const Levels& levels(program::GroupKind kind) const { return levels_[static_cast<size_t>(kind)]; }

 private:
  // Instructions [begin, end), every one once; a Repeat's span counts as often as it runs.
  void walkRange(const program::Role& role, const program::Body& body, size_t begin, size_t end,
                 double times, WalkedBody& into) const;
  void addInstruction(const program::Role& role, const program::Instruction& instruction,
                      BodyCost& into) const;

  const spec::ClusterSpec& cluster_;
  std::vector<Seconds> segmentTimes_;
  PerGroup<Levels> levels_;
};

}  // namespace trireme::cost
