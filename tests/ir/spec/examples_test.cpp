// Every file under examples/ loads, so none can fall behind the loaders.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "ir/spec/load.h"
#include "ir/spec/profile.h"
#include "tests/ir/spec/spec_test_util.h"
#include "tests/ir/spec/tier_for.h"

namespace trireme::spec {
namespace {

std::vector<std::string> filesIn(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(examplePath(folder)))
    if (entry.is_regular_file()) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(Examples, ModelsLoadAndRoundTrip) {
  const std::vector<std::string> paths = filesIn("models");
  EXPECT_GE(paths.size(), 10u);
  for (const std::string& path : paths) {
    const Result<ModelSpec> model = loadModel(path);
    ASSERT_TRUE(model.has_value()) << messageOf(model);
    EXPECT_EQ(parseModel(printModel(*model), path).value(), *model);
  }
}

TEST(Examples, ProfilesLoadAndRoundTrip) {
  for (const std::string& path : filesIn("profiles")) {
    const Result<ProfileSpec> profile = loadProfile(path);
    ASSERT_TRUE(profile.has_value()) << messageOf(profile);
    EXPECT_EQ(parseProfile(printProfile(*profile), path).value(), *profile);
  }
}

ClusterSpec loadedCluster(const std::string& path) {
  const Result<ClusterSpec> cluster = loadCluster(path);
  EXPECT_TRUE(cluster.has_value()) << messageOf(cluster);
  return cluster.value_or(ClusterSpec{});
}

TEST(Examples, ClustersLoadResizeAndRoundTrip) {
  for (const std::string& path : filesIn("clusters")) {
    const ClusterSpec cluster = loadedCluster(path);
    EXPECT_EQ(parseCluster(printCluster(cluster).value(), path).value(), cluster) << path;
    const int64_t inner = cluster.tiers.size() > 1 ? cluster.tiers[0].devices : 1;
    EXPECT_TRUE(withNumDevices(cluster, inner).has_value()) << path;
    EXPECT_TRUE(withNumDevices(cluster, 16 * inner).has_value()) << path;
  }
}

// Half the bits, twice the rate, on every device that has both formats, to the digits of data
// sheets (362 and 733 TFLOP/s); fp4 is three times fp8 on Blackwell Ultra. Large products reach a
// good part of the peak but on cards that their power limit holds down, and before tensor cores,
// where sums in f32 halve the rate of f16.
TEST(Examples, DevicesAreSane) {
  for (const std::string& path : filesIn("clusters")) {
    const DeviceSpec device = loadedCluster(path).device;
    if (device.kind == DeviceKind::kHost) continue;
    const auto ratio = [&](MathFormat narrow, MathFormat wide) {
      const PeakRate *a = device.peak(narrow), *b = device.peak(wide);
      return a && b ? a->rate / b->rate : 2;
    };
    ASSERT_NE(device.peak(MathFormat::kF16), nullptr) << path;
    EXPECT_NEAR(ratio(MathFormat::kF8, MathFormat::kF16), 2, 0.03) << path;
    if (const PeakRate* bf16 = device.peak(MathFormat::kBf16)) {
      EXPECT_EQ(bf16->rate, device.peak(MathFormat::kF16)->rate) << path;
    }
    EXPECT_NEAR(ratio(MathFormat::kF4, MathFormat::kF8), 2.5, 0.51) << path;
    EXPECT_GT(ratio(MathFormat::kF16, MathFormat::kF32), 1.9) << path;
    EXPECT_NEAR(ratio(MathFormat::kF16, MathFormat::kTf32), 2, 0.03) << path;
    EXPECT_EQ(device.peak(MathFormat::kTf32) != nullptr, device.peak(MathFormat::kBf16) != nullptr)
        << path;  // both since Ampere
    const bool isHeldDown = device.power.count() < 100 || device.computeCapability < 7;
    EXPECT_GE(device.matmulEfficiency, isHeldDown ? 0.3 : 0.45) << path;
    EXPECT_GE(device.numMultiprocessors, 40) << path;
    EXPECT_GT(device.memory, Bytes(14 * 1073741824.0)) << path;
    EXPECT_LT(device.memory, Bytes(300 * 1073741824.0)) << path;
    const double balance =
        device.peak(MathFormat::kF16)->rate.count() / device.memoryBandwidth.count();
    EXPECT_GT(balance, 25) << path;  // 29 of a P100, 37 of an H20
    EXPECT_LT(balance, 450) << path;
    EXPECT_GE(device.power, Watts(70)) << path;
    EXPECT_LE(device.power, Watts(1400)) << path;
  }
}

// NVLink is faster than the network, the network between 1 and 800 Gbit/s per device; a port is one
// that exists; curves stay below twice the line rate (in-switch reduction) and grow from their
// first point to their last.
TEST(Examples, TiersAreSane) {
  for (const std::string& path : filesIn("clusters")) {
    const ClusterSpec cluster = loadedCluster(path);
    if (cluster.device.kind == DeviceKind::kHost) continue;
    const LinkTier& inner = cluster.tiers.front();
    EXPECT_TRUE(inner.devices == 2 || inner.devices == 4 || inner.devices == 8 ||
                inner.devices == 16 || inner.devices == 72)
        << path;
    for (const LinkTier& tier : cluster.tiers) {
      EXPECT_GE(tier.efficiency, 0.4) << path;
      EXPECT_GE(tier.latency, Seconds(1e-6)) << path;
      EXPECT_LE(tier.latency, Seconds(50e-6)) << path;
      for (const CollectiveCurve& curve : tier.curves) {
        EXPECT_LT(curve.points.front().busBandwidth, curve.points.back().busBandwidth) << path;
        for (const CollectivePoint& point : curve.points)
          EXPECT_LT(point.busBandwidth, 2 * tier.bandwidth) << path;
      }
    }
    if (cluster.tiers.size() == 1) continue;
    const LinkTier& network = cluster.tiers.back();
    EXPECT_GT(inner.sustained(), network.sustained()) << path;
    EXPECT_TRUE(cluster.scalable) << path;
    ASSERT_GT(network.nics, 0) << path;
    const int64_t sharing = cluster.tiers[cluster.tiers.size() - 2].devices;
    const double port = network.bandwidth.count() * 8e-9 * static_cast<double>(sharing) /
                        static_cast<double>(network.nics);
    EXPECT_TRUE(port == 10 || port == 25 || port == 50 || port == 100 || port == 200 ||
                port == 400 || port == 800)
        << path << ": " << port << " Gbit/s";
  }
}

// What is known of a system is what its file gives: rates per device, groups per tier.
TEST(Examples, ClustersAreTheNamedSystems) {
  struct System {
    const char* name;
    const char* device;
    int64_t island;
    double nvlink, network;  // GB/s per device and direction
  };
  for (const System& s : {System{"dgx-1p", "P100-16GB-SXM", 8, 80, 6.25},
                          System{"dgx-1v", "V100-32GB-SXM", 8, 150, 6.25},
                          System{"dgx-2", "V100-32GB-SXM", 16, 150, 6.25},
                          System{"p3-16xlarge", "V100-16GB-SXM", 8, 150, 0.390625},
                          System{"dgx-a100", "A100-80GB-SXM", 8, 300, 25},
                          System{"dgx-a100-40gb", "A100-40GB-SXM", 8, 300, 25},
                          System{"a100-4x200", "A100-80GB-SXM", 8, 300, 12.5},
                          System{"a100-4x100", "A100-80GB-SXM", 8, 300, 6.25},
                          System{"a100-100g", "A100-80GB-SXM", 8, 300, 1.5625},
                          System{"p4d", "A100-40GB-SXM", 8, 300, 6.25},
                          System{"dgx-h100", "H100-80GB-SXM", 8, 450, 50},
                          System{"p5", "H100-80GB-SXM", 8, 450, 50},
                          System{"h100-800g", "H100-80GB-SXM", 8, 450, 12.5},
                          System{"h100-pcie", "H100-80GB-PCIe", 8, 64, 12.5},
                          System{"grand-teton", "H100-96GB-HBM2e-SXM", 8, 450, 50},
                          System{"dgx-h200", "H200-141GB-SXM", 8, 450, 50},
                          System{"dgx-b200", "B200-180GB-SXM", 8, 900, 50},
                          System{"gb200-nvl72", "GB200-192GB", 72, 900, 50},
                          System{"gb300-nvl72", "GB300-288GB", 72, 900, 100},
                          System{"dgx-b300", "B300-288GB-SXM", 8, 900, 100},
                          System{"hgx-a800", "A800-80GB-SXM", 8, 200, 25},
                          System{"hgx-h800", "H800-80GB-SXM", 8, 200, 50},
                          System{"hgx-h20", "H20-96GB-SXM", 8, 450, 50},
                          System{"a10g", "A10G-24GB", 8, 32, 1.5625},
                          System{"a40", "A40-48GB", 8, 32, 3.125},
                          System{"l40s", "L40S-48GB", 8, 32, 6.25},
                          System{"l4", "L4-24GB", 8, 32, 1.5625},
                          System{"t4", "T4-16GB", 4, 16, 1.5625},
                          System{"rtx3090", "RTX-3090-24GB", 8, 32, 0.15625},
                          System{"rtx4090", "RTX-4090-24GB", 8, 32, 0.15625},
                          System{"rtx5090", "RTX-5090-32GB", 8, 64, 0.15625},
                          System{"rtx-a6000", "RTX-A6000-48GB", 8, 32, 3.125},
                          System{"rtx6000-ada", "RTX-6000-Ada-48GB", 8, 32, 3.125},
                          System{"rtx-pro-6000", "RTX-PRO-6000-96GB", 8, 64, 25}}) {
    const ClusterSpec cluster = loadedCluster(s.name);
    EXPECT_EQ(cluster.name, s.name);
    EXPECT_EQ(cluster.device.name, s.device) << s.name;
    ASSERT_EQ(cluster.tiers.size(), 2u) << s.name;
    EXPECT_EQ(cluster.tiers[0].devices, s.island) << s.name;
    EXPECT_EQ(cluster.tiers[0].bandwidth.count(), s.nvlink * 1e9) << s.name;
    EXPECT_EQ(cluster.tiers[1].bandwidth.count(), s.network * 1e9) << s.name;
  }
}

// Pairs share bridges, a machine's four pairs PCIe.
TEST(Examples, CardsWithBridgesArePairs) {
  const ClusterSpec cluster = loadedCluster("h100-nvl");
  EXPECT_EQ(cluster.device.name, "H100-NVL-94GB");
  ASSERT_EQ(cluster.tiers.size(), 3u);
  EXPECT_EQ(cluster.tiers[0].devices, 2);
  EXPECT_EQ(cluster.tiers[1].devices, 8);
  EXPECT_EQ(cluster.devicesPerHost(), 8);
  EXPECT_EQ(tierFor(cluster, 2).name, "nvlink");
  EXPECT_EQ(tierFor(cluster, 3).name, "pcie");
  EXPECT_GT(cluster.tiers[0].sustained(), 5 * cluster.tiers[1].sustained());
  EXPECT_GT(cluster.tiers[1].sustained(), cluster.tiers[2].sustained());
}

// Eight pods of 3,072 GPUs, which send each other a seventh of what they send within.
TEST(Examples, PodsOfLlama3AreBelowAnOversubscribedTier) {
  const ClusterSpec cluster = loadedCluster("llama3-24k");
  ASSERT_EQ(cluster.tiers.size(), 3u);
  EXPECT_EQ(cluster.tiers[1].devices, 3072);
  EXPECT_EQ(cluster.tiers[2].devices, 8 * 3072);
  EXPECT_EQ(cluster.tiers[2].topology, TierTopology::kTree);
  EXPECT_NEAR(cluster.tiers[1].sustained() / cluster.tiers[2].sustained(), 7, 1e-12);
  EXPECT_EQ(tierFor(cluster, 3072).name, "pod");
  EXPECT_EQ(tierFor(cluster, 3073).name, "aggregation");
}

// NCCL on eight V100 of a hybrid cube mesh: a ring of two devices has one link, one of eight all.
TEST(Examples, MeshCurvesShowThatAPairHasFewLinks) {
  const LinkTier mesh = loadedCluster("dgx-1v").tiers[0];
  ASSERT_EQ(mesh.curves.size(), 7u);
  const auto best = [](const CollectiveCurve& curve) { return curve.points.back().busBandwidth; };
  EXPECT_EQ(mesh.curves.front().group, 2);
  EXPECT_LE(best(mesh.curves.front()), mesh.pairBandwidth);
  EXPECT_EQ(mesh.curves.back().group, 8);
  EXPECT_GT(best(mesh.curves.back()), 5 * mesh.pairBandwidth);
}

TEST(Examples, StacksAreSane) {
  for (const std::string& path : filesIn("stacks")) {
    const Result<StackProfile> stack = loadStack(path);
    ASSERT_TRUE(stack.has_value()) << messageOf(stack);
    EXPECT_EQ(std::filesystem::path(path).stem().string(), stack->name);
    if (stack->ownPrograms) continue;
    const StackDescription& d = stack->description;
    // Mixed precision with Adam: 16 bytes per parameter, 18 with gradients in f32.
    const double state = d.parameterBytes + d.gradientBytes + d.optimizerBytes;
    EXPECT_TRUE(state == 16 || state == 18) << path << ": " << state;
    EXPECT_GE(d.elementwiseFactor, 1) << path;
    EXPECT_NEAR(d.matmulFactor, 0.75, 0.36) << path;
    EXPECT_LE(d.hostLaunch, Seconds(1e-4)) << path;
    // An optimizer with masters in f32 takes gradients in f32; XLA makes none (Alpa). One that
    // works on all tensors at once holds as much again.
    const bool makesF32 = d.gradientBytes < 4 && stack->name != "alpa";
    const bool isForeach = stack->name == "accelerate";
    EXPECT_EQ(d.stepGradientBytes, makesF32 || isForeach ? 4 : 0) << path;
    EXPECT_LE(d.slowdownPerDoubling, 0.01) << path;
    const bool isCompared = stack->name != "deepspeed" && stack->name != "accelerate";
    EXPECT_EQ(std::min(d.fasterRuns, d.slowerRuns) > 0, isCompared) << path;
    EXPECT_LE(std::max(d.fasterRuns, d.slowerRuns), 0.15) << path;
    EXPECT_LE(std::max(d.fasterElsewhere, d.slowerElsewhere), 0.5) << path;
    EXPECT_TRUE(stack->supports(StackChoice::kScatterGather) || !d.scatterGather) << path;
    EXPECT_TRUE(stack->supports(StackChoice::kPipeline) ||
                !stack->supports(StackChoice::kInterleaved))
        << path;
  }
}

// What a planner gets without a stack file is what the file says.
TEST(Examples, QuickstartFitsTogether) {
  const Result<ModelSpec> model = loadModel(examplePath("quickstart/model.yaml"));
  ASSERT_TRUE(model.has_value()) << messageOf(model);
  const Result<TrainingSpec> training =
      loadTraining(examplePath("quickstart/train.yaml"), Precision::kFp32);
  ASSERT_TRUE(training.has_value()) << messageOf(training);
  const Status fits = verifyTraining(*training, *model);
  EXPECT_TRUE(fits.ok()) << fits.message();
  const Result<ClusterSpec> cluster = loadCluster(examplePath("quickstart/cluster.yaml"));
  ASSERT_TRUE(cluster.has_value()) << messageOf(cluster);
  EXPECT_EQ(cluster->numDevices, 8);
  EXPECT_EQ(cluster->device.kind, DeviceKind::kHost);
}

TEST(Examples, StacksOfOthersSayWhatTheirProgramsDo) {
  const auto load = [](const std::string& name) {
    return loadStack(examplePath("stacks/" + name + ".yaml")).value();
  };
  EXPECT_GT(load("torchtitan").description.workingLayers, 0);
  EXPECT_EQ(load("torchtitan-compiled").description.workingLayers, 0);
  EXPECT_EQ(load("torchtitan").description.logitBytes, 14);
  for (const char* name : {"megatron-core", "nemo", "nemo-fp8-current", "nemo-fp8-mx"}) {
    const StackDescription& stack = load(name).description;  // all Transformer Engine's
    EXPECT_TRUE(stack.keepsNarrow) << name;
    EXPECT_GE(stack.f8CopyBytes, 2) << name;
    EXPECT_EQ(stack.gathersF8, std::string(name) != "megatron-core");
  }
  EXPECT_EQ(load("torchtitan-compiled-fp8-rowwise").description.f8CopyBytes, 0);
  EXPECT_GT(load("deepspeed-zero3").description.shardedPortEfficiency, 0);
  EXPECT_TRUE(load("composer-fsdp").supports(StackChoice::kShardParameters));
  EXPECT_FALSE(load("composer-fsdp").supports(StackChoice::kPipeline));
}

}  // namespace
}  // namespace trireme::spec
