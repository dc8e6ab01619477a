#include <algorithm>
#include <iterator>

#include "ir/spec/load.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/sourced.h"

namespace trireme::spec {
namespace {

constexpr EnumName<bool> kProgramsArray[] = {{"own", true}, {"described", false}};
constexpr std::span<const EnumName<bool>> kPrograms = kProgramsArray;
constexpr EnumName<AttentionKind> kAttentionArray[] = {
    {"unfused", AttentionKind::kUnfused},
    {"fused_softmax", AttentionKind::kFusedSoftmax},
    {"flash", AttentionKind::kFlash},
    {"flash2", AttentionKind::kFlash2},
    {"cudnn", AttentionKind::kCudnn}};
constexpr std::span<const EnumName<AttentionKind>> kAttention = kAttentionArray;
constexpr EnumName<GradientAccumulation> kAccumulationArray[] = {
    {"fused_f32", GradientAccumulation::kFusedF32},
    {"separate_f32", GradientAccumulation::kSeparateF32},
    {"separate_low", GradientAccumulation::kSeparateLow}};
constexpr std::span<const EnumName<GradientAccumulation>> kAccumulation = kAccumulationArray;

constexpr EnumName<SelectiveRecompute> kSelectiveArray[] = {
    {"attention", SelectiveRecompute::kAttention},
    {"every_other", SelectiveRecompute::kEveryOther},
    {"per_operator", SelectiveRecompute::kPerOperator}};
constexpr std::span<const EnumName<SelectiveRecompute>> kSelective = kSelectiveArray;

constexpr EnumName<StackChoice> kChoices[] = {
    {"tensor_parallel", StackChoice::kTensorParallel},
    {"sequence_parallel", StackChoice::kSequenceParallel},
    {"context_parallel", StackChoice::kContextParallel},
    {"pipeline", StackChoice::kPipeline},
    {"gpipe", StackChoice::kGpipe},
    {"interleaved", StackChoice::kInterleaved},
    {"scatter_gather", StackChoice::kScatterGather},
    {"shard_optimizer", StackChoice::kShardOptimizer},
    {"shard_gradients", StackChoice::kShardGradients},
    {"shard_parameters", StackChoice::kShardParameters},
    {"replicated_shards", StackChoice::kReplicatedShards},
    {"recompute_selective", StackChoice::kRecomputeSelective},
    {"recompute_full", StackChoice::kRecomputeFull},
    {"recompute_layers", StackChoice::kRecomputeLayers}};

void readChoices(MapReader& map, std::vector<StackChoice>* choices) {
  const Node* list = map.requiredChild("choices");
  if (!list) return;
  if (list->kind != Node::Kind::kList)
    return map.fail(*list, fmt::format("expected a list of choices, got {}", describe(*list)));
  choices->clear();
  std::vector<std::string> known;
  for (const auto& choice : kChoices) known.emplace_back(choice.name);
  for (const Node& item : list->items) {
    const auto* found = std::find_if(std::begin(kChoices), std::end(kChoices), [&](const auto& c) {
      return item.kind == Node::Kind::kScalar && item.text == c.name;
    });
    if (found == std::end(kChoices))
      return map.fail(
          item, fmt::format("no such choice: {}{}", describe(item), suggestion(item.text, known)));
    choices->push_back(found->value);
  }
}

void readShare(MapReader& map, std::string_view key, double* out) {
  readNotNegative(map, key, out);
  if (const Node* node = map.child(key); node && map.firstValueError().ok() && *out > 1)
    map.fail(*node, fmt::format("a share is at most 1, got {}", *out));
}

void readOwn(MapReader& map, StackProfile* stack) {
  map.required("flash_attention", &stack->flashAttention);
  map.required("overlap_gradient_reduction", &stack->overlapGradientReduction);
  map.required("overlap_pipeline_transfers", &stack->overlapPipelineTransfers);
  readNotNegative(map, "fixed_reserve", &stack->fixedReserve);
  // Absent: derived from the precision.
  if (map.child("optimizer_bytes_per_parameter"))
    readPositive(map, "optimizer_bytes_per_parameter", &stack->optimizerBytesPerParameter);
}

void readDescription(MapReader& map, StackDescription* stack) {
  map.required("attention", kAttention, &stack->attention);
  map.optional("selective_recompute", kSelective, &stack->selective);
  readPositive(map, "elementwise_factor", &stack->elementwiseFactor);
  readPositive(map, "matmul_factor", &stack->matmulFactor);
  readNotNegative(map, "cast_bytes", &stack->castBytes);
  readNotNegative(map, "context_parallel_loss", &stack->contextParallelLoss);
  map.required("gradient_accumulation", kAccumulation, &stack->gradientAccumulation);
  map.required("scatter_gather", &stack->scatterGather);
  readPositive(map, "parameter_bytes", &stack->parameterBytes);
  readPositive(map, "gradient_bytes", &stack->gradientBytes);
  readPositive(map, "optimizer_bytes", &stack->optimizerBytes);
  readPositive(map, "reduced_gradient_bytes", &stack->reducedGradientBytes);
  readPositive(map, "gathered_parameter_bytes", &stack->gatheredParameterBytes);
  readNotNegative(map, "optimizer_traffic", &stack->optimizerTraffic);
  readNotNegative(map, "loss_bytes", &stack->lossBytes);
  readNotNegative(map, "parameter_traffic", &stack->parameterTraffic);
  if (map.child("logit_bytes")) readPositive(map, "logit_bytes", &stack->logitBytes);
  if (map.child("working_layers")) readNotNegative(map, "working_layers", &stack->workingLayers);
  map.optional("keeps_f8", &stack->keepsNarrow);
  if (map.child("sharded_bandwidth"))
    readEfficiency(map, "sharded_bandwidth", &stack->shardedBandwidth);
  readShare(map, "gradient_exposed", &stack->gradientExposed);
  readShare(map, "gather_exposed", &stack->gatherExposed);
  readShare(map, "tensor_parallel_exposed", &stack->tensorParallelExposed);
  readShare(map, "transfer_exposed", &stack->transferExposed);
  readNotNegative(map, "host_launch", &stack->hostLaunch);
  readPositive(map, "host_backward", &stack->hostBackward);
  readNotNegative(map, "host_exponent", &stack->hostExponent);
  readShare(map, "host_growth", &stack->hostGrowth);
  readNotNegative(map, "transfer_sync", &stack->transferSync);
  readEfficiency(map, "whole_head_efficiency", &stack->wholeHeadEfficiency);
  readNotNegative(map, "host_microbatch", &stack->hostMicrobatch);
  readNotNegative(map, "host_step", &stack->hostStep);
  readShare(map, "slowdown_per_doubling", &stack->slowdownPerDoubling);
  readNotNegative(map, "reserve", &stack->reserve);
  readShare(map, "fragmentation", &stack->fragmentation);
}

}  // namespace

std::vector<StackChoice> ownChoices() {
  return {
      StackChoice::kTensorParallel, StackChoice::kSequenceParallel,   StackChoice::kPipeline,
      StackChoice::kGpipe,          StackChoice::kInterleaved,        StackChoice::kScatterGather,
      StackChoice::kShardOptimizer, StackChoice::kRecomputeSelective, StackChoice::kRecomputeFull};
}

Result<StackProfile> parseStack(const std::string& text, const std::string& name) {
  TRIREME_ASSIGN_OR_RETURN(const Node root, parseDocument(text, name));
  MapReader map(name, root);
  StackProfile stack;
  map.required("name", &stack.name);
  map.optional("programs", kPrograms, &stack.ownPrograms);
  if (stack.ownPrograms) {
    readOwn(map, &stack);
  } else {
    readChoices(map, &stack.choices);
    readDescription(map, &stack.description);
  }
  TRIREME_RETURN_IF_ERROR(map.finish());
  return stack;
}

}  // namespace trireme::spec
