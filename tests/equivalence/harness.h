// Trains a tiny model under a plan and keeps what must not depend on the plan.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/plan/plan.h"
#include "ir/program/program.h"
#include "ir/spec/model_spec.h"
#include "runtime/device/cuda/gpu.h"
#include "runtime/session.h"
#include "tests/support/training.h"

namespace trireme::equivalence {

// h = 32, 4 heads (Llama: 8 query heads on 4 key/value heads), s = 16, vocabulary 101 (so that
// every tp pads it differently). Dropout, clipping and weight decay are on.
spec::ModelSpec tinyGpt(int64_t numLayers = 8, bool tied = true);
spec::ModelSpec tinyLlama(int64_t numLayers = 8, bool tied = false);
spec::TrainingSpec tinyTraining(spec::Precision precision);

// A one-rank plan: full batch of 8 in microbatches of `microbatchSize`.
plan::Plan serialPlan(const spec::ModelSpec& model, const spec::TrainingSpec& training,
                      int64_t microbatchSize = 1);

struct RunOptions {
  int steps = 20;
  bool compiled = TRIREME_HAVE_MLIR;  // generated kernels; else the runtime's own for every op
  bool useReference = false;          // every op through its readable twin
  int threadsPerRank = 1;
  bool trace = false;
  double timeoutSeconds = 60;
  runtime::DataSource* data = nullptr;  // not owned; null: SyntheticData
  // Not owned; else as virtual ranks on the GPU behind these tables, or, where there is a table of
  // NCCL, on a GPU each.
  const runtime::cuda::Apis* gpu = nullptr;
  bool cudaGraphs = true;
  runtime::FaultInjector* faults = nullptr;  // not owned
};

struct RunResult {
  std::vector<double> losses;
  std::vector<double> gradNorms;
  std::vector<runtime::ScaledStep> scaled;           // in fp16
  std::vector<runtime::NamedTensor> firstGradients;  // of step 1, before clipping
  std::vector<runtime::NamedTensor> parameters;      // after the last step
  std::vector<runtime::RankCounters> counters;       // of the last step
  std::vector<program::TraceEvent> trace;            // of all steps, if asked for
  std::vector<int64_t> arenaBytes;                   // per role
};

struct ModelAndPlan {
  spec::ModelSpec model;
  plan::Plan plan;
};

// Compiles the kernels that these need on hosts, in one go: runs after it find theirs among them.
// Segments of several plans share most kernels, which are then compiled once.
Status compileTogether(const std::vector<ModelAndPlan>& runs);

// `mutate`, if given, changes the verified program: negative controls.
using Mutation = std::function<void(program::Program&)>;
Result<program::Bundle> makeBundle(const spec::ModelSpec& model, const plan::Plan& plan,
                                   const RunOptions& options = {},
                                   const Mutation& mutate = nullptr);
Result<RunResult> run(const spec::ModelSpec& model, const plan::Plan& plan,
                      const RunOptions& options = {}, const Mutation& mutate = nullptr);

}  // namespace trireme::equivalence
