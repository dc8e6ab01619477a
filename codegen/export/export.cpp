#include "codegen/export/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codegen/export/formats.h"
#include "codegen/export/loss_scale.h"
#include "ir/plan/choices.h"

namespace trireme::codegen {
namespace {

Exported write(const plan::Plan& plan, const spec::ModelSpec& model, Framework framework,
               const ExportOptions& options) {
  switch (framework) {
    case Framework::kMegatron:
      return toMegatron(plan, model, options);
    case Framework::kNemo:
      return toNemo(plan, model, options);
    case Framework::kTorchtitan:
      return toTorchtitan(plan, model, options);
    case Framework::kDeepspeed:
      return toDeepspeed(plan, model, options);
    case Framework::kAccelerate:
      return toAccelerate(plan, model, options);
  }
  return {};
}

// torchtitan's decay ends with the training.
std::vector<Misfit> torchtitanSettings(const spec::TrainingSpec& t, const ExportOptions& options) {
  const int64_t scheduled = t.warmupSteps + t.decaySteps;
  if (t.decaySteps == 0 || !options.steps || *options.steps == scheduled) return {};
  return {{fmt::format("{} steps with a decay that ends at step {}", *options.steps, scheduled),
           fmt::format("{} steps", scheduled)}};
}

// initialize.py refuses a seed that is not positive, and numpy one beyond 32 bits;
// optimizer_param_scheduler.py a warm-up that does not end before the schedule, which without a
// decay is the training.
std::vector<Misfit> megatronSettings(const spec::TrainingSpec& t, const ExportOptions& options) {
  constexpr uint64_t kMostSeed = 0xffffffff;
  std::vector<Misfit> misfits;
  if (t.seed < 1 || t.seed > kMostSeed)
    misfits.push_back({fmt::format("seed {}", t.seed),
                       fmt::format("seed {}", std::clamp<uint64_t>(t.seed, 1, kMostSeed))});
  if (t.decaySteps == 0 && t.warmupSteps > 0 && options.steps && *options.steps <= t.warmupSteps)
    misfits.push_back({fmt::format("{} steps with a warm-up of {}", *options.steps, t.warmupSteps),
                       fmt::format("{} steps", t.warmupSteps + 1)});
  return misfits;
}

// What stands in the way besides the layout.
std::vector<Misfit> settingMisfits(const plan::Plan& plan, Framework framework,
                                   const ExportOptions& options) {
  switch (framework) {
    case Framework::kMegatron:
    case Framework::kNemo:
      return megatronSettings(plan.training, options);
    case Framework::kTorchtitan:
      return torchtitanSettings(plan.training, options);
    case Framework::kDeepspeed:
    case Framework::kAccelerate:
      break;
  }
  return {};
}

constexpr const char* kExpandable = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";

// Of frameworks whose file has no number of steps.
void noteSteps(Framework framework, const ExportOptions& options, Exported& exported) {
  const bool isInScript = framework == Framework::kDeepspeed || framework == Framework::kAccelerate;
  if (isInScript && options.steps)
    exported.notes.push_back(
        fmt::format("--steps {} is not in {}: your script says how long it trains", *options.steps,
                    exported.fileName));
}

void noteLossScale(const spec::TrainingSpec& t, Exported& exported) {
  const std::string planned =
      hasFixedLossScale(t) ? fmt::format("by {} all the time", t.initialLossScale)
                           : fmt::format("from {} with a window of {} steps down to {}",
                                         t.initialLossScale, t.lossScaleWindow, t.minLossScale);
  exported.notes.push_back("the loss is scaled as the program does it by itself, not " + planned);
}

}  // namespace

Nodes nodesOf(const plan::Plan& plan) {
  const auto ranks = plan::ranksPerHost(plan);
  TRIREME_CHECK(ranks.has_value());
  return {plan.numRanks() / *ranks, *ranks};
}

std::optional<int64_t> numSteps(const plan::Plan& plan, const ExportOptions& options) {
  if (options.steps) return options.steps;
  if (plan.training.decaySteps == 0) return std::nullopt;
  return plan.training.warmupSteps + plan.training.decaySteps;
}

std::string number(double value) { return std::isinf(value) ? "inf" : fmt::format("{}", value); }

std::string quoted(const std::string& word) {
  const std::string kSpecial = " \t\"'\\$`|&;<>()[]{}*?!#~";
  if (!word.empty() && word.find_first_of(kSpecial) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string inScript(const spec::TrainingSpec& t) {
  return fmt::format(
      "seed and dropout are your script's: the plan has seed {}, dropout {} of embeddings, {} of "
      "attention, {} of the residual stream",
      t.seed, t.embeddingDropout, t.attentionDropout, t.residualDropout);
}

std::vector<plan::LayerRange> virtualStageLayers(const plan::Plan& plan) {
  std::vector<plan::LayerRange> stages;
  for (size_t chunk = 0; chunk < static_cast<size_t>(plan.virtualStages); ++chunk)
    for (const std::vector<plan::LayerRange>& stage : plan.layers) stages.push_back(stage[chunk]);
  return stages;
}

Result<Exported> exportPlan(const plan::Plan& plan, const spec::ModelSpec& model,
                            Framework framework, const ExportOptions& options) {
  std::vector<Misfit> misfits = misfitsOf(plan, model, framework);
  for (Misfit& misfit : settingMisfits(plan, framework, options)) misfits.push_back(misfit);
  for (Misfit& misfit : misfitsOf(plan, model, options.settings, framework))
    misfits.push_back(misfit);
  TRIREME_RETURN_IF_ERROR(statusOf(misfits, framework));
  Exported exported = write(plan, model, framework, options);
  // Else fragments take memory that is not in the plan (NVIDIA-NeMo/Megatron-Bridge#3107).
  exported.environment.push_back(kExpandable);
  if (framework == Framework::kDeepspeed)
    exported.notes.push_back(
        fmt::format("run it with {}: fragments take memory else", kExpandable));
  noteSteps(framework, options, exported);
  // Whose files say how losses are scaled.
  const bool isSaid = framework == Framework::kMegatron || framework == Framework::kDeepspeed;
  if (plan.training.precision == spec::Precision::kFp16 && !isSaid)
    noteLossScale(plan.training, exported);
  return exported;
}

}  // namespace trireme::codegen
