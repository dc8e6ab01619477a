// Keys: src/accelerate/commands/config/config_args.py, commit 002dd35a; FSDP's:
// docs/source/usage_guides/fsdp.md and concept_guides/fsdp1_vs_fsdp2.md, commit 04a5ffbd;
// parallelism_config: docs/source/concept_guides/context_parallelism.md; from 1.10 on
// (github.com/huggingface/transformers/pull/40668). Whole gradients between steps:
// docs/source/concept_guides/gradient_synchronization.md.
#include <fmt/format.h>

#include "codegen/export/formats.h"
#include "ir/base/format.h"

namespace trireme::codegen {
namespace {

using plan::StateSharding;

std::string_view precisionText(spec::Precision precision) {
  switch (precision) {
    case spec::Precision::kBf16:
      return "bf16";
    case spec::Precision::kFp16:
      return "fp16";
    default:
      return "'no'";
  }
}

// Without fsdp_transformer_layer_cls_to_wrap the model says itself what its layers are.
std::string fsdpSection(const plan::Plan& plan) {
  return fmt::format(
      "fsdp_config:\n"
      "  fsdp_version: 2\n"
      "  fsdp_reshard_after_forward: {}\n"
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_activation_checkpointing: {}\n"
      "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
      "  fsdp_offload_params: false\n",
      plan.stateSharding == StateSharding::kParameters, plan.recompute == plan::Recompute::kFull);
}

std::string parallelismSection(const plan::Plan& plan) {
  return fmt::format(
      "parallelism_config:\n"
      "  parallelism_config_dp_replicate_size: {}\n"
      "  parallelism_config_dp_shard_size: {}\n"
      "  parallelism_config_tp_size: 1\n"
      "  parallelism_config_cp_size: {}\n",
      plan.dpReplicate, plan.dpShard, plan.cp);
}

// accumulate() skips the reduction of all microbatches but the last, for which gradients stay
// whole.
void noteAccumulation(const plan::Plan& plan, const spec::ModelSpec& model,
                      const ExportOptions& options, Exported& exported) {
  const auto ranks = static_cast<double>(plan.dpShard * plan.cp);
  const double whole = static_cast<double>(model.numParameters()) * options.gradientBytes;
  if (plan.numMicrobatches() == 1) return;
  exported.notes.push_back(
      "the script has to do each microbatch within accelerator.accumulate(model); their number is "
      "taken from the environment where Accelerator() is given none");
  if (plan.stateSharding == StateSharding::kNone) return;
  exported.notes.push_back(fmt::format(
      "the plan reduces gradients after each of {0} microbatches: give it instead Accelerator("
      "gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps={0}, "
      "sync_each_batch=True)); without it a rank keeps them whole, which is {1} more",
      plan.numMicrobatches(), formatBytes(Bytes(static_cast<int64_t>(whole - whole / ranks)))));
}

// mixed_precision alone makes both dtypes of FSDP's policy the same (set_mixed_precision() of
// src/accelerate/utils/dataclasses.py, 1.15).
void noteReduction(const plan::Plan& plan, const ExportOptions& options, Exported& exported) {
  const std::string_view type = precisionText(plan.training.precision);
  if (plan.stateSharding == StateSharding::kNone || options.reducedGradientBytes < 4 ||
      type == "'no'")
    return;
  const std::string_view dtype = type == "bf16" ? "bfloat16" : "float16";
  exported.notes.push_back(fmt::format(
      "the plan reduces gradients in float32; with mixed_precision: {0} alone Accelerate reduces "
      "them in {0}, half the bytes: to run what is priced give Accelerator(fsdp_plugin="
      "FullyShardedDataParallelPlugin(mixed_precision_policy=MixedPrecisionPolicy("
      "param_dtype=torch.{1}, reduce_dtype=torch.float32, output_dtype=torch.{1}))); to price what "
      "runs without, set reduced_gradient_bytes: 2 in a copy of the stack",
      type, dtype));
}

}  // namespace

Exported toAccelerate(const plan::Plan& plan, const spec::ModelSpec& model,
                      const ExportOptions& options) {
  const bool shards = plan.stateSharding != StateSharding::kNone;
  Exported exported;
  exported.fileName = "accelerate.yaml";
  exported.text = fmt::format(
      "compute_environment: LOCAL_MACHINE\n"
      "distributed_type: {}\n"
      "num_machines: {}\n"
      "num_processes: {}\n"
      "machine_rank: 0\n"
      "main_training_function: main\n"
      "mixed_precision: {}\n"
      "rdzv_backend: static\n"
      "same_network: true\n"
      "use_cpu: false\n",
      plan.numRanks() == 1 ? "'NO'"
      : shards             ? "FSDP"
                           : "MULTI_GPU",
      nodesOf(plan).count, plan.numRanks(), precisionText(plan.training.precision));
  if (shards) exported.text += fsdpSection(plan);
  if (shards && (plan.cp > 1 || plan.dpReplicate > 1)) {
    exported.text += parallelismSection(plan);
    exported.notes.push_back("parallelism_config needs Accelerate 1.10 or later");
  }
  if (plan.cp > 1)
    exported.notes.push_back(
        "sequences are divided only within accelerator.maybe_context_parallel(buffers=..., "
        "buffer_seq_dims=...), which the script has to enter for every microbatch: without it "
        "every rank computes all of them");
  exported.command = {"--config_file", exported.fileName, "train.py"};
  // --gradient_accumulation_steps is DeepSpeed's alone (src/accelerate/utils/launch.py, 1.15).
  if (plan.numMicrobatches() > 1)
    exported.environment.push_back(
        fmt::format("ACCELERATE_GRADIENT_ACCUMULATION_STEPS={}", plan.numMicrobatches()));
  exported.notes.push_back(
      fmt::format("train.py stands for your script: a batch of {} per device, sequence length {}, "
                  "learning rate "
                  "and clipping are set there",
                  plan.microbatchSize, plan.training.sequenceLength));
  noteReduction(plan, options, exported);
  noteAccumulation(plan, model, options, exported);
  exported.notes.push_back(inScript(plan.training));
  if (!shards && plan.recompute == plan::Recompute::kFull)
    exported.notes.push_back(
        "recompute full is the model's: model.gradient_checkpointing_enable() of transformers");
  return exported;
}

}  // namespace trireme::codegen
