#include "tests/equivalence/harness.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "ir/expand/expand.h"
#include "ir/program/verify.h"
#include "tests/support/emulated_gpu.h"
#include "tests/support/host_twin.h"
#include "tests/support/shared_object.h"
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

namespace {

#if TRIREME_HAVE_MLIR
enum class CodeFor { kHost, kHostInPlaceOfGpu, kGpu };

struct Compiled {
  std::vector<program::Segment> segments;
  CodeFor target;
  codegen::CompiledKernels kernels;
};

// What has been compiled so far. Plans that differ in stages, replicas or schedule have the same
// segments, and those the same code.
std::vector<Compiled>& compiledBefore() {
  static std::vector<Compiled> all;
  return all;
}

// The code of `segments` among that of more; empty where it lacks one.
std::optional<codegen::CompiledKernels> codeOf(const std::vector<program::Segment>& segments,
                                               const Compiled& more) {
  std::vector<program::CompiledSegment> chosen;
  for (const program::Segment& segment : segments) {
    const auto found = std::find(more.segments.begin(), more.segments.end(), segment);
    if (found == more.segments.end()) return std::nullopt;
    chosen.push_back(more.kernels.segments[static_cast<size_t>(found - more.segments.begin())]);
  }
  codegen::CompiledKernels kernels = more.kernels;
  kernels.segments = std::move(chosen);
  return kernels;
}

Result<codegen::CompiledKernels> compileOnce(const std::vector<program::Segment>& segments,
                                             CodeFor target) {
  for (const Compiled& known : compiledBefore()) {
    if (known.target != target) continue;
    if (auto kernels = codeOf(segments, known)) return *std::move(kernels);
  }
  codegen::CodegenOptions options;
  options.epilogues = target == CodeFor::kHostInPlaceOfGpu;
  if (target == CodeFor::kGpu) options.gpus = *program::parseGpuTargets("cuda:sm_90");
  TRIREME_ASSIGN_OR_RETURN(codegen::CompiledKernels kernels,
                           codegen::compileSegments(segments, options));
  compiledBefore().push_back({segments, target, kernels});
  return kernels;
}

std::map<std::string, testing::EmulatedKernel> hostTwins(const codegen::CompiledKernels& kernels) {
  std::map<std::string, testing::EmulatedKernel> twins;
  if (kernels.sharedObject.empty()) return twins;
  const std::shared_ptr<void> handle(testing::loadSharedObject(kernels.sharedObject), dlclose);
  for (const program::CompiledSegment& segment : kernels.segments)
    for (const program::KernelCall& call : segment.calls) {
      if (call.kind != program::KernelCallKind::kGenerated) continue;
      const auto kernel =
          reinterpret_cast<program::GeneratedKernel>(dlsym(handle.get(), call.symbol.c_str()));
      twins[call.symbol] = testing::hostTwin(handle, kernel, call);
    }
  return twins;
}
#endif

Status addKernels(program::Bundle& bundle, const RunOptions& options) {
#if TRIREME_HAVE_MLIR
  const std::vector<program::Segment>& segments = bundle.program.segments;
  TRIREME_ASSIGN_OR_RETURN(
      codegen::CompiledKernels kernels,
      compileOnce(segments, options.gpu != nullptr ? CodeFor::kHostInPlaceOfGpu : CodeFor::kHost));
  if (options.gpu != nullptr) {
    if (testing::EmulatedGpu* gpu = testing::EmulatedGpu::instance(); gpu != nullptr)
      gpu->setGenerated(hostTwins(kernels));
    TRIREME_ASSIGN_OR_RETURN(kernels, compileOnce(segments, CodeFor::kGpu));
  }
  bundle.kernels = std::move(kernels.segments);
  bundle.sharedObject = std::move(kernels.sharedObject);
  bundle.ptx = std::move(kernels.ptx);
  bundle.cubins = std::move(kernels.cubins);
  bundle.target = std::move(kernels.target);
  return {};
#else
  static_cast<void>(options);
  return invalidArgument(bundle.name + ": this build has no code generator");
#endif
}

}  // namespace

Status compileTogether(const std::vector<ModelAndPlan>& runs) {
#if TRIREME_HAVE_MLIR
  std::vector<program::Segment> segments;
  expand::ExpandOptions options;
  options.tasks = false;
  for (const ModelAndPlan& run : runs) {
    TRIREME_ASSIGN_OR_RETURN(const expand::Expansion expansion,
                             expand::expand(run.model, run.plan, options));
    for (const program::Segment& segment : expansion.program.segments)
      if (std::find(segments.begin(), segments.end(), segment) == segments.end())
        segments.push_back(segment);
  }
  if (auto compiled = compileOnce(segments, CodeFor::kHost); !compiled)
    return std::move(compiled.error());
#else
  static_cast<void>(runs);
#endif
  return {};
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
  if (options.gpu != nullptr) bundle.target.arch = "cuda:sm_90";
  if (options.compiled) TRIREME_RETURN_IF_ERROR(addKernels(bundle, options));
  return bundle;
}

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
  sessionOptions.virtualRanks = options.gpu != nullptr && options.gpu->nccl == nullptr;
  sessionOptions.cudaGraphs = options.cudaGraphs;
  sessionOptions.faults = options.faults;
  TRIREME_ASSIGN_OR_RETURN(std::unique_ptr<runtime::Session> session,
                           runtime::Session::create(std::move(bundle), sessionOptions));
  SyntheticData synthetic(model.vocabSize);
  runtime::DataSource& data = options.data != nullptr ? *options.data : synthetic;
  for (int i = 0; i < options.steps; ++i) {
    TRIREME_ASSIGN_OR_RETURN(const runtime::StepResult step, session->step(data));
    result.losses.push_back(step.loss);
    result.gradNorms.push_back(step.gradNorm);
    if (step.scaled) result.scaled.push_back(*step.scaled);
    if (i == 0) result.firstGradients = session->gatherGradients();
  }
  result.parameters = session->gatherParameters();
  result.counters = session->counters();
  if (options.trace) result.trace = session->takeTrace();
  return result;
}

}  // namespace trireme::equivalence
