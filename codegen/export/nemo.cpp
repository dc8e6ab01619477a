// Overrides of Megatron-Bridge's configuration, from Megatron-LM's arguments by the tables that the
// project documents: docs/megatron-lm-to-megatron-bridge.md, commit 167ba2ad, and
// scripts/translate_mlm_to_bridge.py, commit 158aa4e2. They leave out what scales rotary positions:
// rope_scaling and rope_scaling_factor of GPTModelProvider (models/gpt_provider.py, since 0.3.1).
// The recipe is there since 0.4; 0.4.2, 0.5.1 and 0.6.2 take all of this.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "codegen/export/formats.h"

namespace trireme::codegen {
namespace {

struct Translation {
  std::string_view flag;
  std::string_view key;
  std::string_view onValue = "true";  // of a switch
};

constexpr Translation kTranslations[] = {
    {"--num-layers", "model.num_layers"},
    {"--hidden-size", "model.hidden_size"},
    {"--ffn-hidden-size", "model.ffn_hidden_size"},
    {"--num-attention-heads", "model.num_attention_heads"},
    {"--kv-channels", "model.kv_channels"},
    {"--num-query-groups", "model.num_query_groups"},
    {"--position-embedding-type", "model.position_embedding_type"},
    {"--rotary-base", "model.rotary_base"},
    {"--use-rope-scaling", "model.rope_scaling"},
    {"--rope-scaling-factor", "model.rope_scaling_factor"},
    {"--rotary-seq-len-interpolation-factor", "model.seq_len_interpolation_factor"},
    {"--normalization", "model.normalization"},
    {"--norm-epsilon", "model.layernorm_epsilon"},
    {"--swiglu", "model.gated_linear_unit"},
    {"--swiglu", "model.activation_func", "silu"},
    {"--disable-bias-linear", "model.add_bias_linear", "false"},
    {"--add-qkv-bias", "model.add_qkv_bias"},
    {"--untie-embeddings-and-output-weights", "model.share_embeddings_and_output_weights", "false"},
    {"--init-method-std", "model.init_method_std"},
    {"--vocab-size", "tokenizer.vocab_size"},
    {"--make-vocab-size-divisible-by", "model.make_vocab_size_divisible_by"},
    {"--seq-length", "model.seq_length"},
    // A field that is copied into dataset.sequence_length since 0.6 and a property before; ++ adds
    // what is no field.
    {"--seq-length", "++dataset.seq_length"},
    {"--micro-batch-size", "train.micro_batch_size"},
    {"--global-batch-size", "train.global_batch_size"},
    {"--train-iters", "train.train_iters"},
    {"--seed", "rng.seed"},
    {"--attention-dropout", "model.attention_dropout"},
    {"--hidden-dropout", "model.hidden_dropout"},
    {"--lr", "optimizer.lr"},
    {"--min-lr", "optimizer.min_lr"},
    {"--lr-decay-style", "scheduler.lr_decay_style"},
    {"--lr-warmup-iters", "scheduler.lr_warmup_iters"},
    {"--lr-decay-iters", "scheduler.lr_decay_iters"},
    {"--weight-decay", "optimizer.weight_decay"},
    {"--weight-decay", "scheduler.start_weight_decay"},  // which replace it at every step
    {"--weight-decay", "scheduler.end_weight_decay"},
    {"--adam-beta1", "optimizer.adam_beta1"},
    {"--adam-beta2", "optimizer.adam_beta2"},
    {"--adam-eps", "optimizer.adam_eps"},
    {"--clip-grad", "optimizer.clip_grad"},
    {"--tensor-model-parallel-size", "model.tensor_model_parallel_size"},
    {"--pipeline-model-parallel-size", "model.pipeline_model_parallel_size"},
    {"--context-parallel-size", "model.context_parallel_size"},
    {"--pipeline-model-parallel-layout", "model.pipeline_model_parallel_layout"},
    {"--num-virtual-stages-per-pipeline-rank", "model.virtual_pipeline_model_parallel_size"},
    {"--sequence-parallel", "model.sequence_parallel"},
    {"--use-tp-pp-dp-mapping", "dist.use_tp_pp_dp_mapping"},
    {"--use-distributed-optimizer", "ddp.use_distributed_optimizer"},
    {"--use-distributed-optimizer", "optimizer.use_distributed_optimizer"},
    {"--use-megatron-fsdp", "ddp.use_megatron_fsdp"},
    {"--use-megatron-fsdp", "dist.use_megatron_fsdp"},
    {"--use-megatron-fsdp", "ddp.average_in_collective", "false"},  // which Bridge has on
    {"--no-gradient-accumulation-fusion", "model.gradient_accumulation_fusion", "false"},
    {"--data-parallel-sharding-strategy", "ddp.data_parallel_sharding_strategy"},
    {"--ckpt-format", "checkpoint.ckpt_format"},
    {"--num-distributed-optimizer-instances", "ddp.num_distributed_optimizer_instances"},
    {"--overlap-grad-reduce", "ddp.overlap_grad_reduce"},
    {"--overlap-param-gather", "ddp.overlap_param_gather"},
    {"--recompute-granularity", "model.recompute_granularity"},
    {"--recompute-method", "model.recompute_method"},
    {"--recompute-num-layers", "model.recompute_num_layers"},
};

// Absent in Megatron-LM they are off; absent in an override they are what the recipe says.
constexpr std::array<std::string_view, 4> kBothStates = {
    "--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather",
    "--sequence-parallel"};

// What the overrides say in one key, what Bridge does anyway, or what a note says. Its models have
// as many positions as model.seq_length; the key for them that the script writes is no field.
constexpr std::array<std::string_view, 17> kSaidOtherwise = {"--max-position-embeddings",
                                                             "--no-create-attention-mask-in-"
                                                             "dataloader",
                                                             "--bf16",
                                                             "--fp16",
                                                             "--loss-scale",
                                                             "--initial-loss-scale",
                                                             "--loss-scale-window",
                                                             "--min-loss-scale",
                                                             "--hysteresis",
                                                             "--fp8-format",
                                                             "--fp8-recipe",
                                                             "--fp8-param-gather",
                                                             "--reuse-grad-buf-for-mxfp8-param-ag",
                                                             "--accumulate-allreduce-grads-in-fp32",
                                                             "--grad-reduce-in-bf16",
                                                             "--tp-comm-overlap",
                                                             "--group-query-attention"};

constexpr const char* kClasses = "megatron.bridge.training.";

// The fields of bridge.training.mixed_precision's recipes, but that every layer is in fp8, as
// profiles price it.
std::string fp8Fields(const plan::Plan& plan, const ExportOptions& options) {
  const spec::Fp8Recipe recipe = options.settings.fp8.value_or(spec::Fp8Recipe::kDelayed);
  const bool isMx = recipe == spec::Fp8Recipe::kMx;
  std::string fields =
      ",fp8:hybrid,fp8_recipe:delayed,fp8_amax_history_len:1024,fp8_amax_compute_algo:max";
  if (recipe == spec::Fp8Recipe::kCurrent) fields = ",fp8:hybrid,fp8_recipe:tensorwise";
  if (isMx) fields = ",fp8:e4m3,fp8_recipe:mxfp8";
  if (!gathersF8(plan, options)) return fields;
  return fields + ",fp8_param_gather:true" +
         (gathersInGradients(plan, options) ? ",reuse_grad_buf_for_mxfp8_param_ag:true" : "");
}

// A recipe's name where it does what the plan is priced with. Its gradients overrule those of ddp
// and optimizer, and a single field of a recipe cannot be overridden, so that else the override
// is the whole of a MixedPrecisionConfig (bridge.training.utils.omegaconf_utils makes it).
std::string mixedPrecision(const plan::Plan& plan, const ExportOptions& options) {
  const spec::Precision precision = plan.training.precision;
  const bool inF32 = options.gradientBytes >= 4;
  const bool isFp16 = precision == spec::Precision::kFp16;
  if (isFp16 && !inF32) return "fp16_mixed";
  if (precision == spec::Precision::kBf16 && inF32) return "bf16_mixed";
  const std::string type =
      fmt::format("{{_target_:torch.{},_call_:false}}", isFp16 ? "float16" : "bfloat16");
  return fmt::format(
      "{{_target_:{}mixed_precision.MixedPrecisionConfig,{}:true,params_dtype:{},pipeline_dtype:{},"
      "grad_reduce_in_fp32:{}{}}}",
      kClasses, isFp16 ? "fp16" : "bf16", type, type, inF32,
      precision == spec::Precision::kFp8 ? fp8Fields(plan, options) : "");
}

// The recipe has none: collectives of a layer are exposed, and so are transfers of interleaved
// stages, which Megatron-LM runs beside computation without being told, as it starts all chunks'
// gathers of parameters together: with a layout instead of a number of virtual stages Bridge sees
// one and does not. Empty where neither is.
std::string commOverlap(const plan::Plan& plan, const ExportOptions& options) {
  const bool overlapsLayers = overlapsTensorParallel(plan, options);
  if (!overlapsLayers && plan.virtualStages == 1) return "";
  return fmt::format(
      "comm_overlap={{_target_:{}comm_overlap.CommOverlapConfig,tp_comm_overlap:{}{}}}", kClasses,
      overlapsLayers,
      plan.virtualStages > 1 ? ",overlap_p2p_comm:true,batch_p2p_comm:false,align_param_gather:true"
                             : "");
}

// Megatron-LM's arguments fuse these unless told otherwise, Megatron-Core's configuration does not;
// profiles price them fused. Unfused SwiGLU keeps two of its halves more. GELU is fused with its
// bias alone.
void addFusions(const spec::ModelSpec& model, std::vector<std::string>& overrides) {
  if (model.activation == spec::ActivationKind::kSwiGlu || model.linearBias)
    overrides.emplace_back("model.bias_activation_fusion=true");
  overrides.emplace_back("model.bias_dropout_fusion=true");
  if (model.position == spec::PositionKind::kRotary)
    overrides.emplace_back("model.apply_rope_fusion=true");
}

// Whoever puts a recipe's name back trains something else.
void notePrecision(const plan::Plan& plan, const ExportOptions& options, Exported& exported) {
  const spec::Precision precision = plan.training.precision;
  std::string means;
  if (options.gradientBytes < 4 && precision != spec::Precision::kFp16)
    means = "gradients in bf16, which Bridge's recipes by name add up in fp32";
  if (precision == spec::Precision::kFp8)
    means +=
        fmt::format("{}every layer in fp8{}, where recipes by name {}", means.empty() ? "" : "; ",
                    gathersF8(plan, options) ? "" : ", none gathered in it",
                    gathersF8(plan, options) ? "may keep the first and last in bf16"
                                             : "gather fp8, or keep the first and last in bf16");
  if (!means.empty())
    exported.notes.push_back("mixed_precision is spelled out, as the plan is priced: " + means);
}

std::vector<std::string> overridesOf(const Argument& argument) {
  std::vector<std::string> overrides;
  for (const Translation& t : kTranslations)
    if (t.flag == argument.flag)
      overrides.push_back(
          fmt::format("{}={}", t.key, argument.value ? *argument.value : std::string(t.onValue)));
  const bool isSaidOtherwise = std::find(kSaidOtherwise.begin(), kSaidOtherwise.end(),
                                         argument.flag) != kSaidOtherwise.end();
  TRIREME_CHECK(!overrides.empty() || isSaidOtherwise);
  return overrides;
}

}  // namespace

Exported toNemo(const plan::Plan& plan, const spec::ModelSpec& model,
                const ExportOptions& options) {
  Exported exported;
  exported.command = {"scripts/training/run_recipe.py", "--recipe", "vanilla_gpt_pretrain_config"};
  std::vector<std::string> overrides;
  for (const Argument& argument : megatronArguments(plan, model, options))
    for (std::string& override : overridesOf(argument)) overrides.push_back(std::move(override));
  for (const Translation& t : kTranslations)
    if (std::find(kBothStates.begin(), kBothStates.end(), t.flag) != kBothStates.end() &&
        std::none_of(overrides.begin(), overrides.end(), [&](const std::string& override) {
          return override.starts_with(std::string(t.key) + "=");
        }))
      overrides.push_back(fmt::format("{}=false", t.key));
  addFusions(model, overrides);
  overrides.push_back("mixed_precision=" + mixedPrecision(plan, options));
  if (std::string overlap = commOverlap(plan, options); !overlap.empty())
    overrides.push_back(std::move(overlap));
  for (const std::string& override : overrides) exported.text += quoted(override) + "\n";
  if (plan.tp * plan.cp > 1 && plan.stateSharding < plan::StateSharding::kGradients)
    exported.environment.push_back("CUDA_DEVICE_MAX_CONNECTIONS=1");
  exported.notes.push_back(
      "data, tokenizer and checkpoints are yours: dataset.data_path, tokenizer.*, checkpoint.*");
  notePrecision(plan, options, exported);
  noteTensorParallel(plan, options, exported);
  noteFsdp(plan, exported);
  if (!numSteps(plan, options))
    exported.notes.push_back("the plan has no number of steps: give --steps or train.train_iters");
  noteCore(plan, model, exported);
  return exported;
}

}  // namespace trireme::codegen
