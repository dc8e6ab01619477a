#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/spec/load.h"
#include "tests/ir/spec/spec_test_util.h"
#include "tests/ir/spec/tier_for.h"

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

Result<ClusterSpec> clusterFrom(const std::string& text) { return parseCluster(text, "c.yaml"); }
std::string with(const std::string& from, const std::string& to) {
  return messageOf(clusterFrom(replaced(kCluster, from, to)));
}
ClusterSpec cluster() { return clusterFrom(kCluster).value(); }

TEST(ParseCluster, ReadsEveryNumberInItsUnit) {
  const ClusterSpec c = cluster();
  EXPECT_EQ(c.name, "two-boxes");
  EXPECT_EQ(c.device.kind, DeviceKind::kCuda);
  ASSERT_EQ(c.device.matmul.size(), 2u);
  EXPECT_EQ(c.device.matmul[0], (PeakRate{MathFormat::kF32, FlopsPerSecond(19.5e12)}));
  EXPECT_EQ(c.device.matmul[1], (PeakRate{MathFormat::kBf16, FlopsPerSecond(312e12)}));
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
  EXPECT_THAT(with("value: 5 us", "value: 5 s"),
              HasSubstr("tiers[0].latency: must be at most 1 s, got 5 s"));
  EXPECT_THAT(with("value: 0.8", "value: 1.2"),
              HasSubstr("device.matmul_efficiency: an efficiency is at most 1, got 1.2"));
  EXPECT_THAT(with("value: 0.8", "value: 0"),
              HasSubstr("device.matmul_efficiency: must be above 0"));
}

// A thousand or eight times as much is a slip of the unit; of a GPU, for hosts multiply f32 best.
TEST(ParseCluster, SlipsOfUnitsShow) {
  EXPECT_EQ(
      with("312 TFLOP/s", "312 GFLOP/s"),
      "c.yaml:7:5: device.matmul: bf16 is slower with 312 GFLOP/s than f32 with 19.5 TFLOP/s: "
      "is a unit wrong?");
  EXPECT_THAT(with("80 GiB", "80 TiB"), HasSubstr("device.memory: must be at most 4 TB on a GPU"));
  const std::string host = replaced(kCluster, "kind: cuda", "kind: host");
  EXPECT_TRUE(clusterFrom(replaced(host, "312 TFLOP/s", "312 GFLOP/s")).has_value());
  const auto port = [](const char* bandwidth) {
    return with("200 Gbit/s, source: a}",
                std::string(bandwidth) + ", source: a}\n    nics: {value: 8, source: a}");
  };
  EXPECT_THAT(
      port("450 GB/s"),
      HasSubstr("tiers[1].bandwidth: of 450 GB/s a device is 3600 Gbit/s a port (8 ports for "
                "8 devices), faster than any: is it Gbit/s instead of GB/s?"));
  EXPECT_EQ(port("400 Gbit/s"), "(no error)");
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
  EXPECT_THAT(messageOf(clusterFrom(text)),
              HasSubstr("device.matmul: needs the rate of at least one of"));
}

TEST(ParseCluster, TiersNestAndTheLastSpansAll) {
  EXPECT_THAT(with("name: ib\n", "name: ib\n    devices: 12\n"),
              HasSubstr("tiers[1].devices: must be a multiple of the tier before (8), got 12"));
  EXPECT_THAT(with("    devices: 8\n", "    devices: 0\n"),
              HasSubstr("tiers[0].devices: must be at least 1, got 0"));
  EXPECT_THAT(with("name: ib\n", "name: ib\n    devices: 24\n"),
              HasSubstr("the last tier must span all 16 devices, got 24"));
  EXPECT_THAT(with("    devices: 8\n", ""), HasSubstr("tiers[0].devices: missing"));
  EXPECT_THAT(with("name: ib", "name: nvlink"),
              HasSubstr("tiers[1].name: is 'nvlink', as of a tier before"));
  EXPECT_THAT(with("num_devices: 16", "num_devices: 12"),
              HasSubstr("num_devices: must be a multiple of the 8 devices of a block of the tier "
                        "before the last, got 12; nearest: 8 or 16"));
  EXPECT_THAT(messageOf(clusterFrom(std::string(kCluster, std::string(kCluster).find("tiers")) +
                                    "tiers: []\n")),
              HasSubstr("tiers: expected a list of tiers, innermost first, got an empty one"));
}

// A node of eight devices with one port between them, in racks of two nodes.
const char* kTiers =
    "tiers:\n"
    "  - name: nvlink\n"
    "    topology: mesh\n"
    "    devices: 8\n"
    "    bandwidth: {value: 150 GB/s, source: a}\n"
    "    efficiency: {value: 0.8, source: b}\n"
    "    pair_bandwidth: {value: 50 GB/s, source: c}\n"
    "    latency: {value: 5 us, source: d}\n"
    "    curves:\n"
    "      - collective: all_reduce\n"
    "        group: 8\n"
    "        source: measured\n"
    "        points: [[1 MiB, 20 GB/s], [2 MiB, 35 GB/s]]\n"
    "      - {collective: send, group: 2, source: measured, points: [[1 GiB, 48 GB/s]]}\n"
    "  - name: leaf\n"
    "    topology: rails\n"
    "    bandwidth: {value: 12.5 Gbit/s, source: e}\n"
    "    nics: {value: 1, source: f}\n"
    "    oversubscription: {value: 4, source: g}\n"
    "    latency: {value: 10 us, source: h}\n";

std::string tiersText() {
  const std::string head = kCluster;
  return head.substr(0, head.find("tiers")) + kTiers;
}
std::string withTiers(const std::string& from, const std::string& to) {
  return messageOf(clusterFrom(replaced(tiersText(), from, to)));
}

TEST(ParseCluster, TiersSayHowTheyAreJoined) {
  const auto parsed = clusterFrom(tiersText());
  ASSERT_TRUE(parsed.has_value()) << messageOf(parsed);
  const LinkTier& nvlink = parsed->tiers[0];
  EXPECT_EQ(nvlink.topology, TierTopology::kMesh);
  EXPECT_EQ(nvlink.efficiency, 0.8);
  EXPECT_EQ(nvlink.pairBandwidth, 50_GBps);
  ASSERT_EQ(nvlink.curves.size(), 2u);
  EXPECT_EQ(nvlink.curves[0],
            (CollectiveCurve{CollectiveKind::kAllReduce,
                             8,
                             {{Bytes(1048576), 20_GBps}, {Bytes(2097152), 35_GBps}},
                             "measured"}));
  EXPECT_EQ(nvlink.curves[1].kind, CollectiveKind::kSend);
  EXPECT_EQ(nvlink.curves[1].perBlock, 0);
  const LinkTier& leaf = parsed->tiers[1];
  EXPECT_EQ(leaf.topology, TierTopology::kRails);
  EXPECT_EQ(leaf.nics, 1);
  EXPECT_EQ(leaf.oversubscription, 4);
  // What a file does not say: a switch, its line rate reached, nothing oversubscribed.
  EXPECT_EQ(cluster().tiers[1].topology, TierTopology::kSwitch);
  EXPECT_EQ(cluster().tiers[1].sustained(), 25_GBps);
}

// nvlink: 150 GB/s x 0.8 = 120 GB/s. leaf: 12.5 Gbit/s = 1.5625 GB/s, a quarter of it when all
// send.
TEST(LinkTier, SustainedIsWhatIsLeftOfTheLineRate) {
  const ClusterSpec c = clusterFrom(tiersText()).value();
  EXPECT_EQ(c.tiers[0].sustained(), 120_GBps);
  EXPECT_EQ(c.tiers[1].sustained().count(), 1.5625e9 / 4);
}

// Alone, a pair of the mesh has two of six links, 50 GB/s x 0.8; a device has the port of its node
// to itself, 8 x 1.5625 GB/s; without ports it has its own rate.
TEST(SustainedPair, IsOnePortOrTheLinksOfAPair) {
  const ClusterSpec c = clusterFrom(tiersText()).value();
  EXPECT_EQ(c.sustainedPair(0), 40_GBps);
  EXPECT_EQ(c.sustainedPair(1).count(), 12.5e9);
  EXPECT_EQ(cluster().sustainedPair(0), 300_GBps);
  EXPECT_EQ(cluster().sustainedPair(1), 25_GBps);
}

// One port for the eight devices of a node; without ports each has its own. Of a rack's 72 ports
// four are those of a tray of four.
TEST(PortsPerHost, AreItsShareOfThoseOfABlock) {
  EXPECT_EQ(clusterFrom(tiersText())->portsPerHost(1), 1);
  ClusterSpec nodes = cluster();
  EXPECT_EQ(nodes.portsPerHost(1), static_cast<double>(nodes.tiers[0].devices));
  ClusterSpec racks = loadCluster("gb200-nvl72").value();
  EXPECT_EQ(racks.portsPerHost(1), 4);
  racks.tiers[1].nics = 2;
  EXPECT_EQ(racks.portsPerHost(1), 1);
}

TEST(ParseCluster, NumbersHaveLimits) {
  EXPECT_THAT(withTiers("value: 1, source: f", "value: 99999999999, source: f"),
              HasSubstr("tiers[1].nics: must be at most 16777216, got 99999999999"));
  EXPECT_THAT(withTiers("35 GB/s", "1e-9 B/s"),
              HasSubstr("points[1]: must be at least 1 B/s, got 1e-09 B/s"));
  EXPECT_THAT(withTiers("35 GB/s", "1e30 GB/s"),
              HasSubstr("points[1]: must be at most 1e+18 B/s, got 1e+39 B/s"));
}

TEST(ParseCluster, TiersMustMakeSense) {
  EXPECT_EQ(withTiers("value: 4, source: g", "value: 0.5, source: g"),
            "c.yaml:32:23: tiers[1].oversubscription: is what devices can send over what the tier "
            "carries, so at least 1, got 0.5");
  EXPECT_THAT(withTiers("topology: mesh", "topology: meshes"),
              HasSubstr("tiers[0].topology: unknown value 'meshes'; did you mean 'mesh'?"));
  EXPECT_THAT(withTiers("value: 1, source: f", "value: 0, source: f"),
              HasSubstr("tiers[1].nics: must be above 0"));
  EXPECT_THAT(withTiers("value: 1, source: f", "value: 1.5, source: f"),
              HasSubstr("tiers[1].nics: value: expected a whole number, got '1.5'"));
  EXPECT_THAT(withTiers("oversubscription: {value: 4", "pair_bandwidth: {value: 1 GB/s"),
              HasSubstr("tiers[1].pair_bandwidth: follows from nics: remove one of them"));
}

TEST(ParseCluster, CurvesMustMakeSense) {
  EXPECT_EQ(withTiers("[2 MiB, 35", "[1 MiB, 35"),
            "c.yaml:26:36: tiers[0].curves[0].points[1]: sizes must increase, 1 MiB does not after "
            "1 MiB");
  EXPECT_THAT(withTiers("35 GB/s", "0 GB/s"),
              HasSubstr("points[1]: the size and the bus bandwidth must be above 0"));
  EXPECT_THAT(withTiers("[2 MiB, 35 GB/s]", "[2 MiB]"),
              HasSubstr("points[1]: expected a size and a bus bandwidth such as [1 MiB, 45 GB/s], "
                        "got a list"));
  EXPECT_THAT(withTiers("35 GB/s", "35 GB"), HasSubstr("points[1]: '35 GB': unknown unit"));
  EXPECT_THAT(withTiers("[[1 GiB, 48 GB/s]]", "[]"),
              HasSubstr("tiers[0].curves[1].points: expected a list of points such as [[1 MiB, 45 "
                        "GB/s]], got an empty one"));
  EXPECT_THAT(withTiers("group: 8", "group: 16"),
              HasSubstr("tiers[0].curves[0].group: must be at most the 8 devices of the tier, got "
                        "16"));
  EXPECT_THAT(withTiers("group: 8", "group: 1"),
              HasSubstr("tiers[0].curves[0].group: must be at least 2 devices, got 1"));
  EXPECT_THAT(withTiers("collective: send, group: 2", "collective: all_reduce, group: 8"),
              HasSubstr("curves[1].group: there is a curve of all_reduce among 8 devices already"));
  EXPECT_THAT(withTiers("group: 8\n", "group: 8\n        per_block: 3\n"),
              HasSubstr("curves[0].per_block: must divide the group of 8, got 3"));
  EXPECT_THAT(withTiers("source: measured\n", "source: ' '\n"),
              HasSubstr("curves[0].source: is empty: say where the curve comes from"));
  EXPECT_THAT(withTiers("        source: measured\n", ""),
              HasSubstr("tiers[0].curves[0].source: missing"));
  EXPECT_THAT(withTiers("all_reduce", "allreduce"),
              HasSubstr("curves[0].collective: unknown value 'allreduce'; did you mean "
                        "'all_reduce'?"));
}

// A scalable cluster may have been measured at another size than the file's.
TEST(ParseCluster, CurveOfTheLastTierMayBeOfALargerCluster) {
  const std::string curve =
      "    curves: [{collective: all_reduce, group: 64, source: m, points: [[1 GiB, 9 GB/s]]}]\n";
  EXPECT_THAT(messageOf(clusterFrom(tiersText() + curve)),
              HasSubstr("must be at most the 16 devices"));
  EXPECT_THAT(
      messageOf(clusterFrom(replaced(tiersText(), "group: 8", "group: 16") + "scalable: true\n")),
      HasSubstr("tiers[0].curves[0].group: must be at most the 8 devices of the tier"));
  const auto scalable = clusterFrom(tiersText() + curve + "scalable: true\n");
  ASSERT_TRUE(scalable.has_value()) << messageOf(scalable);
  EXPECT_EQ(withNumDevices(*scalable, 8)->tiers[1].curves.size(), 1u);
}

TEST(ParseCluster, KeepsTheSourceOfEveryNumber) {
  const ClusterSpec c = clusterFrom(tiersText()).value();
  EXPECT_EQ(c.sources.at("device.matmul.bf16"), "a");
  EXPECT_EQ(c.sources.at("device.launch_overhead"), "b");
  EXPECT_EQ(c.sources.at("tiers[0].pair_bandwidth"), "c");
  EXPECT_EQ(c.sources.at("tiers[1].latency"), "h");
  EXPECT_EQ(c.sources.size(), 7u + 8u);  // seven of the device, four of each tier
}

TEST(ParseCluster, DeviceMayHaveTilingPowerAndNarrowFormats) {
  const ClusterSpec c =
      clusterFrom(replaced(kCluster, "  matmul_efficiency",
                           "    f8: {value: 624 TFLOP/s, source: a}\n"
                           "    f4: {value: 1248 TFLOP/s, source: a}\n"
                           "  multiprocessors: {value: 108, source: a}\n"
                           "  power: {value: 400 W, source: a}\n"
                           "  tile_delivery: {value: 27, source: a}\n"
                           "  depth_ramp: {value: 120, source: a}\n"
                           "  wave_share: {value: 0.9, source: a}\n"
                           "  batched_matmul_efficiency: {value: 0.95, source: a}\n"
                           "  flash2_forward: {value: 0.6, source: a}\n"
                           "  flash2_backward: {value: 0.5, source: a}\n"
                           "  matmul_efficiency"))
          .value();
  EXPECT_EQ(c.device.numMultiprocessors, 108);
  EXPECT_EQ(c.device.power, Watts(400));
  EXPECT_EQ(c.device.tileDelivery, 27);
  EXPECT_EQ(c.device.depthRamp, 120);
  EXPECT_EQ(c.device.waveShare, 0.9);
  EXPECT_EQ(c.device.batchedMatmulEfficiency, 0.95);
  EXPECT_EQ(c.device.attentionRate(AttentionKind::kFlash2).backward, 0.5);
  EXPECT_EQ(c.device.attentionRate(AttentionKind::kCudnn).backward, c.device.attentionEfficiency);
  EXPECT_EQ(clusterFrom(printCluster(c).value()).value(), c);
  EXPECT_EQ(c.device.peak(MathFormat::kF8)->rate, FlopsPerSecond(624e12));
  EXPECT_EQ(c.device.peak(MathFormat::kF4)->rate, FlopsPerSecond(1248e12));
  EXPECT_EQ(c.device.peak(MathFormat::kF64), nullptr);
  EXPECT_EQ(cluster().device.numMultiprocessors, 0);  // not known
  EXPECT_THAT(with("  matmul_efficiency",
                   "  compute_capability: {value: 90, source: a}\n  matmul_efficiency"),
              HasSubstr("device.compute_capability: must be at most 20, as 9.0 for sm_90, got 90"));
  EXPECT_THAT(
      with("  matmul_efficiency", "  multiprocessors: {value: 0, source: a}\n  matmul_efficiency"),
      HasSubstr("device.multiprocessors: must be above 0"));
}

const char* kByName =
    "name: by-name\n"
    "num_devices: 16\n"
    "device: a100-80gb-sxm\n"
    "tiers:\n"
    "  - nvswitch-a100\n"
    "  - name: ib\n"
    "    bandwidth: {value: 200 Gbit/s, source: a}\n"
    "    latency: {value: 10 us, source: b}\n";

TEST(ParseCluster, DeviceAndTiersMayBeShippedOnes) {
  const auto c = clusterFrom(kByName);
  ASSERT_TRUE(c.has_value()) << messageOf(c);
  EXPECT_EQ(c->device.name, "A100-80GB-SXM");
  EXPECT_EQ(c->device.numMultiprocessors, 108);
  EXPECT_THAT(c->sources.at("device.multiprocessors"), HasSubstr("NVIDIA A100"));
  ASSERT_EQ(c->tiers.size(), 2u);
  EXPECT_EQ(c->tiers[0].name, "nvlink");
  EXPECT_EQ(c->tiers[0].devices, 8);
  EXPECT_FALSE(c->tiers[0].curves.empty());
  EXPECT_EQ(clusterFrom(printCluster(*c).value()).value(), *c);
}

TEST(ParseCluster, UnknownDevicesAndLinksListTheNearest) {
  EXPECT_EQ(messageOf(clusterFrom(replaced(kByName, "a100-80gb-sxm", "a100-80gb-smx"))),
            "c.yaml:3:9: device: unknown device 'a100-80gb-smx'; did you mean 'a100-80gb-sxm'?");
  EXPECT_EQ(messageOf(clusterFrom(replaced(kByName, "nvswitch-a100", "nvswich-a100"))),
            "c.yaml:5:5: tiers[0]: unknown link 'nvswich-a100'; did you mean 'nvswitch-a100'?");
  EXPECT_THAT(messageOf(clusterFrom(replaced(kByName, "device: a100-80gb-sxm", "device: [1]"))),
              HasSubstr("c.yaml:3:9: device: expected a map of keys and values, got a list"));
}

TEST(PrintCluster, RoundTripsWithSources) {
  for (const std::string& text : {std::string(kCluster), tiersText()}) {
    const ClusterSpec c = clusterFrom(text).value();
    const auto printed = printCluster(c);
    ASSERT_TRUE(printed.has_value()) << messageOf(printed);
    EXPECT_EQ(clusterFrom(*printed).value(), c) << *printed;
  }
  EXPECT_THAT(printCluster(cluster()).value(), HasSubstr("  memory: {value: 80 GiB, source: a}\n"));
}

TEST(PrintCluster, RefusesANumberWithoutASource) {
  ClusterSpec c = cluster();
  c.sources.erase("device.memory");
  EXPECT_EQ(messageOf(printCluster(c)),
            "printed cluster:11:11: device.memory: the source is empty: say where the number comes "
            "from");
  c = cluster();
  c.device.power = Watts(300);
  EXPECT_THAT(messageOf(printCluster(c)), HasSubstr("device.power: the source is empty"));
}

TEST(TierFor, IsTheInnermostThatHoldsTheSpan) {
  const ClusterSpec c = cluster();
  EXPECT_EQ(tierFor(c, 1).name, "nvlink");
  EXPECT_EQ(tierFor(c, 8).name, "nvlink");
  EXPECT_EQ(tierFor(c, 9).name, "ib");
  EXPECT_EQ(tierFor(c, 16).name, "ib");
  EXPECT_EQ(tierFor(c, 1000).name, "ib");
}

// A host is the largest inner tier of at most 16 devices: one board of 8, which has pairs, in pods
// of 64. A rack of 72 is none, so its file says how many are.
TEST(DevicesPerHost, AreOfATierUnlessTheFileSaysOtherwise) {
  ClusterSpec c = cluster();
  EXPECT_EQ(c.devicesPerHost(), 8);
  c.tiers.insert(c.tiers.begin(), c.tiers[0]);
  c.tiers[0].devices = 2;
  c.tiers.insert(c.tiers.begin() + 2, c.tiers[1]);
  c.tiers[2].devices = 64;
  EXPECT_EQ(c.devicesPerHost(), 8);
  const auto shipped = [](const std::string& name) {
    return loadCluster(examplePath("clusters/" + name + ".yaml")).value().devicesPerHost();
  };
  EXPECT_EQ(shipped("gb200-nvl72"), 4);
  EXPECT_EQ(shipped("gb300-nvl72"), 4);
  EXPECT_EQ(shipped("dgx-2"), 16);
  EXPECT_EQ(shipped("t4"), 4);
  EXPECT_EQ(shipped("llama3-24k"), 8);
  EXPECT_EQ(shipped("a100-pcie"), 8);
  const ClusterSpec said =
      clusterFrom(replaced(kCluster, "device:\n", "devices_per_host: 4\ndevice:\n")).value();
  EXPECT_EQ(said.devicesPerHost(), 4);
  EXPECT_EQ(clusterFrom(printCluster(said).value()).value(), said);
  EXPECT_EQ(with("device:\n", "devices_per_host: 0\ndevice:\n"),
            "c.yaml:3:19: devices_per_host: must be 1 to 16777216, got 0");
  EXPECT_EQ(with("device:\n", "devices_per_host: 3\ndevice:\n"),
            "c.yaml:3:19: devices_per_host: must divide the 8 devices of a block of tier nvlink, "
            "got 3; nearest: 2");
  EXPECT_THAT(with("device:\n", "devices_per_host: 128\ndevice:\n"),
              HasSubstr("must divide the 16 devices of the cluster, got 128; nearest: 16"));
  EXPECT_EQ(clusterFrom(replaced(kCluster, "device:\n", "devices_per_host: 16\ndevice:\n"))
                ->devicesPerHost(),
            16);  // two blocks
  c = withNumDevices(cluster(), 4).value();
  EXPECT_EQ(c.devicesPerHost(), 4);
  c.tiers = {{"ethernet", 1024, 1_GBps, 5_us}};
  EXPECT_EQ(c.devicesPerHost(), 0);
  c.tiers = {{"ethernet", 8, 1_GBps, 5_us}};
  EXPECT_EQ(c.devicesPerHost(), 8);
  // Ports or rails join machines, here of one GPU each; and leaves of 16 are none either.
  c.tiers[0].nics = 1;
  EXPECT_EQ(c.devicesPerHost(), 1);
  c.tiers[0].nics = 0;
  c.tiers[0].topology = TierTopology::kRails;
  EXPECT_EQ(c.devicesPerHost(), 1);
  c = cluster();
  c.tiers[1].devices = 16;
  c.tiers[1].nics = 8;
  c.tiers.push_back(c.tiers[1]);
  c.tiers[2].devices = 64;
  EXPECT_EQ(c.devicesPerHost(), 8);
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
  EXPECT_EQ(tierFor(c, 4).name, "nvlink");
}

TEST(WithNumDevices, RefusesBrokenGroups) {
  EXPECT_EQ(messageOf(withNumDevices(cluster(), 12)),
            "12 devices are not a whole number of groups of 8 (nvlink of cluster 'two-boxes'); "
            "nearest: 8 or 16");
  EXPECT_THAT(messageOf(withNumDevices(cluster(), 0)), HasSubstr("1 to 16777216 devices, not 0"));
  EXPECT_THAT(messageOf(withNumDevices(cluster(), kMaxDevices + 8)), HasSubstr("not 16777224"));
}

// In whole boxes of 8, where there may be more.
TEST(WithRoomFor, GrowsScalableClusters) {
  ClusterSpec c = cluster();
  EXPECT_EQ(withRoomFor(c, 75)->numDevices, c.numDevices);
  c.scalable = true;
  EXPECT_EQ(withRoomFor(c, 9)->numDevices, c.numDevices);
  EXPECT_EQ(withRoomFor(c, 75)->numDevices, 80);
  EXPECT_EQ(withRoomFor(c, 80)->numDevices, 80);
  EXPECT_THAT(messageOf(withRoomFor(c, kMaxDevices + 1)), HasSubstr("1 to 16777216 devices"));
}

// Groups of 4 in groups of 8: 18 is nearest to 16 and 24; 20 has whole groups of 4 only.
TEST(WithNumDevices, NearestCountHasWholeGroupsOfEveryTier) {
  ClusterSpec c = cluster();
  c.tiers.insert(c.tiers.begin(), c.tiers[0]);
  c.tiers[0].devices = 4;
  EXPECT_THAT(messageOf(withNumDevices(c, 18)), HasSubstr("nearest: 16 or 24"));
}

TEST(WithNumDevices, LeavesOutCurvesThatNoLongerFit) {
  const ClusterSpec c = withNumDevices(clusterFrom(tiersText()).value(), 4).value();
  ASSERT_EQ(c.tiers[0].curves.size(), 1u);
  EXPECT_EQ(c.tiers[0].curves[0].group, 2);
  EXPECT_EQ(clusterFrom(printCluster(c).value()).value(), c);
}

TEST(LoadCluster, OnlyAFileThatSaysSoIsScalable) {
  EXPECT_TRUE(loadCluster(examplePath("clusters/dgx-a100.yaml")).value().scalable);
  EXPECT_FALSE(cluster().scalable);
}

// 0.4 of the peak in f8, 0.9 in f32, 0.6 in tf32, 0.7 in f16, and what the device says for all
// others.
TEST(LoadCluster, FormatsMayHaveSharesOfTheirOwn) {
  const auto c =
      clusterFrom(replaced(kCluster, "tiers:\n",
                           "  f8_matmul_efficiency: {value: 0.4, source: m}\n"
                           "  f32_matmul_efficiency: {value: 0.9, source: m}\n"
                           "  tf32_matmul_efficiency: {value: 0.6, source: m}\n"
                           "  f16_matmul_efficiency: {value: 0.7, source: m}\ntiers:\n"));
  ASSERT_TRUE(c.has_value()) << c.error().message();
  EXPECT_EQ(c->device.matmulShare(MathFormat::kF8), 0.4);
  EXPECT_EQ(c->device.matmulShare(MathFormat::kF32), 0.9);
  EXPECT_EQ(c->device.matmulShare(MathFormat::kTf32), 0.6);
  EXPECT_EQ(c->device.matmulShare(MathFormat::kF16), 0.7);
  EXPECT_EQ(c->device.matmulShare(MathFormat::kBf16), c->device.matmulEfficiency);
  EXPECT_EQ(cluster().device.matmulShare(MathFormat::kF32), cluster().device.matmulEfficiency);
  EXPECT_EQ(clusterFrom(printCluster(*c).value()).value(), *c);
}

TEST(ShippedDevice, IsReadAlone) {
  Sources sources;
  const auto device = shippedDevice("a100-80gb-sxm", &sources);
  ASSERT_TRUE(device.has_value()) << device.error().message();
  EXPECT_EQ(*device, loadCluster("dgx-a100").value().device);
  EXPECT_TRUE(sources.contains("device.memory_bandwidth"));
  EXPECT_THAT(shippedDevice("a100", &sources).error().message(), HasSubstr("unknown device"));
}

// The kernels of a device, behind its other numbers.
std::string withKernels(const std::string& kernels) {
  return replaced(kCluster, "tiers:\n", "  kernels:\n" + kernels + "tiers:\n");
}
const char* const kMatmulKernel =
    "    - {kernel: matmul, dtype: f32, source: m, call: 1 us, product: 17.5 ps}\n";

TEST(ParseKernels, ReadsTimesPerUnit) {
  for (const char* kind : {"kind: cuda", "kind: host"})
    EXPECT_TRUE(clusterFrom(replaced(withKernels(kMatmulKernel), "kind: cuda", kind)).has_value());
  const auto c = clusterFrom(withKernels(kMatmulKernel));
  ASSERT_TRUE(c.has_value()) << c.error().message();
  ASSERT_EQ(c->device.kernels.size(), 1u);
  const KernelTiming* matmul = c->device.kernel("matmul", DType::kF32);
  ASSERT_NE(matmul, nullptr);
  EXPECT_EQ(matmul->per[static_cast<size_t>(KernelUnit::kCall)], Seconds(1e-6));
  EXPECT_EQ(matmul->per[static_cast<size_t>(KernelUnit::kProduct)], Seconds(17.5e-12));
  EXPECT_EQ(matmul->per[static_cast<size_t>(KernelUnit::kRow)], Seconds(0));
  EXPECT_EQ(c->device.kernel("matmul", DType::kBf16), nullptr);
  EXPECT_EQ(c->device.kernel("gelu", DType::kF32), nullptr);
  const auto again = clusterFrom(printCluster(*c).value());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, *c);
}

TEST(ParseKernels, RefusesWhatMakesNoSense) {
  const auto message = [](const std::string& from, const std::string& to) {
    return messageOf(clusterFrom(withKernels(replaced(kMatmulKernel, from, to))));
  };
  EXPECT_THAT(message("matmul", "matmull"),
              HasSubstr("c.yaml:15:16: device.kernels[0].kernel: unknown kernel 'matmull'; did you "
                        "mean 'matmul'?"));
  EXPECT_THAT(message("f32", "i32"),
              HasSubstr("kernels[0].dtype: must be f64, f32, bf16 or f16, got 'i32'"));
  EXPECT_THAT(message("17.5 ps", "17.5"), HasSubstr("a bare number has no unit"));
  EXPECT_THAT(message("17.5 ps", "-1 ps"),
              HasSubstr("device.kernels[0].product: must not be negative"));
  EXPECT_THAT(message(", call: 1 us, product: 17.5 ps", ""), HasSubstr("takes no time"));
  EXPECT_THAT(message("source: m", "source: ' '"), HasSubstr("is empty: say where the times"));
  EXPECT_THAT(message("product", "produkt"),
              HasSubstr("unknown key 'produkt'; did you mean 'product'?"));
  EXPECT_THAT(messageOf(clusterFrom(withKernels(std::string(kMatmulKernel) + kMatmulKernel))),
              HasSubstr("kernels[1].kernel: there is a matmul in f32 already"));
}

}  // namespace
}  // namespace trireme::spec
