#include "cost_models/nccl_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

#include "cost_models/collectives.h"
#include "ir/spec/load.h"
#include "tests/cost_models/nccl_output.h"
#include "tests/cost_models/small_specs.h"
#include "tests/support/text.h"

namespace trireme::cost {
namespace {

using namespace literals;
using spec::CollectiveKind;
using ::testing::HasSubstr;

std::string messageOfLog(const std::string& text, const std::string& name = "log.txt") {
  const auto sweeps = parseNcclTests(text, name);
  return sweeps.has_value() ? "" : sweeps.error().message();
}

// 1 MiB among 4 in 100 us: 2 x 3/4 x 1048576 B / 100 us = 15.73 GB/s; 4 MiB in 250 us: 25.17 GB/s.
TEST(ParseNcclTests, ReadsAnAllReduce) {
  const auto sweeps = parseNcclTests(kAllReduceOutput, "log.txt");
  ASSERT_TRUE(sweeps.has_value()) << sweeps.error().message();
  ASSERT_EQ(sweeps->size(), 1u);
  const NcclSweep& sweep = sweeps->front();
  EXPECT_EQ(sweep.kind, CollectiveKind::kAllReduce);
  EXPECT_EQ(sweep.numRanks, 4);
  ASSERT_EQ(sweep.points.size(), 2u);
  EXPECT_EQ(sweep.points[0].bytes, Bytes(1048576));
  EXPECT_NEAR(sweep.points[0].busBandwidth.count(), 15.73e9, 1e7);
  EXPECT_NEAR(sweep.points[1].busBandwidth.count(), 25.17e9, 1e7);
}

// One after the other, as when several logs are piped in.
TEST(ParseNcclTests, ReadsSeveralTests) {
  const auto sweeps = parseNcclTests(kAllReduceOutput + kSendOutput, "log.txt");
  ASSERT_TRUE(sweeps.has_value()) << sweeps.error().message();
  ASSERT_EQ(sweeps->size(), 2u);
  EXPECT_EQ((*sweeps)[1].kind, CollectiveKind::kSend);
  EXPECT_EQ((*sweeps)[1].numRanks, 2);
  // 1 MiB in 50 us, all of which crosses the link.
  EXPECT_NEAR((*sweeps)[1].points[0].busBandwidth.count(), 20.97e9, 1e7);
}

TEST(ParseNcclTests, TakesTheNameOfTheFileWhereTheTestDoesNotNameItself) {
  const std::string anonymous =
      replaced(kAllReduceOutput, "# Collective test starting: all_reduce_perf\n", "");
  EXPECT_EQ(messageOfLog(anonymous, "runs/node4.all_reduce_perf.txt"), "");
  EXPECT_EQ(messageOfLog(anonymous, "runs/all_reduce.txt"), "");
  EXPECT_THAT(messageOfLog(anonymous), HasSubstr("log.txt:9: cannot tell which test this is"));
  EXPECT_THAT(messageOfLog(anonymous, "all_reduce_perf/log.txt"), HasSubstr("cannot tell"));
  // Gathering moves half as much: the numbers do not agree with the name.
  EXPECT_THAT(
      messageOfLog(anonymous, "all_gather_perf.txt"),
      HasSubstr("all_gather_perf.txt:11: a bus bandwidth of 15.73 GB/s does not follow from "
                "the size and the time among 4 ranks, which give 7.86 GB/s"));
}

TEST(ParseNcclTests, KnowsHostsAndGpus) {
  const auto parsed = [](std::string text) { return parseNcclTests(text, "log.txt")->front(); };
  EXPECT_EQ(parsed(kAllReduceOutput).numHosts(), 1);
  EXPECT_EQ(parsed(kAllReduceOutput).gpu, "");
  std::string text = replaced(kAllReduceOutput, "on host device  3", "on other device  0");
  for (const char* place :
       {"host device  0", "host device  1", "host device  2", "other device  0"})
    text = replaced(text, place, std::string(place) + " [0x07] NVIDIA A100-SXM4-80GB");
  EXPECT_THAT(parsed(text).ranksOnHosts, ::testing::ElementsAre(3, 1));
  EXPECT_EQ(parsed(text).gpu, "NVIDIA A100-SXM4-80GB");
  std::string today = text;  // domain, bus and device
  for (size_t at; (at = today.find("[0x07]")) != std::string::npos;)
    today.replace(at, 6, "[0000:07:00]");
  EXPECT_EQ(parsed(today).gpu, "NVIDIA A100-SXM4-80GB");
  EXPECT_THAT(messageOfLog(replaced(text, "device  2 [0x07] NVIDIA A100", "device  2 [0x07] H100")),
              HasSubstr("log.txt:7: GPU 'H100-SXM4-80GB' beside 'NVIDIA A100-SXM4-80GB'"));
}

TEST(ParseNcclTests, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(messageOfLog(replaced(kAllReduceOutput, "values : 0 OK", "values : 5 FAILED")),
              HasSubstr("log.txt:14: '5' values are out of bounds"));
  EXPECT_THAT(messageOfLog(replaced(kAllReduceOutput, "NCCL version", "\xFF\xFEN")),
              HasSubstr("log.txt:1: the file is not valid UTF-8"));

  const auto with = [](const std::string& from, const std::string& to) {
    return messageOfLog(replaced(kAllReduceOutput, from, to));
  };
  EXPECT_THAT(messageOfLog(""), HasSubstr("log.txt:1: no table of nccl-tests"));
  EXPECT_THAT(with("starting: all_reduce_perf", "starting: allreduce_perf"),
              HasSubstr("log.txt:2: unknown test 'allreduce_perf'; did you mean "
                        "'all_reduce_perf'?"));
  EXPECT_THAT(with("#  Rank  2", "#  Rank  3"), HasSubstr("log.txt:7: expected rank 2, got 3"));
  EXPECT_THAT(with("busbw", "BUSBW"), ::testing::Not(HasSubstr("no column")));  // the first of two
  EXPECT_THAT(with("100.0", "1OO.0"), HasSubstr("log.txt:12: expected a time in us"));
  EXPECT_THAT(with("1048576   262144", "1048576.5 262144"),
              HasSubstr("log.txt:12: expected a size in bytes, got '1048576.5'"));
  EXPECT_THAT(with("     0    100.5", "     3    100.5"),
              HasSubstr("log.txt:12: 3 results are wrong"));
  EXPECT_THAT(with("     0    100.5", "     x    100.5"),
              HasSubstr("expected the number of wrong results or N/A, got 'x'"));
  EXPECT_EQ(with("     0    100.5", "   N/A    100.5"), "");
  // In more than five digits, and in place.
  EXPECT_THAT(with("     0    100.5", " 1.04858e+06 100.5"),
              HasSubstr("log.txt:12: 1.04858e+06 results are wrong"));
  EXPECT_THAT(with("15.65      0\n", "15.65      12\n"),
              HasSubstr("log.txt:12: 12 results are wrong"));
  EXPECT_THAT(with("   sum", ""), HasSubstr("log.txt:12: expected 13 columns as in the table's "
                                            "head, got 12"));
  EXPECT_THAT(with("     4194304", "     1048576"), HasSubstr("does not follow"));
  EXPECT_THAT(with("#  Rank  3 Group  0 Pid 10 on host device  3\n", ""),
              HasSubstr("among 3 ranks"));
  EXPECT_THAT(with("#  Rank  3 Group  0", "#  Rank  3 Group  1"),
              HasSubstr("rank 3 is in group '1': groups that run at once (NCCL_TESTS_SPLIT)"));
  EXPECT_THAT(with("#  Rank  3 Group  0", "#  Rank  3 Group  x"), HasSubstr("is in group 'x'"));
  EXPECT_EQ(with("Group  0 ", ""), "");  // versions before have none
  EXPECT_THAT(with("# Out of", "Segmentation fault\n# Out of"),
              HasSubstr("log.txt:14: expected 13 columns"));
  EXPECT_EQ(with("# Out of", "host:10:12 [0] NCCL INFO comm destroyed\n# Out of"), "");
}

// Older versions print the largest difference, which rounding explains.
TEST(ParseNcclTests, ADifferenceIsNoCount) {
  std::string text = kAllReduceOutput;
  for (size_t at; (at = text.find("#wrong")) != std::string::npos;) text.replace(at, 6, "error");
  EXPECT_EQ(messageOfLog(text), "");
  EXPECT_EQ(messageOfLog(replaced(text, "     0    100.5", " 1e-07    100.5")), "");
  EXPECT_THAT(messageOfLog(replaced(text, "     0    100.5", "     2    100.5")),
              HasSubstr("log.txt:12: results are wrong by 2"));
  EXPECT_THAT(messageOfLog(replaced(text, "     0    100.5", " 2e+05    100.5")),
              HasSubstr("log.txt:12: results are wrong by 2e+05"));
}

// Around the table, and in front of every line.
TEST(ParseNcclTests, WhatLaunchersPrintIsNoneOfIt) {
  const auto pointsOf = [](const std::string& text) {
    const auto sweeps = parseNcclTests(text, "log.txt");
    EXPECT_TRUE(sweeps.has_value()) << sweeps.error().message();
    return sweeps.has_value() ? sweeps->front().points : std::vector<spec::CollectivePoint>();
  };
  const auto expected = pointsOf(kAllReduceOutput);
  ASSERT_EQ(expected.size(), 2u);
  EXPECT_EQ(pointsOf("Warning: Permanently added 'node1' to the list of known hosts.\n" +
                     kAllReduceOutput + "\nreal\t0m3.2s\n"),
            expected);
  EXPECT_EQ(pointsOf("\xEF\xBB\xBF" + kAllReduceOutput.substr(kAllReduceOutput.find('#'))),
            expected);
  const std::string withVersion =
      replaced(kAllReduceOutput, "# Out of", "NCCL version 2.18.1+cuda12.1\n# Out of");
  for (const char* tag : {"[1,0]<stdout>:", "0: ", " 3: "}) {
    std::string tagged;
    std::istringstream lines(withVersion);
    for (std::string line; std::getline(lines, line);) tagged += tag + line + "\n";
    EXPECT_EQ(pointsOf(tagged), expected) << tag;
  }
  EXPECT_EQ(pointsOf(replaced(kAllReduceOutput, "# Out of",
                              "host:10:12 [0] ext.cc:63 NCCL WARN no plugin\n# Out of")),
            expected);
}

TEST(ParseNcclTests, ATableNeedsRowsAndRanks) {
  const std::string& text = kAllReduceOutput;
  const size_t rows = text.find("     1048576");
  EXPECT_THAT(messageOfLog(text.substr(0, rows)), HasSubstr("a table without rows"));
  const size_t head = text.find("#       size");
  EXPECT_THAT(messageOfLog(text.substr(0, head)), HasSubstr("ranks, but no table below them"));
  EXPECT_THAT(messageOfLog(text.substr(head)), HasSubstr("log.txt:1: the ranks are missing"));
  EXPECT_THAT(messageOfLog(text.substr(rows)), HasSubstr("log.txt:1: expected a comment"));
}

// One rank on each of two hosts of four, and all of them.
TEST(AddSweep, KnowsHowManyRanksAHostHad) {
  spec::ClusterSpec cluster = small::cluster(8, 4);
  NcclSweep sweep = parseNcclTests(kAllReduceOutput, "log.txt")->front();
  sweep.numRanks = 2;
  sweep.ranksOnHosts = {1, 1};
  ASSERT_TRUE(addSweep(cluster, 1, sweep, "apart").ok());
  sweep.numRanks = 8;
  sweep.ranksOnHosts = {4, 4};
  ASSERT_TRUE(addSweep(cluster, 1, sweep, "full").ok());
  ASSERT_EQ(cluster.tiers[1].curves.size(), 2u);
  EXPECT_EQ(cluster.tiers[1].curves[0].perBlock, 1);
  EXPECT_EQ(cluster.tiers[1].curves[1].perBlock, 0);
}

// Four and two are no three on each; and no more ranks are on a host than it has devices.
TEST(AddSweep, RefusesHostsThatAreNotAsTheClusters) {
  spec::ClusterSpec cluster = small::cluster(8, 4);
  NcclSweep sweep = parseNcclTests(kAllReduceOutput, "log.txt")->front();
  const auto messageOf = [&](std::vector<int64_t> ranks) {
    sweep.ranksOnHosts = std::move(ranks);
    sweep.numRanks = std::accumulate(sweep.ranksOnHosts.begin(), sweep.ranksOnHosts.end(), 0);
    return addSweep(cluster, 1, sweep, "test").message();
  };
  EXPECT_EQ(messageOf({4, 2}),
            "the test ran with 4 ranks on one host and 2 on another; expected as many on each");
  const char* const tooMany =
      "the test ran with 8 ranks on a host, hosts of cluster small have 4 devices: name a cluster "
      "of such hosts, or say 'devices_per_host: 8' in its file";
  EXPECT_EQ(messageOf({8}), tooMany);
  EXPECT_EQ(messageOf({3, 3}), "");
}

// Hosts of 8 with 100 GB/s inside and 10 GB/s out for each device: 24 GB/s of bus bandwidth are 3
// GB/s a device. Groups of another size are slower by as much.
TEST(EfficiencyOf, IsWhatLargeMessagesReachOfTheLineRate) {
  spec::ClusterSpec cluster = small::cluster(64, 8);
  NcclSweep sweep;
  sweep.kind = CollectiveKind::kAllGather;
  sweep.numRanks = 64;
  sweep.ranksOnHosts.assign(8, 8);
  sweep.points = {{Bytes(1 << 20), BytesPerSecond(5e9)}, {kLargeMessage, BytesPerSecond(24e9)}};
  EXPECT_NEAR(efficiencyOf(cluster, 1, sweep).value(), 0.3, 1e-12);
  cluster.tiers[1].oversubscription = 2;  // of what is left after it
  EXPECT_NEAR(efficiencyOf(cluster, 1, sweep).value(), 0.6, 1e-12);
  cluster.tiers[1].oversubscription = 1;

  const Levels levels = levelsOf({{32, 1}}, {64, 1, 8}, cluster);
  const Seconds before = collectiveTime(CollectiveKind::kAllGather, Bytes(1e9), levels);
  cluster.tiers[1].efficiency = 0.3;
  const Seconds after = collectiveTime(CollectiveKind::kAllGather, Bytes(1e9),
                                       levelsOf({{32, 1}}, {64, 1, 8}, cluster));
  EXPECT_NEAR(after / before, 1 / 0.3, 0.02);

  NcclSweep inside = sweep;  // of one host, by its own links
  inside.numRanks = 8;
  inside.ranksOnHosts = {8};
  EXPECT_NEAR(efficiencyOf(cluster, 0, inside).value(), 0.24, 1e-12);
  inside.numRanks = 2;  // some of its links
  inside.ranksOnHosts = {2};
  EXPECT_FALSE(efficiencyOf(cluster, 0, inside).has_value());
}

// Hosts of 8 with 10 GB/s out for each device: 80 GB/s together. Switches may make some more of it.
TEST(CheckBandwidth, RefusesWhatNoLinkOfTheTierReaches) {
  const spec::ClusterSpec cluster = small::cluster(64, 8);
  NcclSweep sweep;
  sweep.numRanks = 64;
  sweep.ranksOnHosts.assign(8, 8);
  sweep.points = {{Bytes(1 << 20), BytesPerSecond(160e9)}};
  EXPECT_TRUE(checkBandwidth(cluster, 1, sweep).ok());
  sweep.points.push_back({Bytes(1 << 30), BytesPerSecond(1e15)});
  EXPECT_THAT(checkBandwidth(cluster, 1, sweep).message(),
              HasSubstr("1000000.0 GB/s with 1.00 GiB, where the links of tier"));
  sweep.points.back().busBandwidth = BytesPerSecond(11e6);
  EXPECT_TRUE(checkBandwidth(cluster, 1, sweep).ok());
  sweep.points.back().busBandwidth = BytesPerSecond(9e6);
  EXPECT_THAT(checkBandwidth(cluster, 1, sweep).message(),
              HasSubstr("0.009 GB/s with 1.00 GiB, where a device's link of tier outer has 10.0 "
                        "GB/s: expected a thousandth"));
}

// Hosts of 8 with 80 GB/s out. One device of each has its own port's 10 GB/s, of which four times
// as much is a test of another cluster, or where the host has two ports 40, where it has one all.
TEST(CheckBandwidth, KnowsThePortsOfRanksThatDoNotFillTheirHosts) {
  spec::ClusterSpec cluster = small::cluster(64, 8);
  cluster.hostDevices = 8;
  NcclSweep sweep;
  sweep.numRanks = 8;
  sweep.ranksOnHosts.assign(8, 1);
  const auto takes = [&](int64_t ports, double gbps) {
    cluster.tiers[1].nics = ports;
    sweep.points = {{Bytes(1 << 30), BytesPerSecond(gbps * 1e9)}};
    return checkBandwidth(cluster, 1, sweep).ok();
  };
  EXPECT_TRUE(takes(8, 39));
  EXPECT_FALSE(takes(8, 41));
  EXPECT_TRUE(takes(2, 159));
  EXPECT_FALSE(takes(2, 161));
  EXPECT_TRUE(takes(1, 319));
  EXPECT_TRUE(takes(0, 319));  // not known
  EXPECT_FALSE(takes(1, 321));
}

TEST(EfficiencyOf, IsNoneWhereItDoesNotFollow) {
  const spec::ClusterSpec cluster = small::cluster(64, 8);
  NcclSweep sweep;
  sweep.kind = CollectiveKind::kAllReduce;
  sweep.numRanks = 64;
  sweep.ranksOnHosts.assign(8, 8);
  sweep.points = {{kLargeMessage, BytesPerSecond(24e9)}};
  ASSERT_TRUE(efficiencyOf(cluster, 1, sweep).has_value());
  const auto isNone = [&](auto change) {
    NcclSweep other = sweep;
    change(other);
    return !efficiencyOf(cluster, 1, other).has_value();
  };
  EXPECT_TRUE(isNone([](NcclSweep& s) { s.points[0].bytes = kLargeMessage * 0.5; }));
  EXPECT_TRUE(isNone([](NcclSweep& s) { s.points[0].busBandwidth = BytesPerSecond(81e9); }));
  EXPECT_TRUE(isNone([](NcclSweep& s) { s.points[0].busBandwidth = BytesPerSecond(100e9); }));
  EXPECT_TRUE(isNone([](NcclSweep& s) { s.kind = CollectiveKind::kAllToAll; }));
  EXPECT_TRUE(isNone([](NcclSweep& s) {
    s.numRanks = 32;
    s.ranksOnHosts.assign(8, 4);
  }));
}

TEST(AddSweep, ReplacesTheCurveOfTheSameGroup) {
  spec::ClusterSpec cluster = small::cluster(8, 4);
  NcclSweep sweep = parseNcclTests(kAllReduceOutput, "log.txt")->front();
  ASSERT_TRUE(addSweep(cluster, 0, sweep, "first").ok());
  sweep.points.pop_back();
  ASSERT_TRUE(addSweep(cluster, 0, sweep, "second").ok());
  ASSERT_EQ(cluster.tiers[0].curves.size(), 1u);
  EXPECT_EQ(cluster.tiers[0].curves[0].source, "second");
  EXPECT_EQ(cluster.tiers[0].curves[0].points.size(), 1u);
  sweep.numRanks = 8;
  EXPECT_EQ(addSweep(cluster, 0, sweep, "third").message(),
            "tier inner of cluster small joins 4 devices, the test ran on 8");
}

}  // namespace
}  // namespace trireme::cost
