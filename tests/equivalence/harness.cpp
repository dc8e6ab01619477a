#include "tests/equivalence/harness.h"

#include <fmt/format.h>

#include <cmath>

#include "ir/base/rng.h"
#include "ir/expand/expand.h"
#include "ir/program/verify.h"
#include "tests/support/small_plan.h"
#if TRIREME_HAVE_MLIR
#include "codegen/codegen.h"
#endif

namespace trireme::equivalence {

spec::ModelSpec tinyGpt(int64_t numLayers, bool tied) {
  spec::ModelSpec m = small::gpt(numLayers, 32, 4);
  m.name = "tiny-gpt";
  m.vocabSize = 101;
  m.maxSequence = 24;
  m.tiedEmbeddings = tied;
  return m;
}

spec::ModelSpec tinyLlama(int64_t numLayers, bool tied) {
  spec::ModelSpec m = small::asLlama(tinyGpt(numLayers, tied));
  m.name = "tiny-llama";
  m.numHeads = 8;
  m.headSize = 4;
  m.ffnSize = 88;
  m.tiedEmbeddings = tied;
  return m;
}

spec::TrainingSpec tinyTraining(spec::Precision precision) {
  spec::TrainingSpec t;
  t.precision = precision;
  t.sequenceLength = 16;
  t.globalBatchSize = 8;
  t.embeddingDropout = t.attentionDropout = t.residualDropout = 0.1;
  t.learningRate = 1e-3;
  t.clipNorm = 0.5;
  return t;
}

plan::Plan serialPlan(const spec::ModelSpec& model, const spec::TrainingSpec& training,
                      int64_t microbatchSize) {
  plan::Plan p = small::plan(model, training);
  p.microbatchSize = microbatchSize;
  p.vocabMultiple = 4;
  return p;
}

Status SyntheticData::sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                             int32_t* labels) {
  const auto token = [&](int64_t i) {
    const uint32_t word = randomWord({7, 11}, index, static_cast<uint64_t>(i));
    const uint32_t start = randomWord({3, 5}, index, 0);
    const uint64_t value = word % 8 == 0 ? word / 8 : start + static_cast<uint64_t>(i) * 3;
    return static_cast<int32_t>(value % static_cast<uint64_t>(vocabSize_));
  };
  for (int64_t i = 0; i < length; ++i) {
    if (tokens != nullptr) tokens[i * stride] = token(i);
    if (labels != nullptr) labels[i * stride] = token(i + 1);
  }
  return {};
}

namespace {

Status addKernels(program::Bundle& bundle) {
#if TRIREME_HAVE_MLIR
  TRIREME_ASSIGN_OR_RETURN(codegen::CompiledKernels kernels,
                           codegen::compileSegments(bundle.program, {}));
  bundle.kernels = std::move(kernels.segments);
  bundle.sharedObject = std::move(kernels.sharedObject);
  bundle.target = std::move(kernels.target);
  return {};
#else
  return invalidArgument(bundle.name + ": this build has no code generator");
#endif
}

Result<program::Bundle> makeBundle(const spec::ModelSpec& model, const plan::Plan& plan,
                                   const RunOptions& options, const Mutation& mutate) {
  TRIREME_ASSIGN_OR_RETURN(expand::Expansion expansion, expand::expand(model, plan));
  TRIREME_RETURN_IF_ERROR(program::verifyProgram(expansion.program));
  if (mutate != nullptr) mutate(expansion.program);
  program::Bundle bundle;
  bundle.name = model.name;
  bundle.program = std::move(expansion.program);
  bundle.kernels.resize(bundle.program.segments.size());
  if (options.gpu != nullptr)
    bundle.target.arch = "cuda:sm_90";
  else if (options.compiled)
    TRIREME_RETURN_IF_ERROR(addKernels(bundle));
  return bundle;
}

}  // namespace

Result<RunResult> run(const spec::ModelSpec& model, const plan::Plan& plan,
                      const RunOptions& options, const Mutation& mutate) {
  TRIREME_ASSIGN_OR_RETURN(program::Bundle bundle, makeBundle(model, plan, options, mutate));
  RunResult result;
  for (const program::Role& role : bundle.program.roles)
    result.arenaBytes.push_back(role.arenaBytes);
  runtime::SessionOptions sessionOptions;
  sessionOptions.useReference = options.useReference;
  sessionOptions.trace = options.trace;
  sessionOptions.timeoutSeconds = options.timeoutSeconds;
  sessionOptions.threadsPerRank = options.threadsPerRank;
  sessionOptions.cudaApis = options.gpu;
  sessionOptions.virtualRanks = options.gpu != nullptr;
  TRIREME_ASSIGN_OR_RETURN(std::unique_ptr<runtime::Session> session,
                           runtime::Session::create(std::move(bundle), sessionOptions));
  SyntheticData synthetic(model.vocabSize);
  runtime::DataSource& data = options.data != nullptr ? *options.data : synthetic;
  for (int i = 0; i < options.steps; ++i) {
    TRIREME_ASSIGN_OR_RETURN(const runtime::StepResult step, session->step(data));
    result.losses.push_back(step.loss);
    result.gradNorms.push_back(step.gradNorm);
    if (i == 0) result.firstGradients = session->gatherGradients();
  }
  result.parameters = session->gatherParameters();
  result.counters = session->counters();
  if (options.trace) result.trace = session->takeTrace();
  return result;
}

std::string compareTensors(const std::vector<runtime::NamedTensor>& expected,
                           const std::vector<runtime::NamedTensor>& actual,
                           const Tolerance& tolerance) {
  if (expected.size() != actual.size())
    return fmt::format("{} tensors expected, {} found", expected.size(), actual.size());
  double normSquared = 0;
  for (const auto& tensor : expected)
    for (double v : tensor.values) normSquared += v * v;
  std::string message;
  double worst = 1;
  for (size_t t = 0; t < expected.size(); ++t) {
    if (expected[t].name != actual[t].name || expected[t].dims != actual[t].dims)
      return fmt::format("tensor {} is {} instead of {}", t, actual[t].name, expected[t].name);
    double largest = 0;
    for (double v : expected[t].values) largest = std::max(largest, std::fabs(v));
    const double allowed = tolerance.relative * largest + tolerance.ofNorm * std::sqrt(normSquared);
    for (size_t i = 0; i < expected[t].values.size(); ++i) {
      const double difference = std::fabs(expected[t].values[i] - actual[t].values[i]);
      if (difference <= allowed && !std::isnan(difference)) continue;
      const double excess = allowed > 0 && !std::isnan(difference) ? difference / allowed : 1e300;
      if (excess < worst) continue;
      worst = excess;
      message = fmt::format("{}[{}]: {} instead of {}, difference {:.3g}, allowed {:.3g}",
                            expected[t].name, i, actual[t].values[i], expected[t].values[i],
                            difference, allowed);
    }
  }
  return message;
}

std::string compareLosses(const std::vector<double>& expected, const std::vector<double>& actual,
                          double relative) {
  if (expected.size() != actual.size()) return "different numbers of steps";
  for (size_t i = 0; i < expected.size(); ++i)
    if (!(std::fabs(expected[i] - actual[i]) <= relative * std::fabs(expected[i])))
      return fmt::format("step {}: loss {:.17g} instead of {:.17g}, relative difference {:.3g}",
                         i + 1, actual[i], expected[i], std::fabs(actual[i] / expected[i] - 1));
  return "";
}

}  // namespace trireme::equivalence
