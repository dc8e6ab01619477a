// trireme calibrate --gpu, on emulated GPUs whose rates are known.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/calibrate/gpu_cluster.h"
#include "cli/calibrate/read_measurements.h"
#include "cli/calibrate/report.h"
#include "cost_models/compute.h"
#include "ir/graph/semantics.h"
#include "ir/spec/load.h"
#include "tests/cli/command.h"
#include "tests/support/emulated_machine.h"
#include "tests/support/emulated_nccl.h"

namespace trireme::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using trireme::testing::EmulatedGpu;
using trireme::testing::EmulatedGpuOptions;
using trireme::testing::emulatedMachine;
using trireme::testing::EmulatedNccl;
using trireme::testing::EmulatedRates;

const char* const kA100 = "NVIDIA A100-SXM4-80GB";

// What `trireme calibrate --gpu` does, with emulated GPUs in the place of this machine's.
class CalibrateGpu : public CommandTest {
 protected:
  CalibrateGpu() {
    options.name = "measured";
    measuring.date = "2026-11-21";
    measuring.mostMemory = int64_t{160} << 20;
    measuring.leastMemory = int64_t{16} << 20;
    measuring.progress = [this](double done, const std::string&) {
      EXPECT_GE(done, lastProgress);
      EXPECT_LE(done, 1);
      lastProgress = done;
    };
    machine.name = kA100;
    machine.memoryBytes = int64_t{79} << 30;
    machine.capability = 80;
    machine.numMultiprocessors = 108;
  }

  Result<runtime::GpuMeasurements> take(int numGpus = 1) {
    machine.numDevices = numGpus;
    EmulatedGpu gpu(machine);
    EmulatedNccl nccl;
    runtime::cuda::Apis apis = gpu.apis();
    apis.nccl = &nccl.api();
    runtime::GpuTiming timing;
    timing.maxCalls = 16;  // whose times do not vary
    const auto measured = [&]() -> Result<runtime::GpuMeasurements> {
      TRIREME_ASSIGN_OR_RETURN(const auto gpus, runtime::MeasuredGpus::open(apis, numGpus, timing));
      TRIREME_RETURN_IF_ERROR(checkBase(options.base, gpus->info(), numGpus));
      return takeMeasurements(*gpus, measuring);
    }();
    EXPECT_EQ(gpu.faults(), std::vector<std::string>());
    EXPECT_EQ(gpu.numLiveObjects(), 0);
    EXPECT_EQ(nccl.numLive(), 0);
    return measured;
  }
  Result<MeasuredCluster> measure(int numGpus = 1) {
    TRIREME_ASSIGN_OR_RETURN(const runtime::GpuMeasurements measurements, take(numGpus));
    return cli::clusterOf(measurements, options);
  }
  // Written and read again, as the planner does.
  spec::ClusterSpec clusterOf(const Result<MeasuredCluster>& measured) {
    if (!measured.has_value()) {
      ADD_FAILURE() << measured.error().message();
      return {};
    }
    const auto text = spec::printCluster(measured->cluster);
    if (!text.has_value()) {
      ADD_FAILURE() << text.error().message();
      return {};
    }
    file = write("measured.yaml", *text);
    return spec::parseCluster(*text, "measured.yaml").value();
  }

  EmulatedRates rates;
  EmulatedGpuOptions machine = emulatedMachine(rates);
  runtime::GpuMeasureOptions measuring;
  GpuClusterOptions options;
  double lastProgress = 0;
  std::string file;
};

// 200 of the data sheet's 312 TFLOP/s in bf16, 16 of 19.5 in f32, 1.5 of 2.039 TB/s.
TEST_F(CalibrateGpu, EfficienciesOfAKnownGpuAreSharesOfItsDataSheet) {
  const Result<MeasuredCluster> measured = measure();
  const spec::ClusterSpec cluster = clusterOf(measured);
  const spec::DeviceSpec& device = cluster.device;
  EXPECT_EQ(cluster, measured->cluster);
  EXPECT_EQ(cluster.name, "measured");
  EXPECT_EQ(cluster.numDevices, 1);
  EXPECT_EQ(device.name, kA100);
  ASSERT_NE(device.peak(MathFormat::kBf16), nullptr);
  EXPECT_EQ(device.peak(MathFormat::kBf16)->rate, FlopsPerSecond(312e12));
  EXPECT_NEAR(device.matmulEfficiency, 200.0 / 312, 1e-3);
  EXPECT_NEAR(device.f32MatmulEfficiency, 16 / 19.5, 1e-3);
  EXPECT_NEAR(device.tf32MatmulEfficiency, 100.0 / 156, 1e-3);
  EXPECT_NEAR(device.f16MatmulEfficiency, 180.0 / 312, 1e-3);
  EXPECT_NEAR(device.memoryBandwidth.count() * device.memoryEfficiency, 1.5e12, 0.005e12);
  EXPECT_NEAR(device.memoryBandwidth.count(), 2.039e12, 0.001e12);
  EXPECT_NEAR(device.launchOverhead.count(), 2e-6, 2e-9);
  EXPECT_EQ(device.memory, Bytes(static_cast<double>(int64_t{79} << 30)));
  EXPECT_EQ(device.numMultiprocessors, 108);
  EXPECT_GT(device.depthRamp, 0) << "of the shipped device: not measured";
  EXPECT_THAT(cluster.sources.at("device.matmul_efficiency"),
              AllOf(HasSubstr("measured on 2026-11-21 by trireme calibrate "), HasSubstr(kA100),
                    HasSubstr("(driver of CUDA 13.0)"), HasSubstr("200 TFLOP/s")));
  EXPECT_THAT(cluster.sources.at("device.matmul.bf16"), HasSubstr("datasheet"));
  EXPECT_GT(lastProgress, 0.9);
}

// In bf16 50 TFLOP/s of 312; in f32 4 of 19.5, which is the larger share. Of 4096 positions, the
// most that fit, the diagonal's blocks of 128 are an excess of 128 / 4096.
TEST_F(CalibrateGpu, AttentionsShareIsTheBestOfAllTypes) {
  EXPECT_NEAR(clusterOf(measure()).device.attentionEfficiency, 4 / 19.5 / (1 + 1.0 / 32), 1e-3);
}

TEST_F(CalibrateGpu, APeakThatIsNotKnownIsWhatWasReached) {
  machine.name = "NVIDIA X900";
  const spec::ClusterSpec cluster = clusterOf(measure());
  const spec::DeviceSpec& device = cluster.device;
  EXPECT_EQ(device.name, "NVIDIA X900");
  ASSERT_EQ(device.matmul.size(), 4u);
  EXPECT_NEAR(device.peak(MathFormat::kBf16)->rate.count(), 200e12, 0.5e12);
  EXPECT_NEAR(device.peak(MathFormat::kF16)->rate.count(), 180e12, 0.5e12);
  EXPECT_NEAR(device.peak(MathFormat::kTf32)->rate.count(), 100e12, 0.5e12);
  EXPECT_NEAR(device.peak(MathFormat::kF32)->rate.count(), 16e12, 0.05e12);
  EXPECT_EQ(device.matmulEfficiency, 1);
  EXPECT_EQ(device.tf32MatmulEfficiency, 1);
  EXPECT_EQ(device.f16MatmulEfficiency, 1);
  EXPECT_EQ(device.memoryEfficiency, 1);
  EXPECT_NEAR(device.memoryBandwidth.count(), 1.5e12, 0.005e12);
  EXPECT_THAT(cluster.sources.at("device.matmul.bf16"), HasSubstr("the best of "));
  EXPECT_THAT(cluster.sources.at("device.matmul_efficiency"), HasSubstr("measured, not a peak"));
}

// A data sheet that is exceeded is not that of this GPU's clock: 350 TFLOP/s of 312.
TEST_F(CalibrateGpu, APeakThatIsExceededIsReplaced) {
  rates.matmulBf16 = 350e12;
  machine.duration = emulatedMachine(rates).duration;
  const spec::DeviceSpec device = clusterOf(measure()).device;
  EXPECT_NEAR(device.peak(MathFormat::kBf16)->rate.count(), 350e12, 1e12);
  EXPECT_EQ(device.matmulEfficiency, 1);
}

program::Segment oneOp(program::OpKind kind, const program::OpAttributes& attributes,
                       std::vector<program::OperandType> operands, int numInputs) {
  program::Segment segment;
  segment.operands = std::move(operands);
  segment.temporary.assign(segment.operands.size(), false);
  program::SegmentOp op{kind, attributes, {}, {}};
  for (int i = 0; i < static_cast<int>(segment.operands.size()); ++i)
    (i < numInputs ? op.inputs : op.outputs).push_back(i);
  segment.ops = {op};
  return segment;
}

// Sizes that were not measured: 3000 x 5000 x 2000.
TEST_F(CalibrateGpu, EstimatesOfProductsAreTheTimesOfTheMachine) {
  const spec::DeviceSpec device = clusterOf(measure()).device;
  const spec::StackProfile own;
  const double flops = 2.0 * 3000 * 5000 * 2000;
  const std::pair<MathFormat, double> formats[] = {{MathFormat::kBf16, 200e12},
                                                   {MathFormat::kF16, 180e12},
                                                   {MathFormat::kF32, 16e12},
                                                   {MathFormat::kTf32, 100e12}};
  for (const auto& [format, rate] : formats) {
    const DType type = runtime::operandType(format);
    program::OpAttributes attributes;
    attributes.tf32 = format == MathFormat::kTf32;
    const program::Segment product =
        oneOp(program::OpKind::kMatmul, attributes,
              {{type, {3000, 1, 2000}}, {type, {5000, 2000}}, {type, {3000, 1, 5000}}}, 2);
    EXPECT_NEAR(cost::segmentTime(product, device, own).count() / (2e-6 + flops / rate), 1, 0.01)
        << mathFormatName(format);
  }
}

// Of 1536 tokens and 2 x 16 heads of 64, whose 12 rows of blocks of 128 x 128 are 1 to 12 blocks
// long; in groups of 1 and of 4.
TEST_F(CalibrateGpu, EstimatesOfAttentionAreTheTimesOfTheMachine) {
  const spec::DeviceSpec device = clusterOf(measure()).device;
  const spec::StackProfile own;
  const std::pair<DType, double> types[] = {
      {DType::kBf16, 50e12}, {DType::kF16, 60e12}, {DType::kF32, 4e12}};
  for (const auto& [type, rate] : types)
    for (const int64_t queries : {1, 4}) {
      const runtime::AttentionSizes shape{1536, 2, 16, 64, 0, queries};
      const double scores = 2.0 * 16 * 128 * 128 * (12 * 13 / 2);
      const program::Segment attention =
          runtime::segmentOf({program::OpKind::kAttention, type, shape});
      EXPECT_NEAR(
          cost::segmentTime(attention, device, own).count() / (2e-6 + 4 * 64 * scores / rate), 1,
          0.01)
          << dtypeName(type) << ", groups of " << queries;
    }
}

TEST_F(CalibrateGpu, APlanIsMadeWithTheFile) {
  clusterOf(measure(2));
  const Outcome plan =
      runTrireme({"plan", "--model", model, "--cluster", file, "--train", training, "--json"});
  expectSuccess(plan);
  const Outcome described =
      runTrireme({"plan", "--model", "gpt2-350m", "--cluster", file, "--batch", "8", "--seq",
                  "1024", "--stack", "megatron-core"});
  expectSuccess(described);
}

// Among 2: 12 us and half of the bytes once or twice at 240 GB/s.
TEST_F(CalibrateGpu, CollectivesAreCurvesOfTheLinks) {
  const spec::ClusterSpec cluster = clusterOf(measure(2));
  EXPECT_EQ(cluster.numDevices, 2);
  ASSERT_EQ(cluster.tiers.size(), 1u);
  const spec::LinkTier& links = cluster.tiers[0];
  EXPECT_NEAR(links.bandwidth.count(), 80e9, 0.1e9);
  EXPECT_NEAR(links.latency.count(), 12e-6 / 2, 0.1e-6);
  ASSERT_EQ(links.curves.size(), 3u);
  for (const spec::CollectiveCurve& curve : links.curves) {
    EXPECT_EQ(curve.group, 2);
    EXPECT_THAT(curve.source, HasSubstr("2 GPUs at once"));
    const bool isAllReduce = curve.kind == spec::CollectiveKind::kAllReduce;
    for (const spec::CollectivePoint& point : curve.points) {
      const double bytes = point.bytes.count() * (isAllReduce ? 1 : 0.5);
      EXPECT_NEAR(point.busBandwidth.count() / (bytes / (12e-6 + bytes / 240e9)), 1, 1e-3);
    }
  }
}

// The data sheet's fp64 is in the file, but was not measured.
TEST_F(CalibrateGpu, ReportsWhatWasReached) {
  const Result<MeasuredCluster> measured = measure(2);
  ASSERT_TRUE(measured.has_value()) << measured.error().message();
  const std::string table = toTable(*measured);
  for (const char* line :
       {"cluster       measured, 2 of this machine's ranks at once\n",
        "GPU           NVIDIA A100-SXM4-80GB\n", "products      f32, 16.0 TFLOP/s per rank\n",
        "products      bf16, 200.0 TFLOP/s per rank\n",
        "products      f16, 180.0 TFLOP/s per rank\n",
        "products      tf32, 100.0 TFLOP/s per rank\n", "launches      2.0 us each\n",
        "GB/s bus bandwidth among 2 ranks at ", "kernels       18 fitted to "})
    EXPECT_THAT(table, HasSubstr(line));
  EXPECT_THAT(table, Not(HasSubstr(" f64, ")));
  const nlohmann::json json = toJson(*measured);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["matmulFlopsPerSecond"].size(), 4u);
  EXPECT_NEAR(json["matmulFlopsPerSecond"]["tf32"].get<double>(), 100e12, 0.1e12);
  EXPECT_NEAR(json["matmulFlopsPerSecond"]["bf16"].get<double>(), 200e12, 0.1e12);
  EXPECT_EQ(json["streams"].size(), 3u);
  EXPECT_NEAR(json["streams"]["copy"].get<double>(), 1.5e12, 1e9);
  EXPECT_EQ(json["curves"].size(), 3u);
  EXPECT_GT(json["timedKernels"].size(), 100u);
  // 256 tokens, 1024 inputs, 1024 outputs.
  const nlohmann::json& first = json["timedKernels"][0];
  EXPECT_EQ(first["kernel"], "matmul");
  EXPECT_EQ(first["counts"]["product"], 256.0 * 1024 * 1024);
  EXPECT_EQ(first["counts"]["input"], 256.0 * 1024);
  EXPECT_NEAR(first["measuredSeconds"].get<double>(), 2e-6 + 2 * 256.0 * 1024 * 1024 / 200e12,
              1e-8);
}

// dgx-a100 has eight GPUs and its network; two are measured.
TEST_F(CalibrateGpu, CompletesACluster) {
  const spec::ClusterSpec base = spec::loadCluster("dgx-a100").value();
  options.base = &base;
  const spec::ClusterSpec cluster = clusterOf(measure(2));
  EXPECT_EQ(cluster.numDevices, base.numDevices);
  EXPECT_TRUE(cluster.scalable);
  ASSERT_EQ(cluster.tiers.size(), base.tiers.size());
  EXPECT_EQ(cluster.tiers.back(), base.tiers.back());
  const auto ofGroup = [](const spec::LinkTier& tier, int64_t group) {
    std::vector<spec::CollectiveCurve> curves;
    for (const spec::CollectiveCurve& curve : tier.curves)
      if (curve.group == group) curves.push_back(curve);
    return curves;
  };
  EXPECT_EQ(ofGroup(cluster.tiers[0], 2).size(), 3u);
  EXPECT_EQ(ofGroup(cluster.tiers[0], 8), ofGroup(base.tiers[0], 8));
  EXPECT_EQ(cluster.tiers[0].bandwidth, base.tiers[0].bandwidth);
  EXPECT_NEAR(cluster.sustainedPair(0).count(), 80e9, 0.1e9);
  EXPECT_NEAR(cluster.device.matmulEfficiency, 200.0 / 312, 1e-3);
}

TEST_F(CalibrateGpu, AClusterOfOtherGpusIsRefused) {
  const spec::ClusterSpec base = spec::loadCluster("dgx-h100").value();
  options.base = &base;
  const auto measured = measure();
  ASSERT_FALSE(measured.has_value());
  EXPECT_THAT(measured.error().message(),
              AllOf(HasSubstr("cluster 'dgx-h100' has H100-80GB-SXM"), HasSubstr(kA100)));
}

TEST_F(CalibrateGpu, AClusterThatIsTooSmallIsRefused) {
  spec::ClusterSpec base = spec::loadCluster("dgx-a100").value();
  base.scalable = false;
  base = spec::withNumDevices(base, 1).value();
  options.base = &base;
  const auto measured = measure(2);
  ASSERT_FALSE(measured.has_value());
  EXPECT_THAT(measured.error().message(),
              HasSubstr("2 GPUs are measured, cluster 'dgx-a100' has 1"));
}

// A tenth is left to others.
TEST_F(CalibrateGpu, TooLittleMemoryIsRefusedWithTheNeed) {
  machine.memoryBytes = int64_t{20} << 20;
  machine.name = "NVIDIA X900";
  measuring.leastMemory = int64_t{19} << 20;
  const auto refused = measure();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("at least 19.00 MiB of NVIDIA X900, of which 20.00 MiB are free"));
}

TEST_F(CalibrateGpu, AGpuThatFailsGivesNoCluster) {
  machine.refusesSubmission = 350;
  const auto measured = measure(2);
  ASSERT_FALSE(measured.has_value());
  EXPECT_THAT(measured.error().message(), HasSubstr("launching a kernel"));
}

TEST(ShippedDeviceOf, IsTheOneOfTheDriversNameAndOfItsMemory) {
  const auto of = [](const char* name, double gib) {
    return shippedDeviceOf(name, Bytes(gib * (int64_t{1} << 30)));
  };
  EXPECT_EQ(of("NVIDIA A100-SXM4-80GB", 79.15), "a100-80gb-sxm");
  EXPECT_EQ(of("NVIDIA A100-SXM4-40GB", 39.39), "a100-40gb-sxm");
  EXPECT_EQ(of("NVIDIA A100 80GB PCIe", 79.15), "a100-80gb-pcie");
  EXPECT_EQ(of("NVIDIA H100 80GB HBM3", 79.1), "h100-80gb-sxm");
  EXPECT_EQ(of("NVIDIA H200", 139.7), "h200-141gb-sxm");
  EXPECT_EQ(of("NVIDIA B200", 178.3), "b200-180gb-sxm");
  EXPECT_EQ(of("NVIDIA L4", 21.9), "l4");
  EXPECT_EQ(of("Tesla T4", 14.6), "t4");
  EXPECT_EQ(of("NVIDIA GeForce RTX 4090", 23.6), "rtx4090");
  EXPECT_EQ(of("Tesla V100-SXM2-32GB", 31.7), "v100-32gb-sxm");
  EXPECT_EQ(of("Tesla P100-SXM2-16GB", 15.9), "p100-16gb-sxm");
  EXPECT_EQ(of("NVIDIA A10G", 22.1), "a10g-24gb");
  EXPECT_EQ(of("NVIDIA A40", 44.4), "a40-48gb");
  EXPECT_EQ(of("NVIDIA L40S", 44.4), "l40s-48gb");
  EXPECT_EQ(of("NVIDIA H100 PCIe", 79.1), "h100-80gb-pcie");
  EXPECT_EQ(of("NVIDIA H100 NVL", 93), "h100-94gb-nvl");
  EXPECT_EQ(of("NVIDIA A800-SXM4-80GB", 79.3), "a800-80gb-sxm");
  EXPECT_EQ(of("NVIDIA H800", 79.1), "h800-80gb-sxm");
  EXPECT_EQ(of("NVIDIA H20", 95), "h20-96gb-sxm");
  EXPECT_EQ(of("NVIDIA GeForce RTX 3090", 23.7), "rtx3090");
  EXPECT_EQ(of("NVIDIA H20", 139.7), "");  // of 141 GB
  EXPECT_EQ(of("NVIDIA H800 PCIe", 79.1), "");
  EXPECT_EQ(of("NVIDIA A100-PCIE-40GB", 39.4), "");
  EXPECT_EQ(of("NVIDIA GeForce RTX 4090 Laptop GPU", 15.6), "");
  EXPECT_EQ(of("NVIDIA L40", 44.4), "");
}

// Probes that the runtime writes out are what the graph's rules make of their inputs.
TEST(GpuProbes, HaveTheOutputsOfTheirOps) {
  for (const MathFormat format :
       {MathFormat::kF64, MathFormat::kF32, MathFormat::kTf32, MathFormat::kBf16, MathFormat::kF16})
    for (const runtime::GpuProbe& probe : runtime::gpuProbes(format, Bytes(1e12))) {
      const program::Segment segment = runtime::segmentOf(probe);
      const program::SegmentOp& op = segment.ops.front();
      std::vector<program::OperandType> inputs, outputs;
      for (const int32_t i : op.inputs) inputs.push_back(segment.operands[static_cast<size_t>(i)]);
      for (const int32_t i : op.outputs)
        outputs.push_back(segment.operands[static_cast<size_t>(i)]);
      const DType state = format == MathFormat::kF64 ? DType::kF64 : DType::kF32;
      const auto inferred = graph::inferOutputs(op.kind, op.attributes, inputs, state, 0);
      ASSERT_TRUE(inferred.has_value()) << program::opName(op.kind);
      EXPECT_EQ(outputs, *inferred) << program::opName(op.kind);
    }
}

// A machine with the runtime alone measures, another makes the cluster: the same file.
TEST_F(CalibrateGpu, AFileOfMeasurementsGivesTheSameCluster) {
  const Result<runtime::GpuMeasurements> taken = take(2);
  ASSERT_TRUE(taken.has_value()) << taken.error().message();
  const std::string saved = write("gpus.json", printMeasurements(*taken));
  const auto read = readMeasurements(saved);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(*read, *taken);

  const std::string output = path("from.yaml");
  expectSuccess(
      runTrireme({"calibrate", "--gpu-measurements", saved, "--name", "measured", "-o", output}));
  EXPECT_EQ(spec::loadCluster(output).value(), clusterOf(cli::clusterOf(*taken, options)));

  const std::string completed = path("completed.yaml");
  expectSuccess(runTrireme(
      {"calibrate", "--gpu-measurements", saved, "--cluster", "dgx-a100", "-o", completed}));
  const spec::ClusterSpec base = spec::loadCluster("dgx-a100").value();
  options = {"dgx-a100", &base};
  EXPECT_EQ(spec::loadCluster(completed).value(), clusterOf(cli::clusterOf(*taken, options)));

  expectRefusal(runTrireme({"calibrate", "--gpu-measurements", saved, "--cluster", "dgx-h100"}), 1,
                {saved + ": cluster 'dgx-h100' has H100-80GB-SXM", kA100});
  spec::ClusterSpec one = base;
  one.scalable = false;
  const std::string small =
      write("one.yaml", spec::printCluster(spec::withNumDevices(one, 1).value()).value());
  expectRefusal(runTrireme({"calibrate", "--gpu-measurements", saved, "--cluster", small}), 1,
                {saved + ": 2 GPUs are measured, cluster 'dgx-a100' has 1 devices"});
  const Outcome json = runTrireme({"calibrate", "--gpu-measurements", saved, "--json"});
  expectSuccess(json);
  EXPECT_EQ(nlohmann::json::parse(json.out)["ranks"], 2);
}

TEST_F(CalibrateGpu, SaysSoWhereThereIsNoDriver) {
  if (runtime::cuda::loadDriver().has_value()) GTEST_SKIP() << "there is a driver";
  const std::string output = path("none.yaml");
  expectRefusal(runTrireme({"calibrate", "--gpu", "-o", output}), 1, {"no NVIDIA driver"});
  EXPECT_FALSE(std::filesystem::exists(output));
  expectRefusal(runTrireme({"calibrate", "--gpu", "--save-measurements", output}), 1,
                {"no NVIDIA driver"});
  EXPECT_FALSE(std::filesystem::exists(output));
}

TEST_F(CalibrateGpu, RefusesWhatMakesNoSense) {
  expectRefusal(runTrireme({"calibrate", "--gpu", "--nccl-tests", "x", "--cluster", "dgx-a100"}), 2,
                {"--gpu"});
  expectRefusal(runTrireme({"calibrate", "--cluster", "dgx-a100"}), 2,
                {"--cluster", "--gpu", "--gpu-measurements", "--nccl-tests"});
  expectRefusal(runTrireme({"calibrate", "--save-measurements", "x"}), 2, {"--gpu"});
  expectRefusal(runTrireme({"calibrate", "--gpu-measurements", "x", "--gpu"}), 2,
                {"--gpu-measurements"});
  expectRefusal(runTrireme({"calibrate", "--gpu-measurements", "x", "--ranks", "2"}), 2,
                {"--ranks"});
  expectRefusal(runTrireme({"calibrate", "--gpu-measurements", path("none.json")}), 1,
                {"none.json", "cannot read"});
  expectRefusal(runTrireme({"calibrate", "--gpu", "--ranks", "0"}), 2, {"--ranks", "at least 1"});
}

}  // namespace
}  // namespace trireme::cli
