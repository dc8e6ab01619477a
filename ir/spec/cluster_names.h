// How cluster files name things, for their loader and their printer.
#pragma once
#include "ir/spec/cluster_spec.h"
#include "ir/spec/map_reader.h"

namespace trireme::spec {

inline constexpr EnumName<DeviceKind> kKindArray[] = {{"host", DeviceKind::kHost},
                                                      {"cuda", DeviceKind::kCuda}};
inline constexpr EnumName<TierTopology> kTopologyArray[] = {{"switch", TierTopology::kSwitch},
                                                            {"mesh", TierTopology::kMesh},
                                                            {"bus", TierTopology::kBus},
                                                            {"rails", TierTopology::kRails},
                                                            {"tree", TierTopology::kTree}};
inline constexpr EnumName<CollectiveKind> kCollectiveArray[] = {
    {"all_reduce", CollectiveKind::kAllReduce},         {"all_gather", CollectiveKind::kAllGather},
    {"reduce_scatter", CollectiveKind::kReduceScatter}, {"all_to_all", CollectiveKind::kAllToAll},
    {"broadcast", CollectiveKind::kBroadcast},          {"send", CollectiveKind::kSend}};
inline constexpr EnumName<AttentionKind> kFlashArray[] = {{"flash", AttentionKind::kFlash},
                                                          {"flash2", AttentionKind::kFlash2},
                                                          {"cudnn", AttentionKind::kCudnn}};
inline constexpr EnumName<KernelUnit> kKernelUnits[] = {
    {"call", KernelUnit::kCall},
    {"row", KernelUnit::kRow},
    {"element", KernelUnit::kElement},
    {"product", KernelUnit::kProduct},
    {"input", KernelUnit::kInput},
    {"output", KernelUnit::kOutput},
    {"weight", KernelUnit::kWeight},
    {"score", KernelUnit::kScore},
    {"dropped_score", KernelUnit::kDroppedScore},
    {"far_element", KernelUnit::kFarElement}};
inline constexpr std::span<const EnumName<AttentionKind>> kFlashKinds = kFlashArray;
inline constexpr std::span<const EnumName<DeviceKind>> kKinds = kKindArray;
inline constexpr std::span<const EnumName<TierTopology>> kTopologies = kTopologyArray;
inline constexpr std::span<const EnumName<CollectiveKind>> kCollectives = kCollectiveArray;
inline constexpr MathFormat kFormats[] = {MathFormat::kF64,  MathFormat::kF32, MathFormat::kTf32,
                                          MathFormat::kBf16, MathFormat::kF16, MathFormat::kF8,
                                          MathFormat::kF4};

}  // namespace trireme::spec
