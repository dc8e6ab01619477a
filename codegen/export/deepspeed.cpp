// Keys: docs/_pages/config-json.md of DeepSpeed, commit 00376da4; parameters of the schedulers:
// deepspeed/runtime/lr_schedules.py, commit 22779f2c.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "codegen/export/formats.h"
#include "codegen/export/loss_scale.h"

namespace trireme::codegen {
namespace {

using Json = nlohmann::ordered_json;

Json schedulerOf(const spec::TrainingSpec& t) {
  if (t.decaySteps > 0)
    return {{"type", "WarmupCosineLR"},
            {"params",
             {{"total_num_steps", t.warmupSteps + t.decaySteps},
              {"warmup_min_ratio", 0.0},
              {"warmup_num_steps", t.warmupSteps},
              {"cos_min_ratio", t.minLearningRate / t.learningRate},
              {"warmup_type", "linear"}}}};
  return {{"type", "WarmupLR"},
          {"params",
           {{"warmup_min_lr", 0.0},
            {"warmup_max_lr", t.learningRate},
            {"warmup_num_steps", t.warmupSteps},
            {"warmup_type", "linear"}}}};
}

// Hysteresis: how many overflows it takes to halve the scale.
Json fp16Of(const spec::TrainingSpec& t) {
  if (t.precision != spec::Precision::kFp16) return {{"enabled", false}};
  if (hasFixedLossScale(t)) return {{"enabled", true}, {"loss_scale", t.initialLossScale}};
  return {{"enabled", true},
          {"loss_scale", 0},
          {"initial_scale_power", std::ilogb(t.initialLossScale)},
          {"loss_scale_window", t.lossScaleWindow},
          {"hysteresis", 1},
          {"min_loss_scale", static_cast<int64_t>(t.minLossScale)}};
}

// On one rank ZeRO shards nothing, but keeps bf16 off an optimizer with gradients in f32.
int stageOf(const plan::Plan& plan) {
  const bool isBf16 = plan.training.precision == spec::Precision::kBf16;
  return std::max(static_cast<int>(plan.stateSharding), isBf16 ? 1 : 0);
}

}  // namespace

Exported toDeepspeed(const plan::Plan& plan, const spec::ModelSpec&, const ExportOptions&) {
  const spec::TrainingSpec& t = plan.training;
  Json json = {{"train_batch_size", t.globalBatchSize},
               {"train_micro_batch_size_per_gpu", plan.microbatchSize},
               {"gradient_accumulation_steps", plan.numMicrobatches()},
               {"gradient_clipping", t.clipNorm},
               {"zero_optimization", {{"stage", stageOf(plan)}}}};
  if (plan.stateSharding != plan::StateSharding::kNone)
    json["zero_optimization"]["overlap_comm"] = true;
  json["bf16"] = {{"enabled", t.precision == spec::Precision::kBf16}};
  json["fp16"] = fp16Of(t);
  json["optimizer"] = {{"type", "AdamW"},
                       {"params",
                        {{"lr", t.learningRate},
                         {"betas", {t.beta1, t.beta2}},
                         {"eps", t.epsilon},
                         {"weight_decay", t.weightDecay}}}};
  if (t.warmupSteps > 0 || t.decaySteps > 0) json["scheduler"] = schedulerOf(t);

  Exported exported;
  exported.fileName = "deepspeed.json";
  exported.text = json.dump(2) + "\n";
  exported.command = {"train.py", "--deepspeed", "--deepspeed_config", exported.fileName};
  exported.notes.push_back("train.py stands for your script, which makes the model and the data");
  exported.notes.push_back(inScript(plan.training));
  exported.notes.push_back("weight decay is of all parameters, unless your script groups them");
  if (const Nodes nodes = nodesOf(plan); nodes.count > 1)  // which the file cannot say
    exported.notes.push_back(
        fmt::format("start {} ranks on each of {} nodes", nodes.ranks, nodes.count));
  if (plan.recompute == plan::Recompute::kFull)
    exported.notes.push_back(
        "recompute full is the model's: model.gradient_checkpointing_enable() of transformers");
  return exported;
}

}  // namespace trireme::codegen
