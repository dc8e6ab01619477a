// The one entry point: how long a step takes under a plan, where the time goes, and whether it
// fits.
#pragma once
#include <optional>
#include <vector>

#include "cost_models/body_cost.h"
#include "cost_models/memory.h"
#include "cost_models/pipeline.h"
#include "cost_models/play.h"
#include "ir/base/status.h"
#include "ir/expand/expand.h"
#include "ir/plan/plan.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

// The most samples per step. Estimates are closed forms but for uneven stages, whose schedule is
// played pass by pass, so that time and memory grow with the microbatches. The largest batches that
// were published are half as large.
inline constexpr int64_t kMostSamples = 131072;
// kInvalidArgument: more than these; says what the batch is if it was meant in tokens.
Status checkBatch(const spec::TrainingSpec& training);

// Where the time of the bottleneck stage goes. The parts add up to the step exactly.
struct Breakdown {
  // Compute, all microbatches, forward and backward.
  Seconds products;       // of matrices
  Seconds attention;      // its core: scores, softmax and their product with the values
  Seconds elementwise;    // what memory paces: norms, activations, dropout, sums, lookups, the loss
  Seconds recomputation;  // of any of these kinds, what the backward computes again
  Seconds launching;      // of described stacks: what the CPU keeps the device waiting
  // Collectives, those of what is recomputed among them.
  Seconds tensorParallel;   // collectives within layers
  Seconds contextParallel;  // keys and values between ranks that share a sequence
  Seconds pipeline;         // transfers between stages that nothing hides
  Seconds bubble;           // waiting for other stages
  Seconds dataParallel;     // gradient reduction and parameter gathering that nothing hides
  Seconds synchronisation;  // tied embeddings, gradient norm
  Seconds optimizer;        // zeroing, norm and AdamW
  Seconds total() const {
    return products + attention + elementwise + recomputation + launching + tensorParallel +
           contextParallel + pipeline + bubble + dataParallel + synchronisation + optimizer;
  }
  // Takes its other kinds out of compute that is all in `elementwise`.
  struct Kinds {
    Seconds products, attention, recomputation, launching;
  };
  void divideCompute(const Kinds& kinds);
};

// One call of each body of one pipeline rank.
struct StageCost {
  std::vector<WalkedBody> forward, backward;  // per chunk
  std::vector<WalkedBody> weights;            // of a split backward, otherwise empty
  WalkedBody begin;
  WalkedBody reduction, update;  // the step, until the gradient norm is known and after it
  // Of the gradient reduction that runs beside the last microbatch's backward, what the step waits
  // for.
  Seconds exposedReduction;
  StageTimes times() const;
};

struct TimeRange {
  Seconds low, high;
  bool operator==(const TimeRange&) const = default;
};
// Holds the step's time for nine of ten runs by whom the stack was compared with, and for about
// half of those of others (VALIDATION.md, other sources).
struct Interval : TimeRange {
  std::optional<TimeRange> ofOthers;  // holds nine of ten of those too, where enough were compared
  // Runs that were compared had other devices, or few had these (DeviceSpec::caution).
  bool isOfOtherDevices = false;
};

struct Estimate {
  Seconds step;
  std::optional<Interval> interval;  // interval.h; none: the stack does not say
  Breakdown breakdown;
  double hostPace = 0;  // of a described stack's busiest stage: the CPU's time over the device's
  MemoryUse memory;     // of the fullest rank
  std::vector<Bytes> memoryOfStages;  // own programs: memory.total() of every pipeline rank
  Bytes memoryAvailable;              // of one device
  Bytes headroom;                     // that it has besides (DeviceSpec)
  double memoryDoubt = spec::kUsualMemoryDoubt;  // StackDescription; not of own programs
  std::vector<StageCost> stages;
  std::vector<Seconds> hops;  // transfers between stages, Pipeline::hops
  Flops modelFlops;           // of the step, formulas.h
  double tokensPerSecond = 0;
  double modelFlopsUtilisation = 0;  // of the devices' matmul peak for the linear layers' format

  bool fits() const { return memory.total() <= memoryAvailable; }
  Bytes missing() const { return fits() ? Bytes(0) : memory.total() - memoryAvailable; }
};

//   step = flushTime(stages) + max over stages of reduction + max over stages of (begin + update)
//
// Of a stack with a description see described_estimate.h. Otherwise every time is walked from the
// bodies of expand(plan, tasks = false), so that nothing is counted that the program does not do.
//
// With Plan::overlapReductions the last microbatch's backward of every chunk feeds a stream of
// reductions; the other microbatches of its group of p go through the next chunk in between. What
// the step waits for is how far that stream is behind (backlog.h) after all chunks and what the
// step does before. Exact on one stage; with more, waiting for other stages leaves less of it. On
// a host, which executes them when they are issued, it is all of them.
//
// A plan that does not fit is no error: ask fits().
// kInvalidArgument: the plan breaks a rule (verifyPlan), has more than kMostSamples samples per
//   step or needs more devices than there are, the devices are older than the stack needs, or the
//   cluster lacks a number (a matmul peak for the
//   compute dtype, a tier).
Result<Estimate> estimate(const spec::ModelSpec& model, const plan::Plan& plan,
                          const spec::ClusterSpec& cluster, const spec::StackProfile& stack);
// The same of one of many plans: `player` keeps what plays of one shape share.
Result<Estimate> estimate(const spec::ModelSpec& model, const plan::Plan& plan,
                          const spec::ClusterSpec& cluster, const spec::StackProfile& stack,
                          FlushPlayer& player);

// Memory of every pipeline rank, in order. Estimate::memory is the largest of it. Errors: those of
// estimate().
Result<std::vector<MemoryUse>> memoryByStage(const spec::ModelSpec& model, const plan::Plan& plan,
                                             const spec::ClusterSpec& cluster,
                                             const spec::StackProfile& stack);

// Of a result whose step is known: model FLOPs, tokens/s and utilisation.
void fillRates(const spec::ModelSpec& model, const plan::Plan& plan,
               const spec::ClusterSpec& cluster, Estimate& result);

// kInvalidArgument: what `estimate` says of the cluster, for programs of the training's precision.
Status checkCluster(const spec::ClusterSpec& cluster, const spec::TrainingSpec& training);

}  // namespace trireme::cost
