// trireme compile: from a model and a plan to a bundle that `trireme run` executes.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "cli/code_generator.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/compile_report.h"
#include "cli/flags.h"
#include "cli/output/json_text.h"
#include "cli/output/progress.h"
#include "cli/paths.h"
#include "cli/run/interrupt.h"
#include "cli/simulate.h"
#include "cli/write_file.h"
#include "ir/expand/buildable.h"
#include "ir/expand/expand.h"
#include "ir/graph/graph.h"
#include "ir/plan/plan.h"
#include "ir/program/bundle.h"
#include "ir/program/verify.h"
#include "ir/spec/load.h"
#include "planner/answer/check.h"
#include "planner/plan_text.h"
#include "runtime/device/cuda/op_launch.h"

namespace trireme::cli {
namespace {

struct CompileOptions {
  std::string model, plan, output, dumpFolder;
  std::string target = "host";
  SimulateOptions simulate;
  bool json = false;
};

// Writes the model graph, beside which codegen puts its phases.
Status dumpModel(const codegen::Generator& generator, const std::string& folder,
                 const spec::ModelSpec& model, const plan::Plan& plan) {
  if (folder.empty()) return {};
  TRIREME_RETURN_IF_ERROR(createFolder(folder).withContext("--dump-ir"));
  return writeFile(folder + "/model.mlir",
                   generator.printModelGraph(graph::buildGraph(
                       model, plan.training, plan.microbatchSize, plan::paddedVocab(plan, model))));
}

// Whether GPUs have the library kernels that are called.
// kInvalidArgument: an op that has no kernel on GPUs, or not for its types.
Status checkLibraryCalls(const CompileOptions& options, const program::Bundle& bundle) {
  for (size_t i = 0; i < bundle.kernels.size(); ++i)
    for (const program::KernelCall& call : bundle.kernels[i].calls) {
      const program::Segment& segment = bundle.program.segments[i];
      if (call.kind == program::KernelCallKind::kLibrary)
        TRIREME_RETURN_IF_ERROR(
            runtime::cuda::checkOp(call.op, segment.operands)
                .withContext("--target " + options.target + ": segment " + segment.name));
    }
  return {};
}

// Whether there is such a target, asked before anything is done for it.
Status checkTarget(const CompileOptions& options) {
  if (options.target == "host") return {};
  const auto targets = program::parseGpuTargets(options.target);
  if (targets.has_value()) return {};
  const std::string& why = targets.error().message();
  const bool namesGpus = options.target.find("cuda:") != std::string::npos;
  if (namesGpus) return invalidArgument("--target: " + why);
  return invalidArgument(fmt::format("--target: {}, and host, this machine's processor", why));
}

// Fills in the kernels, their code and the target, and dumps what --dump-ir asks for.
// Errors: loadCodeGenerator, writeFile, codegen::compileSegments.
Status compileKernels(const CompileOptions& options, const spec::ModelSpec& model,
                      const plan::Plan& plan, program::Bundle& bundle) {
  TRIREME_ASSIGN_OR_RETURN(const codegen::Generator* const generator, loadCodeGenerator());
  const bool forHost = options.target == "host";
  TRIREME_RETURN_IF_ERROR(dumpModel(*generator, options.dumpFolder, model, plan));
  codegen::CodegenOptions codegen;
  codegen.dumpIrFolder = options.dumpFolder;
  if (!forHost) {
    TRIREME_ASSIGN_OR_RETURN(codegen.gpus, program::parseGpuTargets(options.target));
  }
  TRIREME_ASSIGN_OR_RETURN(codegen::CompiledKernels kernels,
                           generator->compileSegments(bundle.program.segments, codegen));
  bundle.kernels = std::move(kernels.segments);
  bundle.sharedObject = std::move(kernels.sharedObject);
  bundle.ptx = std::move(kernels.ptx);
  bundle.cubins = std::move(kernels.cubins);
  bundle.target = std::move(kernels.target);
  return forHost ? Status() : checkLibraryCalls(options, bundle);
}

// The expansion of a plan that a user may have written; the plan's file is named in errors.
Result<expand::Expansion> expandPlan(const spec::ModelSpec& model, const plan::Plan& plan,
                                     const CompileOptions& options) {
  const std::string& path = options.plan;
  TRIREME_RETURN_IF_ERROR(plan::verifyPlan(plan, model).withContext(path));
  TRIREME_RETURN_IF_ERROR(planner::checkNamedStack(plan, path, model, options.simulate.stack));
  TRIREME_RETURN_IF_ERROR(expand::checkBuildable(plan).withContext(path));
  TRIREME_ASSIGN_OR_RETURN(expand::Expansion expansion, expand::expand(model, plan));
  // A legal plan expands to a correct program: anything else is our mistake.
  if (const Status status = program::verifyProgram(expansion.program); !status.ok())
    return Error(internalError(status.message()));
  return expansion;
}

Status checkPaths(const CompileOptions& options) {
  TRIREME_RETURN_IF_ERROR(checkOutputs({{"--model", options.model},
                                        {"--plan", options.plan},
                                        {"--cluster", options.simulate.cluster},
                                        {"--stack", options.simulate.stack}},
                                       {{"-o", options.output, true},
                                        {"--simulate", options.simulate.trace},
                                        {"--dump-ir", options.dumpFolder}}));
  TRIREME_RETURN_IF_ERROR(checkWritable(options.simulate.trace));
  return program::checkReplaceable(options.output);
}

Result<int> runCompile(const CompileOptions& options) {
  TRIREME_RETURN_IF_ERROR(checkTarget(options));
  TRIREME_RETURN_IF_ERROR(checkPaths(options));
  const auto start = std::chrono::steady_clock::now();
  Progress progress;
  TRIREME_ASSIGN_OR_RETURN(const spec::ModelSpec model, spec::loadModel(options.model));
  TRIREME_ASSIGN_OR_RETURN(const plan::Plan plan, plan::loadPlan(options.plan));
  TRIREME_ASSIGN_OR_RETURN(expand::Expansion expansion, expandPlan(model, plan, options));
  progress.update(0.2, "programs proved safe");
  TRIREME_ASSIGN_OR_RETURN(const std::optional<Seconds> simulated,
                           simulateStep(options.simulate, plan, expansion.program));
  progress.update(0.4, "generating kernels");

  program::Bundle bundle;
  bundle.name = model.name;
  bundle.program = std::move(expansion.program);
  bundle.planText = plan::printPlan(plan);
  bundle.summary = planner::summary(plan);
  bundle.modelText = spec::printModel(model);
  TRIREME_RETURN_IF_ERROR(compileKernels(options, model, plan, bundle));
  progress.update(0.9, "writing the bundle");
  {
    const Interrupt interrupt;  // waits until all is written, and nothing half written is left
    TRIREME_RETURN_IF_ERROR(program::writeBundle(bundle, options.output));
  }
  progress.clear();

  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const CompileReport report = {options.output, Seconds(elapsed.count()), simulated};
  if (options.json)
    fmt::print("{}\n", jsonText(compileJson(bundle, report)));
  else
    fmt::print("{}", compileText(bundle, report));
  return kExitOk;
}

Action addCompile(CLI::App& app) {
  auto options = std::make_shared<CompileOptions>();
  addPath(app, "--model", &options->model, "NAME|FILE", "The model that the plan was made for")
      ->required();
  addPath(app, "--plan", &options->plan, "FILE", "Plan: of `trireme plan`, or written by hand")
      ->required();
  addPath(app, "-o,--output", &options->output, "BUNDLE",
          "Folder to write; replaces an older bundle or an empty folder")
      ->required();
  app.add_option("--target", options->target,
                 "What runs it: host, or GPUs of sm_80, sm_90, sm_90a: cuda:sm_80,sm_90")
      ->type_name("TARGET");
  addPath(app, "--dump-ir", &options->dumpFolder, "DIR",
          "Write the model graph and the IR after each phase here");
  app.add_flag("--json", options->json, "Print what was written as JSON");
  const std::string simulation = "Simulation";
  CLI::Option* cluster = addPath(app, "--cluster", &options->simulate.cluster, "NAME|FILE",
                                 "Simulate the step on this cluster, which must have the memory");
  cluster->group(simulation);
  addPath(app, "--stack", &options->simulate.stack, "NAME|FILE", "Its software stack")
      ->needs(cluster)
      ->group(simulation);
  addPath(app, "--simulate", &options->simulate.trace, "FILE",
          "Write the simulated step as a Perfetto trace")
      ->needs(cluster)
      ->group(simulation);
  return [options] { return runCompile(*options); };
}

}  // namespace

const Command kCompileCommand = {"compile", "Lower a plan to one program per rank",
                                 "trireme compile --model gpt.yaml --plan plan.yaml -o gpt.bundle",
                                 addCompile};

}  // namespace trireme::cli
