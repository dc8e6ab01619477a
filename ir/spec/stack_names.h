// How stack files name things, for their loader and for whoever compares stacks.
#pragma once
#include "ir/spec/map_reader.h"
#include "ir/spec/stack_profile.h"

namespace trireme::spec {

inline constexpr EnumName<AttentionKind> kAttentionArray[] = {
    {"unfused", AttentionKind::kUnfused},
    {"fused_softmax", AttentionKind::kFusedSoftmax},
    {"flash", AttentionKind::kFlash},
    {"flash2", AttentionKind::kFlash2},
    {"cudnn", AttentionKind::kCudnn}};
inline constexpr EnumName<GradientAccumulation> kAccumulationArray[] = {
    {"fused_f32", GradientAccumulation::kFusedF32},
    {"separate_f32", GradientAccumulation::kSeparateF32},
    {"separate_low", GradientAccumulation::kSeparateLow}};
inline constexpr EnumName<ReplicaReduction> kReductionArray[] = {
    {"per_step", ReplicaReduction::kPerStep},
    {"of_shards_per_microbatch", ReplicaReduction::kOfShardsPerMicrobatch},
    {"per_microbatch", ReplicaReduction::kPerMicrobatch}};
inline constexpr EnumName<ContextExchange> kExchangeArray[] = {
    {"ring", ContextExchange::kRing}, {"all_gather", ContextExchange::kAllGather}};
inline constexpr EnumName<SelectiveRecompute> kSelectiveArray[] = {
    {"attention", SelectiveRecompute::kAttention},
    {"every_other", SelectiveRecompute::kEveryOther},
    {"per_operator", SelectiveRecompute::kPerOperator}};
inline constexpr EnumName<StackChoice> kChoiceArray[] = {
    {"tensor_parallel", StackChoice::kTensorParallel},
    {"sequence_parallel", StackChoice::kSequenceParallel},
    {"context_parallel", StackChoice::kContextParallel},
    {"pipeline", StackChoice::kPipeline},
    {"gpipe", StackChoice::kGpipe},
    {"interleaved", StackChoice::kInterleaved},
    {"zero_bubble", StackChoice::kZeroBubble},
    {"scatter_gather", StackChoice::kScatterGather},
    {"shard_optimizer", StackChoice::kShardOptimizer},
    {"shard_gradients", StackChoice::kShardGradients},
    {"shard_parameters", StackChoice::kShardParameters},
    {"replicated_shards", StackChoice::kReplicatedShards},
    {"recompute_selective", StackChoice::kRecomputeSelective},
    {"recompute_full", StackChoice::kRecomputeFull},
    {"recompute_layers", StackChoice::kRecomputeLayers},
    {"overlap_reductions", StackChoice::kOverlapReductions},
    {"rank_order", StackChoice::kRankOrder}};
inline constexpr std::span<const EnumName<AttentionKind>> kAttention = kAttentionArray;
inline constexpr std::span<const EnumName<GradientAccumulation>> kAccumulation = kAccumulationArray;
inline constexpr std::span<const EnumName<ContextExchange>> kExchanges = kExchangeArray;
inline constexpr std::span<const EnumName<ReplicaReduction>> kReductions = kReductionArray;
inline constexpr std::span<const EnumName<SelectiveRecompute>> kSelective = kSelectiveArray;
inline constexpr std::span<const EnumName<StackChoice>> kChoices = kChoiceArray;

}  // namespace trireme::spec
