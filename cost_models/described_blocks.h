// What the blocks of a model cost one rank, in a program that Trireme does not make: the kernels
// that spec::StackDescription says it runs.
#pragma once
#include "cost_models/topology.h"
#include "ir/base/units.h"
#include "ir/plan/plan.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

// One microbatch in one direction.
struct PassCost {
  Seconds products, attention, streams;  // on the device, by kind of kernel
  Seconds tensorParallel;                // collectives among tp ranks that nothing hides
  Seconds contextParallel;               // keys and values among cp ranks
  Seconds host;                          // the CPU launching all this

  Seconds compute() const { return products + attention + streams; }
  Seconds device() const { return compute() + tensorParallel + contextParallel; }
  PassCost& operator+=(const PassCost& other);
  PassCost& operator-=(const PassCost& part);
  PassCost operator*(double factor) const;
};

// Kernels and the CPU that launches them together. With d the device's time and h the CPU's:
//   max(d + hostExposed h, h), or ((d + hostExposed h)^x + h^x)^(1/x) with x = hostExponent
Seconds passTime(const PassCost& cost, const spec::StackDescription& stack);

struct BlockCost {
  PassCost forward, backward;
  PassCost recomputed;    // of the forward, again before the backward, if it is recomputed
  PassCost weights;       // of the backward, gradients of matrices: apart where a plan splits it
  double parameters = 0;  // on one rank
};

struct DescribedBlocks {
  BlockCost embedding, layer, head;  // the head with final norm and loss; tied tables count in both
};

// Where the ranks of a group lie, under the order of ranks of plan::Plan.
GroupShape tensorGroup(const plan::Plan& plan);
GroupShape contextGroup(const plan::Plan& plan);
GroupShape dataGroup(const plan::Plan& plan);       // all that hold the same parameters: cp x dp
GroupShape shardGroup(const plan::Plan& plan);      // of them, those that share state: cp x dpShard
GroupShape replicaGroup(const plan::Plan& plan);    // of them, those that hold the same part
GroupShape embeddingGroup(const plan::Plan& plan);  // first and last stage

// Whether software may run collectives of tensor parallelism beside products, as far as its
// description says: what does (Transformer Engine's userbuffers, PyTorch's symmetric memory) splits
// all-gathers and reduce-scatters of sequence parallelism, by kernels that write to the memory of
// other ranks of an island of NVLink (NVIDIA/TransformerEngine issue 1071, seen 2026-11-29): of a
// tier that is a switch or a mesh within a host, or faster than networks are.
bool hidesTensors(const plan::Plan& plan, const spec::ClusterSpec& cluster);

// Kernels of a layer, T = microbatch x sequence / cp tokens, h hidden, all widths divided by tp:
//   products    query/key/value, output, up (with gate), down: forward; gradients of input and of
//               weights: backward
//   attention   StackDescription::attention; see attention.h
//   streams     norms, residual sums with dropout, activation, rotary embedding, bias gradients,
//               accumulation of weight gradients: bytes read and written
//   collectives two all-reduces of T h in each direction or, with sequence parallelism, as many
//               pairs of all-gather and reduce-scatter, and in the backward two all-gathers more
// Where the backward is split (plan::splitsBackward), products and accumulation of a layer's weight
// gradients are BlockCost::weights. Those of the head stay: a microbatch that waited for them would
// keep its logits.
// Requires a legal plan (plan::verifyPlan) and a cluster that checkCluster accepts.
DescribedBlocks describeBlocks(const spec::ModelSpec& model, const plan::Plan& plan,
                               const spec::ClusterSpec& cluster,
                               const spec::StackDescription& stack);

// What a layer's collectives among tp ranks take at least, forward and backward. Takes a tenth of
// the time of describeBlocks.
Seconds leastTensorParallel(const spec::ModelSpec& model, const plan::Plan& plan,
                            const spec::ClusterSpec& cluster, const spec::StackDescription& stack);

// The blocks of a plan that differs in what it recomputes.
DescribedBlocks withRecomputation(DescribedBlocks blocks, const spec::ModelSpec& model,
                                  const plan::Plan& plan, const spec::ClusterSpec& cluster,
                                  const spec::StackDescription& stack);

// The blocks of the same plan on a cluster that differs in nothing but the links among cp ranks.
DescribedBlocks withContextLinks(DescribedBlocks blocks, const spec::ModelSpec& model,
                                 const plan::Plan& plan, const spec::ClusterSpec& cluster,
                                 const spec::StackDescription& stack);

}  // namespace trireme::cost
