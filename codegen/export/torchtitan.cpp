// Keys: torchtitan/config/job_config.py of v0.2.2, the last release that reads TOML.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/export/formats.h"

namespace trireme::codegen {
namespace {

using plan::Plan;
using plan::ScheduleKind;
using plan::StateSharding;

// TOML tells 1 and 1.0 apart.
std::string real(double value) {
  const std::string text = number(value);
  return text.find_first_of(".eni") == std::string::npos ? text + ".0" : text;
}

std::string modelSection(const Plan& plan, const spec::ModelSpec& model,
                         const spec::StackSettings& settings) {
  std::string text =
      fmt::format("[model]\nname = \"llama3\"\nflavor = \"{}\"\n", torchtitanFlavor(model));
  if (plan.training.precision != spec::Precision::kFp8) return text + "\n";
  const bool isRowwise = settings.fp8 == spec::Fp8Recipe::kRowwise;
  return text + fmt::format(
                    "converters = [\"quantize.linear.float8\"]\n\n"
                    "[quantize.linear.float8]\nrecipe_name = \"{}\"\n"
                    "filter_fqns = [\"output\"]\n\n",
                    isRowwise ? "rowwise" : "tensorwise");
}

std::string optimizerSections(const spec::TrainingSpec& t) {
  return fmt::format(
      "[optimizer]\nname = \"AdamW\"\nlr = {}\nbeta1 = {}\nbeta2 = {}\neps = {}\n"
      "weight_decay = {}\n\n"
      "[lr_scheduler]\nwarmup_steps = {}\ndecay_type = \"cosine\"\n{}min_lr_factor = {}\n\n",
      real(t.learningRate), real(t.beta1), real(t.beta2), real(t.epsilon), real(t.weightDecay),
      t.warmupSteps, t.decaySteps > 0 ? "" : "decay_ratio = 0.0\n",
      real(t.minLearningRate / t.learningRate));
}

// With a pipeline the batch of a replica goes through it at once; without, one microbatch.
std::string trainingSection(const Plan& plan, const ExportOptions& options) {
  const spec::TrainingSpec& t = plan.training;
  const int64_t local = plan.pp > 1 ? t.globalBatchSize / plan.dp() : plan.microbatchSize;
  std::string text = fmt::format(
      "[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\nmax_norm = {}\n",
      local, t.globalBatchSize, t.sequenceLength, t.clipNorm > 0 ? real(t.clipNorm) : "inf");
  if (const std::optional<int64_t> steps = numSteps(plan, options))
    text += fmt::format("steps = {}\n", *steps);
  return text +
         fmt::format("mixed_precision_param = \"{}\"\nmixed_precision_reduce = \"float32\"\n\n",
                     t.precision == spec::Precision::kFp32 ? "float32" : "bfloat16");
}

std::string compileSection(const spec::StackSettings& settings) {
  if (!settings.compiled) return "[compile]\nenable = false\n\n";
  return "[compile]\nenable = true\ncomponents = [\"model\", \"loss\"]\n\n";
}

std::string stagesText(const Plan& plan) {
  const std::vector<plan::LayerRange> stages = virtualStageLayers(plan);
  std::string text = "module_fqns_per_model_part = [\n";
  for (size_t i = 0; i < stages.size(); ++i) {
    std::vector<std::string> modules;
    if (i == 0) modules.emplace_back("\"tok_embeddings\"");
    for (int64_t layer = stages[i].first; layer < stages[i].first + stages[i].count; ++layer)
      modules.push_back(fmt::format("\"layers.{}\"", layer));
    if (i + 1 == stages.size()) {
      modules.emplace_back("\"norm\"");
      modules.emplace_back("\"output\"");
    }
    text += fmt::format("  [{}],\n", fmt::join(modules, ", "));
  }
  return text + "]\n";
}

std::string_view scheduleText(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGpipe:
      return "GPipe";
    case ScheduleKind::k1F1B:
      return "1F1B";
    case ScheduleKind::kInterleaved:
      return "Interleaved1F1B";
    case ScheduleKind::kZeroBubbleH1:
    case ScheduleKind::kZeroBubbleH2:
      break;
  }
  checkFailed("the schedule is one of torchtitan's choices", __FILE__, __LINE__);
}

// Under a pipeline the default gathers once per step.
const char* reshardText(const Plan& plan) {
  if (plan.stateSharding == StateSharding::kGradients) return "never";
  return plan.pp > 1 ? "default" : "always";
}

std::string parallelismSection(const Plan& plan, const spec::StackSettings& settings) {
  std::string text = fmt::format(
      "[parallelism]\ndata_parallel_replicate_degree = {}\ndata_parallel_shard_degree = {}\n",
      plan.dpReplicate, plan.dpShard);
  if (plan.stateSharding != StateSharding::kNone)
    text += fmt::format("fsdp_reshard_after_forward = \"{}\"\n", reshardText(plan));
  text += fmt::format("tensor_parallel_degree = {}\n", plan.tp);
  if (settings.asyncTensorParallel && mayShareIsland(plan))
    text += "enable_async_tensor_parallel = true\n";
  text += fmt::format("pipeline_parallel_degree = {}\n", plan.pp);
  if (plan.pp > 1)
    text += fmt::format(
        "pipeline_parallel_schedule = \"{}\"\npipeline_parallel_microbatch_size = {}\n{}",
        scheduleText(plan.schedule), plan.microbatchSize, stagesText(plan));
  return text + fmt::format("context_parallel_degree = {}\n\n", plan.cp);
}

}  // namespace

Exported toTorchtitan(const Plan& plan, const spec::ModelSpec& model,
                      const ExportOptions& options) {
  Exported exported;
  exported.fileName = "plan.toml";
  exported.command = {"-m", "torchtitan.train", "--job.config_file", exported.fileName};
  exported.text =
      modelSection(plan, model, options.settings) + optimizerSections(plan.training) +
      trainingSection(plan, options) + compileSection(options.settings) +
      fmt::format("[debug]\nseed = {}\n\n", plan.training.seed) +
      parallelismSection(plan, options.settings) +
      fmt::format("[activation_checkpoint]\nmode = \"{}\"\n", plan::recomputeName(plan.recompute));
  if (plan.recompute == plan::Recompute::kSelective)
    exported.text += "selective_ac_option = \"op\"\n";
  exported.notes.push_back(
      "for torchtitan v0.2.2, the last release that reads TOML: since pull request 2386 (commit "
      "9810191b, February 2026) it takes --module and --config, and these values belong into such "
      "a config");
  exported.notes.push_back(
      "data, tokenizer and checkpoints are yours: training.dataset, model.hf_assets_path, "
      "[checkpoint]");
  if (model.ropeScaling == RopeScaling{})
    exported.notes.push_back(
        "torchtitan scales the rotary positions of every Llama 3 as Llama 3.1 does; the plan's "
        "model "
        "has no rope_scaling");
  if (!numSteps(plan, options))
    exported.notes.push_back("the plan has no number of steps: give --steps or training.steps");
  return exported;
}

}  // namespace trireme::codegen
