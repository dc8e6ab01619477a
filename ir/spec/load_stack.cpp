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
    {"flash", AttentionKind::kFlash}};
constexpr std::span<const EnumName<AttentionKind>> kAttention = kAttentionArray;
constexpr EnumName<GradientAccumulation> kAccumulationArray[] = {
    {"fused_f32", GradientAccumulation::kFusedF32},
    {"separate_f32", GradientAccumulation::kSeparateF32},
    {"separate_low", GradientAccumulation::kSeparateLow}};
constexpr std::span<const EnumName<GradientAccumulation>> kAccumulation = kAccumulationArray;

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
  map.required("fused_elementwise", &stack->fusedElementwise);
  map.required("gradient_accumulation", kAccumulation, &stack->gradientAccumulation);
  map.required("scatter_gather", &stack->scatterGather);
  readPositive(map, "parameter_bytes", &stack->parameterBytes);
  readPositive(map, "gradient_bytes", &stack->gradientBytes);
  readPositive(map, "optimizer_bytes", &stack->optimizerBytes);
  readPositive(map, "reduced_gradient_bytes", &stack->reducedGradientBytes);
  readPositive(map, "gathered_parameter_bytes", &stack->gatheredParameterBytes);
  readNotNegative(map, "optimizer_traffic", &stack->optimizerTraffic);
  readNotNegative(map, "loss_bytes", &stack->lossBytes);
  readShare(map, "gradient_exposed", &stack->gradientExposed);
  readShare(map, "gather_exposed", &stack->gatherExposed);
  readShare(map, "tensor_parallel_exposed", &stack->tensorParallelExposed);
  readShare(map, "transfer_exposed", &stack->transferExposed);
  readNotNegative(map, "host_launch", &stack->hostLaunch);
  readPositive(map, "host_backward", &stack->hostBackward);
  readNotNegative(map, "host_microbatch", &stack->hostMicrobatch);
  readNotNegative(map, "host_step", &stack->hostStep);
  readShare(map, "slowdown_per_doubling", &stack->slowdownPerDoubling);
  readNotNegative(map, "reserve", &stack->reserve);
  readShare(map, "fragmentation", &stack->fragmentation);
}

}  // namespace

Result<StackProfile> parseStack(const std::string& text, const std::string& name) {
  TRIREME_ASSIGN_OR_RETURN(const Node root, parseDocument(text, name));
  MapReader map(name, root);
  StackProfile stack;
  map.required("name", &stack.name);
  map.optional("programs", kPrograms, &stack.ownPrograms);
  if (stack.ownPrograms)
    readOwn(map, &stack);
  else
    readDescription(map, &stack.description);
  TRIREME_RETURN_IF_ERROR(map.finish());
  return stack;
}

}  // namespace trireme::spec
