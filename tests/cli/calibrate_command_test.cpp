#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/calibrate/measure_cluster.h"
#include "ir/program/op.h"
#include "ir/spec/load.h"
#include "tests/cli/command.h"
#include "tests/cost_models/nccl_output.h"

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;

class CalibrateCommand : public CommandTest {
 protected:
  Outcome calibrate(const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"calibrate"};
    args.insert(args.end(), more.begin(), more.end());
    return runTrireme(args);
  }
  std::string log = write("all_reduce.txt", cost::kAllReduceOutput);
};

TEST_F(CalibrateCommand, CompletesAClusterWithTheCurvesOfNcclTests) {
  const std::string measured = path("measured.yaml");
  const Outcome outcome =
      calibrate({"--nccl-tests", log, "--cluster", "dgx-a100", "--name", "ours", "-o", measured});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("all_reduce among 4, 2 sizes, up to 25.2 GB/s: tier nvlink"));
  EXPECT_THAT(outcome.err, HasSubstr("note: " + log +
                                     ":5: the table of all_reduce among 4 ends at "
                                     "4.00 MiB, larger ones are extrapolated"));
  const auto cluster = spec::loadCluster(measured);
  ASSERT_TRUE(cluster.has_value()) << cluster.error().message();
  EXPECT_EQ(cluster->name, "ours");
  const auto& curves = cluster->tiers[0].curves;
  const auto found = std::find_if(curves.begin(), curves.end(), [](const auto& curve) {
    return curve.kind == spec::CollectiveKind::kAllReduce && curve.group == 4;
  });
  ASSERT_NE(found, curves.end());
  EXPECT_EQ(found->points.size(), 2u);
  EXPECT_EQ(found->source, "nccl-tests, " + log + ":5");
}

// One GPU in each of four hosts measures the network.
TEST_F(CalibrateCommand, ATestOfSeveralHostsIsOfTheNetwork) {
  std::string text = cost::kAllReduceOutput;
  for (const char* rank : {"0", "1", "2", "3"})
    text = replaced(text, std::string("on host device  ") + rank,
                    std::string("on host") + rank + " device  0 [0x07] NVIDIA A100-SXM4-80GB");
  const std::string hosts = write("all_reduce.txt", text);
  const Outcome outcome = calibrate({"--nccl-tests", hosts, "--cluster", "dgx-a100"});
  expectSuccess(outcome);
  EXPECT_THAT(
      calibrate({"--nccl-tests", hosts, "--cluster", "dgx-a100", "-o", path("o.yaml")}).out,
      HasSubstr("all_reduce among 4 (1 on each host), 2 sizes, up to 25.2 GB/s: tier infiniband"));
  expectRefusal(calibrate({"--nccl-tests", hosts, "--cluster", "dgx-a100", "--tier", "nvlink"}), 1,
                {"--tier nvlink is within a host, and the test ran on 4 hosts"});
  expectRefusal(calibrate({"--nccl-tests", hosts, "--cluster", "dgx-h100"}), 1,
                {hosts + ":5: cluster 'dgx-h100' has H100-80GB-SXM and the test ran on 'NVIDIA "
                         "A100-SXM4-80GB'"});
}

TEST_F(CalibrateCommand, SaysWhatATestDoesNotTell) {
  const Outcome inside = calibrate({"--nccl-tests", log, "--cluster", "dgx-a100"});
  EXPECT_THAT(inside.err, HasSubstr("note: tier nvlink keeps its efficiency of 0."));
  EXPECT_THAT(inside.err, HasSubstr("no test tells it (all_reduce among 4: "));
  const Outcome messages =
      calibrate({"--nccl-tests", write("send.txt", cost::kSendOutput), "--cluster", "dgx-a100"});
  expectSuccess(messages);
  EXPECT_THAT(messages.err, HasSubstr("the table of send is kept, and no prediction goes by it"));
}

// And one host does not.
TEST_F(CalibrateCommand, ATestOfOneHostIsOfNoNetwork) {
  expectRefusal(calibrate({"--nccl-tests", log, "--cluster", "dgx-a100", "--tier", "infiniband"}),
                1, {"--tier infiniband joins hosts, and the test ran on one; nearest: nvlink"});
}

// It would be the source of the curve, and clusters are UTF-8.
TEST_F(CalibrateCommand, AFileWhoseNameIsNoTextIsRefused) {
  const std::string odd = write("odd\xff.txt", cost::kAllReduceOutput);
  expectRefusal(calibrate({"--nccl-tests", odd, "--cluster", "dgx-a100"}), 1,
                {"the file's name is no UTF-8: rename it"});
}

// A PCIe card has other links than an SXM module; not every name says what it is.
TEST_F(CalibrateCommand, ATestOfOtherGpusIsRefused) {
  const auto testOn = [&](const std::string& gpu, const std::string& cluster) {
    std::string text = cost::kAllReduceOutput;
    for (const char* rank : {"0", "1", "2", "3"}) {
      const std::string device = std::string("device  ") + rank;
      text = replaced(text, device + "\n", device + " [0x07] " + gpu + "\n");
    }
    return calibrate({"--nccl-tests", write("all_reduce.txt", text), "--cluster", cluster});
  };
  expectSuccess(testOn("NVIDIA H100 80GB HBM3", "dgx-h100"));
  expectSuccess(testOn("NVIDIA A100-SXM4-40GB", "dgx-a100"));  // links are the same
  expectRefusal(testOn("NVIDIA H100 PCIe", "dgx-h100"), 1,
                {"'dgx-h100' has H100-80GB-SXM and the test ran on 'NVIDIA H100 PCIe'"});
  expectRefusal(testOn("NVIDIA H100 NVL", "dgx-h100"), 1, {"'NVIDIA H100 NVL'"});
}

TEST_F(CalibrateCommand, TwoTestsOfTheSameAreRefused) {
  const std::string again = write("all_reduce_again.txt", cost::kAllReduceOutput);
  expectRefusal(calibrate({"--nccl-tests", log, again, "--cluster", "dgx-a100"}), 1,
                {again + ":5: all_reduce among 4 in tier nvlink is already that of " + log +
                 ":5: give one of the two"});
}

TEST_F(CalibrateCommand, WithoutAnOutputTheFileGoesToStdout) {
  const Outcome outcome =
      calibrate({"--nccl-tests", log, "--cluster", "dgx-a100", "--tier", "nvlink"});
  expectSuccess(outcome);
  EXPECT_TRUE(spec::parseCluster(outcome.out, "stdout").has_value());
  const Outcome json = calibrate({"--nccl-tests", log, "--cluster", "dgx-a100", "--json"});
  expectSuccess(json);
  EXPECT_EQ(nlohmann::json::parse(json.out)["cluster"], "dgx-a100");
}

TEST_F(CalibrateCommand, RefusesWhatMakesNoSense) {
  expectRefusal(calibrate({"--nccl-tests", log}), 2, {"--cluster"});
  expectRefusal(calibrate({"--cluster", "dgx-a100"}), 2, {"--nccl-tests"});
  expectRefusal(calibrate({"--nccl-tests", log, "--cluster", "dgx-a100", "--ranks", "2"}), 2,
                {"--ranks"});
  expectRefusal(calibrate({"--nccl-tests", log, "--cluster", "dgx-a100", "--precision", "fp32"}), 2,
                {"--precision"});
  expectRefusal(calibrate({"--gpu", "--precision", "fp32"}), 2, {"--precision"});
  expectRefusal(calibrate({"--precision", "fp33"}), 2, {"--precision", "did you mean 'fp32'"});
  expectRefusal(calibrate({"--ranks", "0"}), 2, {"--ranks", "at least 1"});
  expectRefusal(calibrate({"--ranks", "4096"}), 1, {"--ranks 4096: must be at most 1024"});
  const std::string pair =
      write("pair.yaml", replaced(kTinyCluster, "num_devices: 8", "num_devices: 2"));
  expectRefusal(calibrate({"--nccl-tests", log, "--cluster", pair}), 1,
                {log + ":5", "the test ran on 4 ranks", "has 2 devices"});
  expectRefusal(calibrate({"--nccl-tests", log, "--cluster", "dgx-a100", "--tier", "nvlnk"}), 1,
                {"no such tier; did you mean 'nvlink'?"});
  const std::string damaged = write("damaged.txt", cost::kAllReduceOutput + "8 x\n");
  expectRefusal(calibrate({"--nccl-tests", damaged, "--cluster", "dgx-a100"}), 1,
                {damaged + ":17: expected 13 columns"});
  expectRefusal(calibrate({"--nccl-tests", path("none"), "--cluster", "dgx-a100"}), 1,
                {path("none"), "cannot read"});
}

TEST_F(CalibrateCommand, WritesNothingOverWhatItReadsNorAfterAnError) {
  expectRefusal(calibrate({"--nccl-tests", log, "--cluster", "dgx-a100", "-o", log}), 1,
                {"-o", "is also --nccl-tests"});
  expectRefusal(calibrate({"--ranks", "1", "-o", path("no/such/folder.yaml")}), 1,
                {"cannot write"});
  const std::string damaged = write("damaged.txt", cost::kAllReduceOutput + "8 x\n");
  expectRefusal(calibrate({"--nccl-tests", damaged, "--cluster", "dgx-a100", "-o", path("o.yaml")}),
                1, {damaged});
  EXPECT_FALSE(std::filesystem::exists(path("o.yaml")));
}

TEST(MeasurementSource, SaysWhoMeasuredWhenAndWhere) {
  EXPECT_THAT(measurementSource(2),
              ::testing::MatchesRegex("measured on 20[0-9-]+ by trireme calibrate [0-9.]+ on .+, 2 "
                                      "ranks at once on [0-9]+ cores"));
}

#if TRIREME_HAVE_MLIR
// A thousand TiB of operands are refused before any is touched.
TEST(MeasureCluster, RefusesMoreThanThereIsMemory) {
  MeasureOptions options;
  options.numRanks = 2;
  options.types = {DType::kF32};
  options.footprint = int64_t{1} << 51;
  options.progress = [](double, const std::string&) {};
  const auto measured = measureCluster(options);
  ASSERT_FALSE(measured.has_value());
  EXPECT_EQ(measured.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(measured.error().message(), ::testing::HasSubstr("2 ranks at once take"));
  EXPECT_THAT(measured.error().message(), ::testing::HasSubstr("measure fewer (--ranks)"));
}

// In a hurry: each kernel a few times. What it says is another matter.
TEST(MeasureCluster, GivesAFileThatLoads) {
  MeasureOptions options;
  options.numRanks = 2;
  options.name = "tiny";
  options.source = "a test";
  options.types = {DType::kF32};
  options.window = Seconds(1e-5);
  options.footprint = int64_t{1} << 20;
  double last = 0;
  options.progress = [&](double done, const std::string&) {
    EXPECT_GE(done, last);
    last = done;
  };
  const auto measured = measureCluster(options);
  ASSERT_TRUE(measured.has_value()) << measured.error().message();
  const auto text = spec::printCluster(measured->cluster);
  ASSERT_TRUE(text.has_value()) << text.error().message();
  EXPECT_EQ(spec::parseCluster(*text, "again").value(), measured->cluster);
  EXPECT_EQ(measured->cluster.numDevices, 2);
  EXPECT_GT(last, 0.9);
  const spec::DeviceSpec& device = measured->cluster.device;
  for (int kind = 0; kind < program::kNumOpKinds; ++kind)
    EXPECT_NE(device.kernel(program::opName(static_cast<program::OpKind>(kind)), DType::kF32),
              nullptr)
        << program::opName(static_cast<program::OpKind>(kind));
  ASSERT_EQ(measured->cluster.tiers[0].curves.size(), 3u);
  // Of one type: nothing of others.
  for (const spec::KernelTiming& kernel : device.kernels)
    EXPECT_EQ(kernel.dtype, DType::kF32) << kernel.kernel;
  EXPECT_NE(device.kernel("adamw", DType::kF32), nullptr);
  ASSERT_EQ(device.matmul.size(), 1u);
}

// A plan in a precision that was not measured is refused, not guessed.
TEST_F(CalibrateCommand, WhatWasNotMeasuredIsNotPlanned) {
  MeasureOptions options;
  options.name = "narrow";
  options.source = "a test";
  options.types = {DType::kF32};
  options.window = Seconds(1e-5);
  options.footprint = int64_t{1} << 20;
  options.progress = [](double, const std::string&) {};
  const auto measured = measureCluster(options);
  ASSERT_TRUE(measured.has_value()) << measured.error().message();
  const std::string cluster = write("narrow.yaml", spec::printCluster(measured->cluster).value());
  const std::string model = write("model.yaml", kTinyModel);
  const std::vector<std::string> ask = {"plan",    "--model", model,   "--cluster", cluster,
                                        "--batch", "8",       "--seq", "16",        "--precision"};
  auto in = [&](const std::string& precision) {
    std::vector<std::string> args = ask;
    args.push_back(precision);
    return runTrireme(args);
  };
  expectSuccess(in("fp32"));
  expectRefusal(in("bf16"), 1, {"host-rank: no matmul peak for bf16", "trireme calibrate"});
  expectRefusal(in("fp16"), 1, {"host-rank: no kernels were measured for f16"});  // not as f32
}
#else
TEST_F(CalibrateCommand, NeedsTheCodeGeneratorToMeasure) {
  expectRefusal(calibrate({"--ranks", "1"}), 1, {"TRIREME_MLIR=OFF", "--nccl-tests"});
}
#endif

}  // namespace
}  // namespace trireme::cli
