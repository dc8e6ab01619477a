#include "codegen/import/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/import/formats.h"

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

}  // namespace

std::optional<ForeignFormat> foreignFormat(const std::string& text, const std::string& file) {
  const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
  if (file.ends_with(".toml")) return ForeignFormat::kTorchtitan;
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string::npos && text[begin] == '{' &&
      (has("\"zero_optimization\"") || has("\"train_batch_size\"") ||
       has("\"train_micro_batch_size_per_gpu\"")))
    return ForeignFormat::kDeepspeed;
  if (has("--micro-batch-size")) return ForeignFormat::kMegatron;
  return std::nullopt;
}

Result<Imported> importPlan(ForeignFormat format, const std::string& text, const std::string& file,
                            const spec::ModelSpec& model, const LaunchOptions& launch) {
  const auto importFormat = format == ForeignFormat::kMegatron     ? &importMegatron
                            : format == ForeignFormat::kTorchtitan ? &importTorchtitan
                                                                   : &importDeepspeed;
  TRIREME_ASSIGN_OR_RETURN(Imported imported, importFormat(text, file, model, launch));
  for (const Status& status :
       {checkLaunch(imported.plan, launch), plan::verifyPlan(imported.plan, model)})
    if (!status.ok()) return Error(status.withContext(file));
  return imported;
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
