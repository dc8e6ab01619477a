// Time of a step of a program that Trireme does not make, in closed form.
#pragma once
#include <optional>
#include <vector>

#include "cost_models/described_blocks.h"
#include "cost_models/estimate.h"
#include "cost_models/once_times.h"
#include "cost_models/play.h"
#include "cost_models/simulate.h"
#include "ir/plan/plan.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

// estimate() for a stack with a description.
//
// A pass of a stage takes the longer of its kernels and of launching them. Of communication that
// takes c beside work that takes w, exposedTime(c, w, e) is felt.
//
//   step = (flushTime + reduction of gradients + tied embeddings
//           + gathering of parameters + optimizer + hostStep) (1 + slowdownPerDoubling log2(nodes))
//
// with the longest first line of any stage, and the longest second one (OnceTimes).
//
// State sharding, with P parameters on a rank and n ranks that share them:
//   none        all-reduce of gradients, beside the backward of the last microbatch
//   (replicas)  once per step: all-reduce of what the shards' reduce-scatter leaves, one after the
//               other; or of each layer beside the backward of the next, for every microbatch
//               (StackDescription::replicaReduction). Of a, which shards exchange, and b, felt to
//               shares e_a and e_b though hidden, beside a backward that takes w is felt
//                 max(e_a a + e_b b, a + b - w)       over the same links: one after the other
//                 max(e_a a + e_b b, max(a, b) - w)   else: side by side
//   optimizer   reduce-scatter of gradients, and all-gather of parameters beside the forward of the
//   (gradients) first microbatch; the optimizer works on P / n
//   parameters  for every microbatch each layer's parameters are gathered before its forward and
//               its backward, and its gradients are reduced after it, all beside the neighbouring
//               layer; embedding and head stand alone. With shared gradients beside gathered copies
//               (gathersForPasses) the same, but for what is gathered before the backward. Under a
//               pipeline that keeps them whole (StackDescription::pipelineKeepsWhole) as with
//               optimizer
// With virtual stages a chunk's gradients are whole, and its parameters are asked for, p
// microbatches' passes apart from those of the next chunk, and of v chunks v - 1 have others to
// hide behind: p (v - 1) / v microbatches instead of one. Gradients of the last layer (or, with
// virtual stages, of the last chunk) have nothing to hide behind.
//
// Errors: those of estimate().
Result<Estimate> estimateDescribed(const spec::ModelSpec& model, const plan::Plan& plan,
                                   const spec::ClusterSpec& cluster,
                                   const spec::StackDescription& stack,
                                   const FlushTime& flush = flushTime);

// The same with blocks at hand, which depend on tp, cp, microbatch, recompute and sequence parallel
// alone, and with the flush by `flush`: flushTime, or pipelineTime, which is never longer. The plan
// must be legal and the cluster checked.
Estimate estimateFromBlocks(const DescribedBlocks& blocks, const spec::ModelSpec& model,
                            const plan::Plan& plan, const spec::ClusterSpec& cluster,
                            const spec::StackDescription& stack, const FlushTime& flush);

// The same in parts, so that many cuts of one plan can be compared:
//   step = (pipelineTime of every stage's times and transferTime, which nothing overlaps,
//           + the longest OnceTimes) stepFactor
struct OncePerStep {
  Seconds gradients, tied;        // reduction; that of tied embeddings
  Seconds parameters, optimizer;  // gathering
  bool waits = true;              // for the others' gradient norms; not with post-validation

  Seconds reducing() const { return gradients + tied; }
  Seconds updating() const { return parameters + optimizer; }
  OnceTimes times() const {
    return waits ? OnceTimes{reducing(), updating()} : OnceTimes{reducing() + updating(), {}};
  }
};
struct StageEstimate {
  StageTimes times;          // one microbatch, without transfers
  StageTimes communication;  // tensor and context parallel, of these times
  OncePerStep once;
};

// Of a layer's parameters that are gathered and gradients that are reduced for every microbatch,
// and of what other blocks have, which have no neighbour to hide behind; with what is copied for
// it.
struct ShardedTraffic {
  Seconds layerForward, layerBackward, embedding, head;
  Seconds recomputedLess;  // of layerBackward, where the layer is recomputed before
};

// What the stages of a plan share, whatever layers they have. Made of references, which must
// outlive it; plan.layers may change. For one thread at a time.
struct StageSetting {
  StageSetting(const DescribedBlocks& blocks, const spec::ModelSpec& model, const plan::Plan& plan,
               const spec::ClusterSpec& cluster, const spec::StackDescription& stack);

  const DescribedBlocks& blocks;
  const spec::ModelSpec& model;
  const plan::Plan& plan;
  const spec::ClusterSpec& cluster;
  const spec::StackDescription& stack;
  // dataGroup(), shardGroup(), replicaGroup(), embeddingGroup(); the last with tied tables alone.
  Levels data, shards, replicas, embedding;
  ShardedTraffic traffic;

  Bytes reserve() const;  // describedReserve(), worked out when it is asked for

 private:
  StageSetting(const DescribedBlocks& blocks, const spec::ModelSpec& model, const plan::Plan& plan,
               const spec::ClusterSpec& cluster, const spec::StackDescription& stack,
               const Ranks& ranks);

  mutable std::optional<Bytes> reserve_;
};

// Of plan.layers it reads plan.layers[stage] alone, and that they are as many as stages.
StageEstimate estimateStage(const StageSetting& setting, size_t stage);

// What a stage does once per step for its parameters.
struct OnceParts {
  // Hidden beside passes of all the stage's chunks of so many microbatches, but for `share` and for
  // one of so many pieces that it comes in.
  struct Communication {
    Seconds time;
    double share = 1;
    double microbatches = 1;
    Seconds felt(Seconds ofMicrobatch, double pieces) const;
  };
  // The former beside the last backwards, shards and then replicas (Megatron-LM has one stream for
  // both, param_and_grad_buffer.py); the latter beside the first forwards.
  Communication reduced, gathered;
  Seconds copies, optimizer;  // nothing hides them
};
OnceParts oncePartsOf(const StageSetting& setting, double parameters);
// The gradient of a tied table that two stages hold. Zero on others.
Seconds tiedTime(const StageSetting& setting, size_t stage);

// What is felt of transfers in every pass of a chunk, all stages alike: as where it is longest.
// Zero without a next stage.
//   v > 1: the slowest hop, for a pass sends and receives at once
//   else:  max_r (c_{r-1} + c_r) / 2, c_r the hop behind stage r: a rank exchanges once with each
//          neighbour for the two passes of a microbatch (Megatron-LM, schedules.py,
//          send_forward_recv_backward), the first and the last with one alone
Seconds transferTime(const spec::ModelSpec& model, const plan::Plan& plan,
                     const spec::ClusterSpec& cluster, const spec::StackDescription& stack);
double stepFactor(const plan::Plan& plan, const spec::ClusterSpec& cluster,
                  const spec::StackDescription& stack);

// The same step with its schedule played task by task (cost_models/play.h) instead of
// pipelineTime; alone, so that with post-validation it takes longer than the estimate says. What is
// done once begins when the last stage is through with its microbatches; where it takes longest is
// the end of the path. `keepsTasks`: as play().
Simulation simulateDescribed(const StageSetting& setting, bool keepsTasks = true);

}  // namespace trireme::cost
