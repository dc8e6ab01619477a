#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/spec/load.h"
#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {
using ::testing::HasSubstr;
using namespace trireme::literals;

const char* kCluster =
    "name: two-boxes\n"
    "num_devices: 16\n"
    "device:\n"
    "  name: gpu\n"
    "  kind: cuda\n"
    "  matmul:\n"
    "    bf16: {value: 312 TFLOP/s, source: a}\n"
    "    f32: {value: 19.5 TFLOP/s, source: a}\n"
    "  matmul_efficiency: {value: 0.8, source: b}\n"
    "  memory: {value: 80 GiB, source: a}\n"
    "  memory_bandwidth: {value: 2039 GB/s, source: a}\n"
    "  memory_efficiency: {value: 0.9, source: b}\n"
    "  launch_overhead: {value: 2 us, source: b}\n"
    "tiers:\n"
    "  - name: nvlink\n"
    "    devices: 8\n"
    "    bandwidth: {value: 300 GB/s, source: a}\n"
    "    latency: {value: 5 us, source: b}\n"
    "  - name: ib\n"
    "    bandwidth: {value: 200 Gbit/s, source: a}\n"
    "    latency: {value: 10 us, source: b}\n";

const char* kStack =
    "name: s\n"
    "flash_attention: false\n"
    "overlap_gradient_reduction: true\n"
    "overlap_pipeline_transfers: false\n"
    "fixed_reserve: {value: 2 GiB, source: a}\n";

Result<ClusterSpec> parse(const std::string& text) { return parseCluster(text, "c.yaml"); }
std::string with(const std::string& from, const std::string& to) {
  return messageOf(parse(replaced(kCluster, from, to)));
}
ClusterSpec cluster() { return parse(kCluster).value(); }

TEST(ParseCluster, ReadsEveryNumberInItsUnit) {
  const ClusterSpec c = cluster();
  EXPECT_EQ(c.name, "two-boxes");
  EXPECT_EQ(c.device.kind, DeviceKind::kCuda);
  ASSERT_EQ(c.device.matmul.size(), 2u);
  EXPECT_EQ(c.device.matmul[0], (PeakRate{DType::kF32, FlopsPerSecond(19.5e12)}));
  EXPECT_EQ(c.device.matmul[1], (PeakRate{DType::kBf16, FlopsPerSecond(312e12)}));
  EXPECT_EQ(c.device.matmulEfficiency, 0.8);
  EXPECT_EQ(c.device.attentionEfficiency, 0.8);  // as products, unless the file says otherwise
  EXPECT_EQ(c.device.memory, 80_GiB);
  EXPECT_EQ(c.device.memoryBandwidth, 2039_GBps);
  EXPECT_EQ(c.device.memoryEfficiency, 0.9);
  EXPECT_EQ(c.device.launchOverhead, Seconds(2e-6));
  ASSERT_EQ(c.tiers.size(), 2u);
  EXPECT_EQ(c.tiers[0], (LinkTier{"nvlink", 8, 300_GBps, Seconds(5e-6)}));
  EXPECT_EQ(c.tiers[1], (LinkTier{"ib", 16, 25_GBps, Seconds(1e-5)}));
}

TEST(ParseCluster, NumberWithoutASourceDoesNotLoad) {
  EXPECT_EQ(with("memory: {value: 80 GiB, source: a}", "memory: 80 GiB"),
            "c.yaml:10:11: device.memory: a number needs a source; write {value: 80 GiB, source: "
            "\"who says so\"}");
  EXPECT_EQ(with("memory: {value: 80 GiB, source: a}", "memory: {value: 80 GiB}"),
            "c.yaml:10:11: device.memory.source: missing");
  EXPECT_EQ(with("memory: {value: 80 GiB, source: a}", "memory: {value: 80 GiB, source: ' '}"),
            "c.yaml:10:11: device.memory: the source is empty: say where the number comes from");
}

TEST(ParseCluster, NumberWithoutAUnitDoesNotLoad) {
  EXPECT_THAT(with("80 GiB", "80"),
              HasSubstr("c.yaml:10:19: device.memory: value: '80': a bare number has no unit"));
  EXPECT_THAT(with("300 GB/s", "300 GB"),
              HasSubstr("tiers[0].bandwidth: value: '300 GB': unknown unit"));
}

TEST(ParseCluster, NestedKeysAreCheckedToo) {
  EXPECT_EQ(with("launch_overhead", "launch_overhed"),
            "c.yaml:13:3: device: unknown key 'launch_overhed'; did you mean 'launch_overhead'?");
  EXPECT_EQ(with("  kind: cuda\n", ""), "c.yaml:4:3: device.kind: missing");
  EXPECT_THAT(with("kind: cuda", "kind: gpu"), HasSubstr("device.kind: unknown value 'gpu'"));
  EXPECT_THAT(
      with("bf16: {value: 312 TFLOP/s, source: a}", "bf17: {value: 312 TFLOP/s, source: a}"),
      HasSubstr("device.matmul: unknown key 'bf17'; did you mean"));
  EXPECT_THAT(with("80 GiB, source: a", "80 GiB, sauce: a"),
              HasSubstr("device.memory: unknown key 'sauce'; did you mean 'source'?"));
}

TEST(ParseCluster, ValuesMustMakeSense) {
  EXPECT_THAT(with("num_devices: 16", "num_devices: 0"), HasSubstr("num_devices: must be 1 to"));
  EXPECT_THAT(with("80 GiB", "0 GiB"), HasSubstr("device.memory: must be above 0"));
  EXPECT_THAT(with("80 GiB", "-1 GiB"), HasSubstr("device.memory: must be above 0"));
  EXPECT_THAT(with("value: 5 us", "value: -5 us"),
              HasSubstr("tiers[0].latency: must not be negative"));
  EXPECT_THAT(with("value: 0.8", "value: 1.2"),
              HasSubstr("device.matmul_efficiency: an efficiency is at most 1, got 1.2"));
  EXPECT_THAT(with("value: 0.8", "value: 0"),
              HasSubstr("device.matmul_efficiency: must be above 0"));
}

TEST(ParseCluster, AttentionMayHaveAnEfficiencyOfItsOwn) {
  const std::string text = replaced(kCluster, "  matmul_efficiency: {value: 0.8, source: b}\n",
                                    "  matmul_efficiency: {value: 0.8, source: b}\n"
                                    "  attention_efficiency: {value: 0.5, source: c}\n");
  const auto cluster = parseCluster(text, "c.yaml");
  ASSERT_TRUE(cluster.has_value()) << cluster.error().message();
  EXPECT_EQ(cluster->device.matmulEfficiency, 0.8);
  EXPECT_EQ(cluster->device.attentionEfficiency, 0.5);
}

TEST(ParseCluster, DeviceNeedsAMatmulRate) {
  const std::string text =
      replaced(replaced(kCluster, "    bf16: {value: 312 TFLOP/s, source: a}\n", ""),
               "  matmul:\n    f32: {value: 19.5 TFLOP/s, source: a}\n", "  matmul: {}\n");
  EXPECT_THAT(messageOf(parse(text)),
              HasSubstr("device.matmul: needs the rate of at least one of"));
}

TEST(ParseCluster, TiersNestAndTheLastSpansAll) {
  EXPECT_THAT(with("name: ib\n", "name: ib\n    devices: 12\n"),
              HasSubstr("tiers[1].devices: must be a multiple of the tier before (8), got 12"));
  EXPECT_THAT(with("name: ib\n", "name: ib\n    devices: 24\n"),
              HasSubstr("the last tier must span all 16 devices, got 24"));
  EXPECT_THAT(with("    devices: 8\n", ""), HasSubstr("tiers[0].devices: missing"));
  EXPECT_THAT(with("num_devices: 16", "num_devices: 12"),
              HasSubstr("must be a multiple of the tier before (8), got 12"));
  EXPECT_THAT(
      messageOf(parse(std::string(kCluster, std::string(kCluster).find("tiers")) + "tiers: []\n")),
      HasSubstr("tiers: expected a list of tiers, innermost first, got an empty one"));
}

TEST(TierFor, IsTheInnermostThatHoldsTheSpan) {
  const ClusterSpec c = cluster();
  EXPECT_EQ(c.tierFor(1).name, "nvlink");
  EXPECT_EQ(c.tierFor(8).name, "nvlink");
  EXPECT_EQ(c.tierFor(9).name, "ib");
  EXPECT_EQ(c.tierFor(16).name, "ib");
  EXPECT_EQ(c.tierFor(1000).name, "ib");
}

TEST(WithNumDevices, GrowsTheLastTier) {
  const ClusterSpec c = withNumDevices(cluster(), 1024).value();
  EXPECT_EQ(c.numDevices, 1024);
  EXPECT_EQ(c.tiers[0].devices, 8);
  EXPECT_EQ(c.tiers[1].devices, 1024);
}

TEST(WithNumDevices, ShrinksInnerTiersToTheCluster) {
  const ClusterSpec c = withNumDevices(cluster(), 4).value();
  EXPECT_EQ(c.tiers[0].devices, 4);
  EXPECT_EQ(c.tiers[1].devices, 4);
  EXPECT_EQ(c.tierFor(4).name, "nvlink");
}

TEST(WithNumDevices, RefusesBrokenGroups) {
  EXPECT_EQ(messageOf(withNumDevices(cluster(), 12)),
            "12 devices are not a whole number of groups of 8 (nvlink of cluster 'two-boxes'); "
            "nearest: 8 or 16");
  EXPECT_THAT(messageOf(withNumDevices(cluster(), 0)), HasSubstr("1 to 16777216 devices, not 0"));
  EXPECT_THAT(messageOf(withNumDevices(cluster(), kMaxDevices + 8)), HasSubstr("not 16777224"));
}

// Groups of 4 in groups of 8: 18 is nearest to 16 and 24; 20 has whole groups of 4 only.
TEST(WithNumDevices, NearestCountHasWholeGroupsOfEveryTier) {
  ClusterSpec c = cluster();
  c.tiers.insert(c.tiers.begin(), c.tiers[0]);
  c.tiers[0].devices = 4;
  EXPECT_THAT(messageOf(withNumDevices(c, 18)), HasSubstr("nearest: 16 or 24"));
}

TEST(LoadCluster, OnlyAFileThatSaysSoIsScalable) {
  EXPECT_TRUE(loadCluster(examplePath("clusters/dgx-a100.yaml")).value().scalable);
  EXPECT_FALSE(cluster().scalable);
}

TEST(ParseStack, ReadsEveryChoice) {
  const StackProfile s = parseStack(kStack, "s.yaml").value();
  EXPECT_EQ(s, (StackProfile{.name = "s",
                             .flashAttention = false,
                             .optimizerBytesPerParameter = 0,
                             .overlapGradientReduction = true,
                             .overlapPipelineTransfers = false,
                             .fixedReserve = 2_GiB}));
}

TEST(ParseStack, OptimizerBytesNeedASource) {
  const std::string key = "optimizer_bytes_per_parameter: ";
  EXPECT_THAT(messageOf(parseStack(kStack + key + "12\n", "s.yaml")),
              HasSubstr("s.yaml:6:32: optimizer_bytes_per_parameter: a number needs a source"));
  EXPECT_EQ(
      parseStack(kStack + key + "{value: 12, source: a}\n", "s.yaml")->optimizerBytesPerParameter,
      12);
}

TEST(ParseStack, NothingIsDefaulted) {
  EXPECT_EQ(messageOf(parseStack("name: s\n", "s.yaml")),
            "s.yaml:1:1: flash_attention, overlap_gradient_reduction, overlap_pipeline_transfers, "
            "fixed_reserve: missing");
}

}  // namespace
}  // namespace trireme::spec
