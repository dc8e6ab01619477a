#include "runtime/measure/measured_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/emulated_machine.h"
#include "tests/support/emulated_nccl.h"

namespace trireme::runtime {
namespace {

using program::OpKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using trireme::testing::EmulatedGpu;
using trireme::testing::EmulatedGpuOptions;
using trireme::testing::emulatedMachine;
using trireme::testing::EmulatedNccl;
using trireme::testing::EmulatedNcclOptions;
using trireme::testing::EmulatedRates;
using trireme::testing::NcclCall;

constexpr int64_t kArena = int64_t{16} << 20;

// y = x w^T of 512 tokens.
program::Segment probedProduct(DType type) {
  program::Segment segment;
  segment.name = "product";
  segment.operands = {{type, {512, 1, 256}}, {type, {128, 256}}, {type, {512, 1, 128}}};
  segment.temporary.assign(3, false);
  segment.ops = {{OpKind::kMatmul, {}, {0, 1}, {2}}};
  return segment;
}

// The GPUs of a test, which got everything back when it ends.
class MeasuredGpusTest : public ::testing::Test {
 protected:
  Status open(EmulatedGpuOptions emulation, const EmulatedNcclOptions& ncclOptions = {}) {
    emulated = std::make_unique<EmulatedGpu>(emulation);
    nccl = std::make_unique<EmulatedNccl>(ncclOptions);
    cuda::Apis apis = emulated->apis();
    apis.nccl = &nccl->api();
    auto opened = MeasuredGpus::open(apis, emulation.numDevices, timing);
    if (!opened.has_value()) return opened.error();
    gpus = *std::move(opened);
    return gpus->start({probedProduct(DType::kBf16), probedProduct(DType::kF32)}, kArena);
  }
  ~MeasuredGpusTest() override {
    gpus.reset();
    if (emulated == nullptr) return;
    EXPECT_EQ(emulated->faults(), std::vector<std::string>());
    if (!gone) {
      EXPECT_EQ(emulated->numLiveObjects(), 0);
    }
    EXPECT_EQ(nccl->numLive(), 0);
    nccl.reset();
  }

  EmulatedRates rates;
  GpuTiming timing;
  bool gone = false;  // a GPU that does not answer keeps what it has
  std::unique_ptr<EmulatedGpu> emulated;
  std::unique_ptr<EmulatedNccl> nccl;
  std::unique_ptr<MeasuredGpus> gpus;
};

// As in a training, which times the algorithms of its products before the first step.
TEST_F(MeasuredGpusTest, ProductsRunTheFastestAlgorithm) {
  EmulatedGpuOptions options = emulatedMachine(rates, 1);
  options.matmulSeconds = {3e-3, 1e-3, 2e-3};
  ASSERT_EQ(open(options).message(), "");
  const Result<Seconds> time = gpus->segment(0);
  ASSERT_TRUE(time.has_value()) << time.error().message();
  EXPECT_NEAR(time->count(), 1e-3, 1e-4);
}

TEST_F(MeasuredGpusTest, SaysWhatTheGpuIs) {
  EmulatedGpuOptions options = emulatedMachine(rates, 2);
  options.name = "NVIDIA A100-SXM4-80GB";
  options.numMultiprocessors = 108;
  options.capability = 80;
  options.memoryBytes = int64_t{80} << 30;
  ASSERT_EQ(open(options).message(), "");
  EXPECT_EQ(gpus->numRanks(), 2);
  EXPECT_EQ(gpus->info().name, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(gpus->info().numMultiprocessors, 108);
  EXPECT_EQ(gpus->info().capability, 80);
  EXPECT_EQ(gpus->info().driverVersion, 13000);
  EXPECT_EQ(gpus->info().totalBytes, int64_t{80} << 30);
}

// 512 x 256 x 128 products of two FLOPs: 33.6 MFLOP, 0.17 us at 200 TFLOP/s, 2.1 us at 16 TFLOP/s.
TEST_F(MeasuredGpusTest, ACallTakesItsLaunchAndItsProducts) {
  ASSERT_EQ(open(emulatedMachine(rates)).message(), "");
  const double flops = 2.0 * 512 * 256 * 128;
  EXPECT_NEAR(gpus->segment(0).value().count() / (2e-6 + flops / 200e12), 1, 1e-3);
  EXPECT_NEAR(gpus->segment(1).value().count() / (2e-6 + flops / 16e12), 1, 1e-3);
  EXPECT_NEAR(gpus->launch().value().count() / 2e-6, 1, 1e-3);
}

TEST_F(MeasuredGpusTest, StreamsHaveTheMemorysRate) {
  ASSERT_EQ(open(emulatedMachine(rates)).message(), "");
  for (const GpuStream stream : {GpuStream::kCopy, GpuStream::kSumSquares, GpuStream::kAdamW}) {
    const auto traffic = gpus->stream(stream);
    ASSERT_TRUE(traffic.has_value()) << traffic.error().message();
    // Sums of squares are emulated in pieces of 64 KiB.
    EXPECT_NEAR((traffic->moved / traffic->time).count() / rates.memory, 1, 0.01);
    EXPECT_GT(traffic->moved.count(), 0.9 * static_cast<double>(gpus->tensorBytes()));
  }
}

TEST(MeasuredGpuGroups, ArePowersOfTwoThatDivideAndAll) {
  EXPECT_EQ(MeasuredGpus::groupSizes(1), std::vector<int32_t>());
  EXPECT_EQ(MeasuredGpus::groupSizes(2), std::vector<int32_t>({2}));
  EXPECT_EQ(MeasuredGpus::groupSizes(3), std::vector<int32_t>({3}));
  EXPECT_EQ(MeasuredGpus::groupSizes(6), std::vector<int32_t>({2, 6}));
  EXPECT_EQ(MeasuredGpus::groupSizes(8), std::vector<int32_t>({2, 4, 8}));
  EXPECT_EQ(MeasuredGpus::groupSizes(64), std::vector<int32_t>({2, 4, 8, 16, 64}));
}

// Among 4, 1 MiB: all-reduce 2 x 3/4 of it at 240 GB/s, the others half, and 12 us.
TEST_F(MeasuredGpusTest, CollectivesTakeWhatTheBusBandwidthSays) {
  ASSERT_EQ(open(emulatedMachine(rates, 4)).message(), "");
  constexpr int64_t kBytes = 1 << 20;
  for (const int32_t group : {2, 4}) {
    const double pass = (group - 1.0) / group * kBytes / 240e9;
    const auto timeOf = [&](Exchange exchange) {
      return gpus->exchange(exchange, group, kBytes).value().count();
    };
    EXPECT_NEAR(timeOf(Exchange::kAllReduce) / (12e-6 + 2 * pass), 1, 1e-3);
    EXPECT_NEAR(timeOf(Exchange::kAllGather) / (12e-6 + pass), 1, 1e-3);
    EXPECT_NEAR(timeOf(Exchange::kReduceScatter) / (12e-6 + pass), 1, 1e-3);
  }
  EXPECT_NEAR(gpus->exchange(Exchange::kSend, 2, kBytes).value().count() / (kBytes / 80e9), 1,
              1e-3);
}

TEST_F(MeasuredGpusTest, GroupsAreNeighbours) {
  ASSERT_EQ(open(emulatedMachine(rates, 4)).message(), "");
  ASSERT_TRUE(gpus->exchange(Exchange::kAllReduce, 2, 1 << 12).has_value());
  std::set<std::vector<std::thread::id>> pairs;
  for (const auto& [thread, calls] : nccl->calls())
    for (const auto& call : calls) {
      if (call.count == 1) continue;  // connects a sender and a receiver
      EXPECT_EQ(call.call, NcclCall::kAllReduce);
      EXPECT_EQ(call.count, 1024u);
      pairs.insert(call.members);
    }
  EXPECT_EQ(pairs.size(), 2u);
  for (const auto& pair : pairs) EXPECT_EQ(pair.size(), 2u);
}

TEST_F(MeasuredGpusTest, AnOddGpuHasNobodyToSendTo) {
  ASSERT_EQ(open(emulatedMachine(rates, 3)).message(), "");
  EXPECT_TRUE(gpus->exchange(Exchange::kSend, 2, 1 << 12).has_value());
  EXPECT_TRUE(gpus->exchange(Exchange::kAllReduce, 3, 3 << 12).has_value());
}

TEST_F(MeasuredGpusTest, TooLittleMemoryIsRefusedWithTheNeed) {
  EmulatedGpuOptions options = emulatedMachine(rates);
  options.memoryBytes = kArena / 2;
  const Status status = open(options);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("measuring takes 16.00 MiB of Emulated GPU, of which "
                                          "8.00 MiB are free"));
}

TEST_F(MeasuredGpusTest, FewerGpusThanAskedForAreAnError) {
  emulated = std::make_unique<EmulatedGpu>(emulatedMachine(rates, 1));
  nccl = std::make_unique<EmulatedNccl>();
  cuda::Apis apis = emulated->apis();
  apis.nccl = &nccl->api();
  const auto opened = MeasuredGpus::open(apis, 2, timing);
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error().message(), HasSubstr("no GPU 1: the driver has 1"));
}

TEST_F(MeasuredGpusTest, AGpuThatFailsEndsTheMeasurementOfAll) {
  EmulatedGpuOptions options = emulatedMachine(rates, 2);
  options.refusesSubmission = 1000;
  ASSERT_EQ(open(options).message(), "");
  const auto time = gpus->launch();
  ASSERT_FALSE(time.has_value());
  EXPECT_THAT(time.error().message(), HasSubstr("launching a kernel"));
  EXPECT_FALSE(gpus->segment(0).has_value());
}

TEST_F(MeasuredGpusTest, AGpuThatHangsIsGivenUp) {
  EmulatedGpuOptions options = emulatedMachine(rates);
  options.hangsAtLaunch = 0;
  timing.timeoutSeconds = 0.05;
  gone = true;
  ASSERT_EQ(open(options).message(), "");
  const auto time = gpus->launch();
  ASSERT_FALSE(time.has_value());
  EXPECT_EQ(time.error().code(), StatusCode::kUnavailable);
  EXPECT_THAT(time.error().message(), HasSubstr("Emulated GPU does not answer"));
}

TEST_F(MeasuredGpusTest, AnErrorOfNcclNamesTheRanks) {
  EmulatedNcclOptions failing;
  failing.failsAtCall = 20;
  ASSERT_EQ(open(emulatedMachine(rates, 2), failing).message(), "");
  const auto time = gpus->exchange(Exchange::kAllReduce, 2, 1 << 12);
  ASSERT_FALSE(time.has_value());
  EXPECT_THAT(time.error().message(),
              AllOf(HasSubstr("NCCL of ranks 0, 1"), HasSubstr("remote process exited")));
  EXPECT_GT(nccl->numAborted(), 0);
}

}  // namespace
}  // namespace trireme::runtime
