// The cost functions of this folder, as the simulator asks for them.
#pragma once
#include "cost_models/simulate.h"
#include "cost_models/topology.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

// Of the programs of `plan`. Every group and every transfer between two stages takes as long as the
// worst placed of its kind, as in the estimate: groups of three on nodes of eight lie within a node
// or over two. Requires a cluster that checkCluster accepts; keeps references to it, to the stack
// and to the plan.
class ClusterCosts : public CostProvider {
 public:
  ClusterCosts(const plan::Plan& plan, const spec::ClusterSpec& cluster,
               const spec::StackProfile& stack)
      : plan_(plan), cluster_(cluster), stack_(stack) {}

  Seconds compute(const program::Program& program, int32_t rank,
                  const program::Segment& segment) const override;
  Seconds send(const program::Program& program, int32_t from, int32_t to,
               Bytes payload) const override;
  Seconds collective(const program::Program& program, const program::Group& group,
                     program::InstructionKind kind, Bytes payload) const override;
  Seconds local(const program::Program& program, int32_t rank,
                const program::Instruction& instruction) const override;
  // A host executes them when they are issued.
  bool overlapsReductions() const override {
    return cluster_.device.kind != spec::DeviceKind::kHost;
  }

 private:
  const plan::Plan& plan_;
  const spec::ClusterSpec& cluster_;
  const spec::StackProfile& stack_;
};

}  // namespace trireme::cost
