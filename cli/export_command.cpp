// trireme export: a plan in the words of the program that is to run it.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output/tell.h"
#include "cli/paths.h"
#include "cli/write_file.h"
#include "codegen/export/export.h"
#include "ir/plan/choices.h"
#include "ir/plan/plan.h"
#include "ir/spec/load.h"
#include "ir/spec/shipped.h"
#include "planner/answer/check.h"

namespace trireme::cli {
namespace {

using codegen::Framework;
using codegen::Launcher;

// A framework, or a launcher of one.
enum class Target : uint8_t {
  kMegatron,
  kNemo,
  kTorchtitan,
  kDeepspeed,
  kAccelerate,
  kSlurm,
  kMpirun
};

std::string_view targetName(Target target) {
  if (target == Target::kSlurm) return "slurm";
  if (target == Target::kMpirun) return "mpirun";
  return codegen::frameworkName(static_cast<Framework>(target));
}

struct Options {
  std::string plan, model, stack, output;
  std::optional<Target> target;
  std::optional<Framework> framework;
  std::optional<int64_t> devicesPerNode;
  codegen::ExportOptions values;
};

Result<spec::ModelSpec> loadModelOf(const Options& options, const plan::Plan& plan) {
  if (!options.model.empty()) return spec::loadModel(options.model);
  if (spec::findShipped(spec::ShippedKind::kModel, plan.model)) return spec::loadModel(plan.model);
  return Error(invalidArgument(fmt::format(
      "{}: the plan is for model '{}', which is not shipped: give its file with --model",
      options.plan, plan.model)));
}

// What torchtitan's file, fp8 and Megatron's gradients have to say of the software, by --stack or
// by the shipped profile of the plan.
Status readStack(const plan::Plan& plan, Framework framework, Options& options) {
  const bool isMegatron = framework == Framework::kMegatron || framework == Framework::kNemo;
  const bool isNeeded = framework == Framework::kTorchtitan ||
                        framework == Framework::kAccelerate ||
                        plan.training.precision == spec::Precision::kFp8 ||
                        (isMegatron && plan.training.precision != spec::Precision::kFp32);
  if (!isNeeded && options.stack.empty()) return {};
  TRIREME_ASSIGN_OR_RETURN(const spec::StackProfile stack,
                           planner::stackFor(plan, options.plan, options.stack));
  if (stack.name != plan.stack)
    return invalidArgument(fmt::format("{}: the plan is for stack '{}', but --stack is '{}'",
                                       options.plan, plan.stack, stack.name));
  setStack(stack, options.values);
  return {};
}

bool isLauncher(Target target) { return target >= Target::kSlurm; }

Status checkFramework(const Options& options) {
  if (!options.framework || isLauncher(*options.target)) return {};
  return invalidArgument(
      "--framework says what slurm or mpirun launches: leave it out, or give --to slurm");
}

// Of a launcher without --framework what the plan was made for.
Result<Framework> frameworkOf(const Options& options, const plan::Plan& plan) {
  if (!isLauncher(*options.target)) return static_cast<Framework>(*options.target);
  if (options.framework) return *options.framework;
  if (const auto own = codegen::frameworkOfStack(plan.stack)) return *own;
  return Error(invalidArgument(
      fmt::format("{}: the plan is for stack '{}', which {} cannot launch: say what it shall with "
                  "--framework megatron, nemo, torchtitan, deepspeed or accelerate",
                  options.plan, plan.stack, targetName(*options.target))));
}

// A number of devices per node with which there are as many ranks on every node, near the one that
// was asked for.
int64_t nearestNode(plan::Plan plan) {
  const int64_t asked = plan.devicesPerHost;
  for (int64_t away = 1; away < asked; ++away)
    for (const int64_t node : {asked - away, asked + away}) {
      plan.devicesPerHost = node;
      if (plan::ranksPerHost(plan)) return node;
    }
  return 1;
}

Status checkNode(const plan::Plan& plan, const Options& options) {
  if (!options.devicesPerNode || plan::ranksPerHost(plan)) return {};
  return invalidArgument(fmt::format(
      "--gpus-per-node {}: {} ranks with tp {} are not as many on every node; nearest: {}",
      *options.devicesPerNode, plan.numRanks(), plan.tp, nearestNode(plan)));
}

// `planned`: what the plan says itself.
void noteNode(const plan::Plan& planned, const plan::Plan& plan) {
  if (plan.numRanks() == 1) return;
  if (plan.devicesPerHost == 0)
    tell("note: nodes of {} devices: the plan does not say it (--gpus-per-node)\n",
         plan::kUsualHost);
  const auto before = plan::ranksPerHost(planned), now = plan::ranksPerHost(plan);
  if (planned.devicesPerHost == 0 || before == now) return;
  const int64_t most = before.value_or(planned.devicesPerHost);
  const bool isParted = *now % plan.tp != 0 && most % plan.tp == 0;
  fmt::print(
      stderr,
      "note: the plan was made for nodes of {} devices: with {} ranks on each of {} nodes its "
      "step takes another time than was predicted{}\n",
      planned.devicesPerHost, *now, plan.numRanks() / *now,
      isParted ? fmt::format(", a longer one, for groups of tp {} lie across nodes", plan.tp) : "");
}

// What is predicted is not always what runs.
void noteStack(const plan::Plan& plan, Framework framework) {
  if (codegen::isOf(plan.stack, framework)) return;
  tell(
      "note: the plan was made for stack '{}': the times predicted for it are not those of "
      "{}\n",
      plan.stack, codegen::infoOf(framework).title);
}

// Files say one, which is the plan's.
void noteLearningRate(const spec::TrainingSpec& training) {
  if (training.warmupSteps > 0 || training.decaySteps > 0) return;
  tell(
      "note: the plan's training has a learning rate of {} throughout, without warm-up and "
      "decay: rate, schedule and weight decay are yours to set (plan --train)\n",
      training.learningRate);
}

Launcher launcherOf(Target target) {
  if (target == Target::kSlurm) return Launcher::kSlurm;
  return target == Target::kMpirun ? Launcher::kMpirun : Launcher::kTorchrun;
}

Result<int> runExport(Options options) {
  TRIREME_RETURN_IF_ERROR(checkOutputs(
      {{"the plan", options.plan}, {"--model", options.model}, {"--stack", options.stack}},
      {{"-o", options.output}}));
  TRIREME_RETURN_IF_ERROR(checkWritable(options.output));
  TRIREME_RETURN_IF_ERROR(checkFramework(options));
  TRIREME_ASSIGN_OR_RETURN(const plan::Plan planned, plan::loadPlan(options.plan));
  plan::Plan plan = planned;
  if (options.devicesPerNode) plan.devicesPerHost = *options.devicesPerNode;
  TRIREME_ASSIGN_OR_RETURN(const Framework framework, frameworkOf(options, plan));
  TRIREME_ASSIGN_OR_RETURN(const spec::ModelSpec model, loadModelOf(options, plan));
  if (const Status status = plan::verifyPlan(plan, model); !status.ok())
    return Error(status.withContext(options.plan));
  TRIREME_RETURN_IF_ERROR(readStack(plan, framework, options));
  TRIREME_RETURN_IF_ERROR(checkNode(plan, options));
  std::vector<codegen::Misfit> misfits = misfitsOf(plan, model, framework);
  for (codegen::Misfit& misfit : misfitsOf(plan, model, options.values.settings, framework))
    misfits.push_back(std::move(misfit));
  if (const Status status = statusOf(misfits, framework); !status.ok()) {
    std::string message = fmt::format("{}: {}", options.plan, status.message());
    if (misfitsOf(model, plan.training, framework).empty())  // whatever the plan
      message += fmt::format("; 'trireme plan --for {}' finds the best plan that it can express",
                             codegen::frameworkName(framework));
    return Error(invalidArgument(message));
  }
  TRIREME_ASSIGN_OR_RETURN(const codegen::Exported exported,
                           exportPlan(plan, model, framework, options.values));
  noteNode(planned, plan);
  noteStack(plan, framework);
  noteLearningRate(plan.training);
  for (const std::string& note : exported.notes) tell("note: {}\n", note);
  const std::string text = printExport(exported, plan, framework, launcherOf(*options.target));
  if (options.output.empty())
    fmt::print("{}", text);
  else
    TRIREME_RETURN_IF_ERROR(writeFile(options.output, text));
  return kExitOk;
}

Action addExportPlan(CLI::App& app) {
  auto options = std::make_shared<Options>();
  addPath(app, "PLAN", &options->plan, "", "Plan: of `trireme plan -o`, or written by hand")
      ->required();
  addChoice(app, "--to", &options->target, targetName, Target::kMpirun,
            "The program that is to run it, or what launches that")
      ->required();
  addPath(app, "--model", &options->model, "NAME|FILE",
          "Its model (default: the shipped one of the name in the plan)");
  addPath(app, "--stack", &options->stack, "NAME|FILE",
          "Its profile (default: the shipped one of the name in the plan)");
  addChoice(app, "--framework", &options->framework, codegen::frameworkName, Framework::kAccelerate,
            "What slurm or mpirun launches (default: by the plan's stack)");
  addCount(app, "--gpus-per-node", &options->devicesPerNode,
           "Devices of a node (default: of the plan's cluster, or 8)");
  addCount(app, "--steps", &options->values.steps,
           "Steps of the whole training (default: warmup + decay)");
  addPath(app, "-o,--output", &options->output, "FILE", "Write it here (default: stdout)");
  return [options] { return runExport(*options); };
}

}  // namespace

const Command kExportCommand = {
    "export", "Write a plan for Megatron-LM, NeMo, torchtitan or DeepSpeed",
    "trireme export plan.yaml --to megatron -o pretrain.sh\n"
    "  trireme export plan.yaml --to slurm --framework torchtitan -o job.sh",
    addExportPlan};

}  // namespace trireme::cli
