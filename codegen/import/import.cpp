#include "codegen/import/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/export/export.h"
#include "codegen/import/formats.h"
#include "codegen/import/words.h"
#include "ir/spec/shipped.h"
#include "ir/spec/suggestion.h"
#include "ir/spec/yaml_node.h"

namespace trireme::codegen {

namespace {

template <typename T>
Status compare(const std::optional<T>& asked, T said, const char* flag, const char* name) {
  if (!asked || *asked == said) return {};
  return invalidArgument(fmt::format("it says {} {}, but {} is {}", name, said, flag, *asked));
}

// What a file says itself, and an option says otherwise.
Status checkLaunch(const plan::Plan& plan, const LaunchOptions& launch) {
  TRIREME_RETURN_IF_ERROR(compare(launch.gpus, plan.numRanks(), "--gpus", "devices"));
  TRIREME_RETURN_IF_ERROR(compare(launch.tp, plan.tp, "--tp", "tensor parallel"));
  const spec::TrainingSpec& training = plan.training;
  TRIREME_RETURN_IF_ERROR(
      compare(launch.sequence, training.sequenceLength, "--seq", "a sequence of"));
  TRIREME_RETURN_IF_ERROR(compare(launch.batch, training.globalBatchSize, "--batch", "a batch of"));
  TRIREME_RETURN_IF_ERROR(
      compare(launch.microbatch, plan.microbatchSize, "--microbatch", "microbatch"));
  if (!launch.recompute || *launch.recompute == plan.recompute) return {};
  return invalidArgument(fmt::format("it says recompute {}, but --recompute is {}",
                                     plan::recomputeName(plan.recompute),
                                     plan::recomputeName(*launch.recompute)));
}

// What is no plan may be a file that is not known by its contents.
Result<plan::Plan> parseOwn(const std::string& text, const std::string& file) {
  Result<plan::Plan> plan = plan::parsePlan(text, file);
  const auto hasKey = [&](const char* key) {
    return text.find(fmt::format("\n{}:", key)) != std::string::npos;
  };
  if (plan.has_value() || hasKey("microbatch_size") || hasKey("layers") || hasKey("fingerprint"))
    return plan;
  if (text.find("distributed_type:") != std::string::npos)
    return Error(invalidArgument(
        fmt::format("{}: files of Accelerate are not read: give DeepSpeed's JSON if it names one "
                    "(deepspeed_config_file), or a plan of trireme",
                    file)));
  return Error(invalidArgument(fmt::format(
      "{}\nread as a plan of trireme, since it is no TOML of torchtitan (*.toml), no JSON of "
      "DeepSpeed (with \"zero_optimization\" or \"train_batch_size\"), and no command line or "
      "script of Megatron-LM (with --micro-batch-size); NeMo's recipes are not read",
      plan.error().message())));
}

}  // namespace

std::string whyNotAmong(const std::string& given, const std::vector<std::string>& choices,
                        const std::string& nearest, const std::vector<std::string>& unpriced) {
  const std::string value = spec::quoteForMessage(given);
  if (isIn(unpriced, given))
    return fmt::format("is {}, which cannot be priced; nearest: {}", value, nearest);
  return fmt::format("is {}{}", value, spec::suggestion(given, choices));
}

std::optional<Framework> frameworkOfFile(const std::string& text, const std::string& file) {
  const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
  const auto hasTable = [&](const char* name) {
    return text.starts_with(fmt::format("[{}]", name)) || has(fmt::format("\n[{}]", name).c_str());
  };
  const bool isToml = hasTable("training") && (hasTable("model") || hasTable("parallelism"));
  if (isToml || file.ends_with(".toml")) return Framework::kTorchtitan;
  const auto begins = [](const std::string& json) {
    const size_t begin = json.find_first_not_of(" \t\r\n");
    return begin != std::string::npos && json[begin] == '{';
  };
  if (begins(plainJson(text)) && (has("\"zero_optimization\"") || has("\"train_batch_size\"") ||
                                  has("\"train_micro_batch_size_per_gpu\"")))
    return Framework::kDeepspeed;
  if (has("--micro-batch-size")) return Framework::kMegatron;
  return std::nullopt;
}

Result<Imported> importPlan(Framework framework, const std::string& text, const std::string& file,
                            const spec::ModelSpec& model, const LaunchOptions& launch) {
  const auto import = framework == Framework::kMegatron     ? &importMegatron
                      : framework == Framework::kTorchtitan ? &importTorchtitan
                                                            : &importDeepspeed;
  TRIREME_ASSIGN_OR_RETURN(Imported imported, import(text, file, model, launch));
  imported.framework = framework;
  for (const Status& status :
       {checkLaunch(imported.plan, launch), plan::verifyPlan(imported.plan, model)})
    if (!status.ok()) return Error(status.withContext(file));
  return imported;
}

Result<Imported> readPlan(const std::string& text, const std::string& file,
                          const spec::ModelSpec& model, const LaunchOptions& launch) {
  const std::optional<Framework> framework = frameworkOfFile(text, file);
  if (text.starts_with("#!") && framework != Framework::kMegatron)
    return Error(invalidArgument(fmt::format(
        "{}: of scripts those with Megatron-LM's arguments are read (--micro-batch-size): give the "
        "file that this one writes or names, torchtitan's TOML or DeepSpeed's JSON",
        file)));
  if (framework) return importPlan(*framework, text, file, model, launch);
  Imported imported;
  TRIREME_ASSIGN_OR_RETURN(imported.plan, parseOwn(text, file));
  if (launch != LaunchOptions{})
    return Error(invalidArgument(fmt::format(
        "{}: a plan says all of it: leave out --gpus, --tp, --seq, --batch, --microbatch and "
        "--recompute",
        file)));
  return imported;
}

std::string setWidths(const Imported& imported, const std::string& file,
                      spec::StackProfile& stack) {
  const ParameterWidths& widths = imported.widths;
  spec::StackDescription& bytes = stack.description;
  const spec::StackDescription before = bytes;
  if (imported.framework == Framework::kMegatron) bytes.loaderMasks = imported.loaderMasks;
  if (!imported.compilesLoss && bytes.eagerLogitBytes > 0) bytes.logitBytes = bytes.eagerLogitBytes;
  bytes.gradientBytes = widths.gradient.value_or(bytes.gradientBytes);
  if (widths.gradient) {
    bytes.bf16GradientBytes = 0;
    // A step that holds something besides for all tensors at once goes on to.
    if (*widths.gradient < 4)
      bytes.stepGradientBytes = 4;
    else if (before.gradientBytes < 4)
      bytes.stepGradientBytes = 0;
  }
  // Other profiles say what the steps of theirs hold.
  const bool isDeepspeed = frameworkOfStack(stack.name) == Framework::kDeepspeed;
  if (widths.stepWork && isDeepspeed && bytes.stepGradientBytes > 0) {
    bytes.stepGradientsAtOnce =
        bytes.stepGradientsAtOnce * (1 + *widths.stepWork / bytes.stepGradientBytes);
    bytes.stepGradientBytes += *widths.stepWork;
  }
  // A profile of software that gathers fp8 has the width that it was compared with.
  const bool isCompared = widths.gatheredParameter && bytes.gathersF8;
  bytes.gathersF8 = widths.gathersF8.value_or(bytes.gathersF8);
  bytes.reducedGradientBytes = widths.reducedGradient.value_or(bytes.reducedGradientBytes);
  if (widths.gatheredParameter && !isCompared)
    bytes.gatheredParameterBytes = *widths.gatheredParameter;
  std::vector<std::string> differences;
  const auto compare = [&](const char* what, double now, double was) {
    if (now != was) differences.push_back(fmt::format("{} of {} B ({} B)", what, now, was));
  };
  compare("gradients", bytes.gradientBytes, before.gradientBytes);
  compare("reduced gradients", bytes.reducedGradientBytes, before.reducedGradientBytes);
  compare("gathered weights", bytes.gatheredParameterBytes, before.gatheredParameterBytes);
  if (widths.stepWork && isDeepspeed)
    compare("the optimizer's step", bytes.stepGradientBytes, before.stepGradientBytes);
  if (differences.empty()) return "";
  return fmt::format(
      "{}: it and the optimum are priced with what it sets a parameter, and stack '{}' (in "
      "parentheses) not: {}; plan files and exports do not say it",
      file, stack.name, fmt::join(differences, ", "));
}

// NeMo runs Megatron-Core, and a profile of the user's may be of the file's program.
static bool isOfProgram(const Imported& imported, const spec::StackProfile& stack) {
  const std::optional<Framework> framework = frameworkOfStack(stack.name);
  const bool isNemo = framework == Framework::kNemo && imported.framework == Framework::kMegatron;
  const bool isShipped = spec::findShipped(spec::ShippedKind::kStack, stack.name) != nullptr;
  return !stack.ownPrograms && (framework ? framework == imported.framework || isNemo : !isShipped);
}

std::vector<std::string> setOverlap(const Imported& imported, spec::StackProfile& stack) {
  std::vector<std::string> switches;
  const auto expose = [&](const std::string& missing, double& share) {
    if (missing.empty() || share >= 1) return;
    share = 1;
    if (switches.empty() || switches.back() != missing) switches.push_back(missing);
  };
  if (!isOfProgram(imported, stack)) return switches;
  if (imported.exposesTransfers) stack.description.transferExposed = 1;
  expose(imported.missing.gradients, stack.description.gradientExposed);
  expose(imported.missing.gathers, stack.description.gatherExposed);
  expose(imported.missing.tensors, stack.description.tensorParallelExposed);
  if (!imported.missing.tensors.empty()) stack.description.keepsLayerBuffers = false;
  return switches;
}

std::vector<std::string> notesOf(const Imported& imported, const std::string& file) {
  std::vector<std::string> notes;
  for (const std::string& note : imported.notes) notes.push_back(fmt::format("{}: {}", file, note));
  if (!imported.unpriced.empty())
    notes.push_back(fmt::format("{}: not known here and not counted: {}", file,
                                fmt::join(imported.unpriced, ", ")));
  return notes;
}

plan::Plan planFor(const spec::ModelSpec& model, const char* stack) {
  plan::Plan plan;
  plan.model = model.name;
  plan.fingerprint = plan::fingerprintOf(model);
  plan.stack = stack;
  return plan;
}

Status askFor(const std::string& file, const std::vector<std::string>& missing) {
  if (missing.empty()) return {};
  return invalidArgument(
      fmt::format("{} does not say {}: give what it leaves to the launcher or the script", file,
                  fmt::join(missing, "; nor ")));
}

}  // namespace trireme::codegen
