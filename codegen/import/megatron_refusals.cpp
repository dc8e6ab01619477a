#include "codegen/import/megatron_refusals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "ir/spec/yaml_node.h"

namespace trireme::codegen {
namespace {

constexpr const char* kOfMegatronDeepspeed[] = {
    "--deepspeed",           "--deepspeed_config",
    "--deepspeed-config",    "--deepspeed-activation-checkpointing",
    "--zero-stage",          "--ds-sequence-parallel-size",
    "--no-pipeline-parallel"};

// And what is given instead of them.
constexpr std::pair<const char*, const char*> kOfThePast[] = {
    {"--batch-size", "--micro-batch-size"},
    {"--model-parallel-size", "--tensor-model-parallel-size"},
    {"--warmup", "--lr-warmup-fraction"},
    {"--fp8-hybrid", "--fp8-format hybrid"},
    {"--fp8-e4m3", "--fp8-format e4m3"},
    {"--checkpoint-activations",
     "--recompute-activations, or --recompute-granularity full with --recompute-method and "
     "--recompute-num-layers"},
    {"--checkpoint-num-layers", "--recompute-num-layers"},
    {"--activations-checkpoint-method", "--recompute-granularity full and --recompute-method"},
    {"--activations-checkpoint-num-layers", "--recompute-num-layers"},
    {"--virtual-pipeline-model-parallel-size",
     "--num-layers-per-virtual-pipeline-stage or --num-virtual-stages-per-pipeline-rank"}};

// And what they do.
constexpr std::pair<const char*, const char*> kOfOtherModels[] = {
    {"--is-hybrid-model", "mixes in layers of other kinds"},
    {"--hybrid-override-pattern", "mixes in layers of other kinds"},
    {"--hybrid-layer-pattern", "mixes in layers of other kinds"},
    {"--hybrid-attention-ratio", "mixes in layers of other kinds"},
    {"--hybrid-mlp-ratio", "mixes in layers of other kinds"},
    {"--heterogeneous-layers-config-path", "gives each layer a shape of its own"},
    {"--heterogeneous-layers-config-encoded-json", "gives each layer a shape of its own"},
    {"--experimental-attention-variant", "makes another attention"},
    {"--linear-attention-freq", "puts linear attention into some of the layers"},
    {"--linear-attention-type", "puts linear attention into some of the layers"},
    {"--chunk-attention", "attends within chunks"},
    {"--attention-chunk-size", "attends within chunks"},
    {"--attention-output-gate", "puts a gate behind attention, with a matrix of its own"},
    {"--no-rope-freq", "leaves some of the layers without positions"},
    {"--enable-hyper-connections", "keeps several residual streams"},
    {"--retro-add-retriever", "adds a retriever with an encoder of its own"},
    {"--decoder-num-layers", "makes a decoder beside an encoder"},
    {"--pipeline-model-parallel-split-rank", "splits the stages among encoder and decoder"},
    {"--standalone-embedding-stage", "gives the embedding a stage of its own"},
    {"--kitchen-config-file", "quantizes by a recipe of its own"},
    {"--kitchen-recipe-number", "quantizes by a recipe of its own"},
    {"--te-precision-config-file", "quantizes by a recipe of its own"},
    {"--perform-rl-step", "generates texts within the step"},
    {"--fine-grained-activation-offloading", "moves activations to the host"},
    {"--offload-optimizer-states", "moves the optimizer's states to the host"}};

// 0, Megatron's default: there is no encoder.
constexpr const char* kOfEncoders[] = {"--encoder-tensor-model-parallel-size",
                                       "--encoder-pipeline-model-parallel-size"};

// Which stand for others, beside which Megatron refuses them.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"--encoder-num-layers", "--num-layers"}, {"--encoder-seq-length", "--seq-length"}};

// Of Megatron's FSDP, which alone reads them: what is priced, and what another value does.
struct FsdpValue {
  const char *name, *value, *otherwise;
};
constexpr FsdpValue kOfFsdp[] = {
    {"--outer-dp-sharding-strategy", "no_shard", "replicas of shards share the optimizer's state"},
    {"--megatron-fsdp-main-grads-dtype", "fp32", "gradients add up in another type"},
    {"--megatron-fsdp-main-params-dtype", "fp32", "the optimizer's weights have another type"}};

void refuseOtherModels(Flags& flags) {
  constexpr const char* kUnsaid = "which cannot be priced: no model or plan here says it";
  for (const auto& [name, what] : kOfOtherModels)
    if (flags.isGiven(name)) flags.fail(name, fmt::format("{}, {}", what, kUnsaid));
  for (const char* name : kOfEncoders)
    if (flags.count(name, 0) > 0) flags.fail(name, fmt::format("is of an encoder, {}", kUnsaid));
  for (const auto& [name, other] : kOtherNames)
    if (flags.isGiven(name))
      flags.fail(name, flags.isGiven(other)
                           ? fmt::format("is refused by Megatron beside {}: give that alone", other)
                           : fmt::format("stands for {}: give that", other));
  const bool isRotary = flags.isGiven("--use-rotary-position-embeddings") ||
                        flags.text("--position-embedding-type") == "rope";
  if (flags.has("--no-position-embedding") && !isRotary)
    flags.fail("--no-position-embedding", "is refused by Megatron without rotary positions");
}

void refuseValuesOfFsdp(Flags& flags) {
  if (!flags.isGiven("--use-megatron-fsdp")) return;
  for (const auto& [name, value, otherwise] : kOfFsdp)
    if (const auto given = flags.text(name); given && *given != value)
      flags.fail(name, fmt::format("is {}: {}, which cannot be priced; nearest: {}",
                                   spec::quoteForMessage(*given), otherwise, value));
}

// The layers that Megatron makes without it.
void refuseOtherSpecs(Flags& flags) {
  constexpr const char* kDense =
      "megatron.core.models.gpt.gpt_layer_specs get_gpt_layer_with_transformer_engine_spec";
  const std::vector<std::string> given = flags.texts("--spec");
  const std::string spec = fmt::format("{}", fmt::join(given, " "));
  if (given.empty() || spec == kDense) return;
  flags.fail("--spec", fmt::format("is {}: other layers cannot be priced; nearest: {}",
                                   spec::quoteForMessage(spec), kDense));
}

void refuseOverlaps(Flags& flags, const plan::Plan& plan) {
  const bool isFsdp = flags.isGiven("--use-megatron-fsdp");
  const bool reduces = flags.isGiven("--overlap-grad-reduce");
  if (flags.isGiven("--overlap-param-gather") && !isFsdp &&
      !(flags.isGiven("--use-distributed-optimizer") && reduces))
    flags.fail("--overlap-param-gather",
               "is refused by Megatron without --use-distributed-optimizer and "
               "--overlap-grad-reduce");
  if (flags.isGiven("--overlap-param-gather-with-optimizer-step") && plan.virtualStages == 1)
    flags.fail("--overlap-param-gather-with-optimizer-step",
               "is refused by Megatron without virtual stages");
  if (isFsdp && !reduces && plan.stateSharding == plan::StateSharding::kGradients)
    flags.fail("--data-parallel-sharding-strategy",
               "optim_grads is refused by Megatron's FSDP without --overlap-grad-reduce");
}

}  // namespace

void refuseOtherFlags(Flags& flags) {
  for (const char* name : kOfMegatronDeepspeed)
    if (flags.isGiven(name))
      flags.fail(name,
                 "is a flag of Megatron-DeepSpeed, whose scripts are not read: --stack "
                 "megatron-deepspeed prices plans of trireme");
  for (const auto& [name, instead] : kOfThePast)
    if (flags.isGiven(name))
      flags.fail(name, fmt::format("is not taken by today's Megatron-LM: give {}", instead));
  if (flags.isGiven("--yaml-cfg"))
    flags.fail("--yaml-cfg", "puts its file in the place of all flags, and is not read: give them");
  if (flags.isGiven("--retro-project-dir"))
    flags.fail("--retro-project-dir",
               "takes batch, sequence and data from a file of its folder, which is not read: give "
               "them");
  refuseOtherModels(flags);
  refuseOtherSpecs(flags);
  if (const int64_t experts = flags.count("--expert-model-parallel-size", 1); experts > 1)
    flags.fail("--expert-model-parallel-size",
               fmt::format("is {}, but the model has no experts; nearest: 1", experts));
  refuseValuesOfFsdp(flags);
}

void refuseCombinations(Flags& flags, const plan::Plan& plan) {
  if (flags.isGiven("--tp-comm-overlap") && !plan.sequenceParallel)
    flags.fail("--tp-comm-overlap",
               "is refused by Megatron without sequence parallelism: --sequence-parallel, and "
               "--tensor-model-parallel-size above 1");
  if (flags.isGiven("--no-overlap-p2p-communication") && plan.virtualStages > 1 && plan.pp <= 2)
    flags.fail("--no-overlap-p2p-communication",
               fmt::format("is refused by Megatron with virtual stages and pp {}; nearest: pp 3",
                           plan.pp));
  refuseOverlaps(flags, plan);
  if (!flags.isGiven("--recompute-activations")) return;
  if (flags.text("--recompute-granularity") == "full")
    flags.fail("--recompute-activations",
               "goes not with --recompute-granularity full: it makes that selective");
  if (flags.isGiven("--recompute-method"))
    flags.fail("--recompute-method", "goes not with --recompute-activations");
}

}  // namespace trireme::codegen
