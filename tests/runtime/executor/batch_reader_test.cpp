#include "runtime/executor/batch_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <optional>

#include "runtime/comm/thread_world.h"
#include "runtime/device/cuda/cuda_rank.h"
#include "runtime/executor/arena.h"
#include "runtime/session.h"
#include "tests/runtime/executor/counting_data.h"
#include "tests/runtime/executor/tiny_program.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::runtime {
namespace {

using ::testing::HasSubstr;
using trireme::testing::EmulatedGpu;

// Token s of sample i is i + s + offset. Remembers what was asked for; refuses some samples.
class RecordingData final : public DataSource {
 public:
  explicit RecordingData(int32_t offset = 0) : offset_(offset) {}
  Status sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                int32_t* labels) override {
    const std::lock_guard lock(mutex_);
    ++reads_[index];
    if (refused && index >= *refused)
      return invalidArgument(fmt::format("sample {} is not there", index));
    for (int64_t s = 0; s < length; ++s) {
      const auto token = static_cast<int32_t>(index) + static_cast<int32_t>(s) + offset_;
      if (tokens != nullptr) tokens[s * stride] = token;
      if (labels != nullptr) labels[s * stride] = token + 1;
    }
    return {};
  }
  // Since the last call: sample -> how often.
  std::map<uint64_t, int> takeReads() { return std::exchange(reads_, {}); }

  std::optional<uint64_t> refused;  // from this on

 private:
  int32_t offset_;
  std::mutex mutex_;
  std::map<uint64_t, int> reads_;
};

// Of the tiny program's 3 microbatches of one sample, which its first stage loads.
std::map<uint64_t, int> samplesOf(uint64_t step) {
  return {{3 * step, 1}, {3 * step + 1, 1}, {3 * step + 2, 1}};
}

class GpuSteps : public ::testing::Test {
 protected:
  void open() {
    program::Bundle bundle = tinyBundle({.tp = 1, .dp = 1});
    bundle.target.arch = "cuda:sm_90";
    apis_ = emulated_.apis();
    auto opened = Session::create(std::move(bundle), {.virtualRanks = true, .cudaApis = &apis_});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    session = *std::move(opened);
  }
  ~GpuSteps() override {
    session.reset();
    EXPECT_EQ(emulated_.faults(), std::vector<std::string>());
    EXPECT_EQ(emulated_.numLiveObjects(), 0);
  }

 private:
  EmulatedGpu emulated_;
  cuda::Apis apis_;

 protected:
  std::unique_ptr<Session> session;
};

TEST_F(GpuSteps, ReadTheNextStepsSamplesAhead) {
  open();
  RecordingData data;
  std::map<uint64_t, int> both = samplesOf(0);
  both.merge(samplesOf(1));
  ASSERT_TRUE(session->step(data).has_value());
  EXPECT_EQ(data.takeReads(), both);
  for (uint64_t step = 1; step < 4; ++step) {
    ASSERT_TRUE(session->step(data).has_value());
    EXPECT_EQ(data.takeReads(), samplesOf(step + 1));
  }
}

TEST(HostSteps, ReadTheirOwnSamplesAlone) {
  auto session = Session::create(tinyBundle({.tp = 1, .dp = 1}), {.useReference = true});
  ASSERT_TRUE(session.has_value()) << session.error().message();
  RecordingData data;
  for (uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE((*session)->step(data).has_value());
    EXPECT_EQ(data.takeReads(), samplesOf(step));
  }
}

// Step 3 needs sample 7, which step 2 has tried to read: the message is that of a host, which has
// not.
TEST_F(GpuSteps, ASampleThatCannotBeReadFailsTheStepThatNeedsIt) {
  open();
  auto host = Session::create(tinyBundle({.tp = 1, .dp = 1}), {.useReference = true});
  ASSERT_TRUE(host.has_value());
  RecordingData data;
  data.refused = 7;
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(session->step(data).has_value());
    ASSERT_TRUE((*host)->step(data).has_value());
  }
  const auto onGpu = session->step(data), onHost = (*host)->step(data);
  ASSERT_FALSE(onGpu.has_value());
  ASSERT_FALSE(onHost.has_value());
  EXPECT_THAT(onGpu.error().message(), HasSubstr("step 3, rank 0: "));
  EXPECT_THAT(onGpu.error().message(), HasSubstr("sample 7 is not there"));
  EXPECT_EQ(onGpu.error().message(), onHost.error().message());
}

// Asked before step 3: with the words of that step, and nothing has happened yet. What a GPU has
// read ahead it does not read again.
TEST_F(GpuSteps, WhetherTheNextStepHasItsSamplesIsKnownBefore) {
  open();
  auto host = Session::create(tinyBundle({.tp = 1, .dp = 1}), {.useReference = true});
  ASSERT_TRUE(host.has_value());
  for (Session* each : {session.get(), host->get()}) {
    RecordingData data;
    data.refused = 7;
    EXPECT_TRUE(each->checkData(data).ok());
    ASSERT_TRUE(each->step(data).has_value());
    EXPECT_TRUE(each->checkData(data).ok());
    ASSERT_TRUE(each->step(data).has_value());
    data.takeReads();
    const Status refusal = each->checkData(data);
    EXPECT_EQ(data.takeReads().empty(), each == session.get());
    EXPECT_EQ(refusal.code(), StatusCode::kInvalidArgument);
    data.refused.reset();
    const std::vector<NamedTensor> before = each->gatherParameters();
    ASSERT_TRUE(each->step(data).has_value());
    EXPECT_NE(each->gatherParameters()[0].values, before[0].values);
    EXPECT_EQ(refusal.message(), "step 3, rank 0: sample 7 is not there");
  }
}

// It was not there when step 1 looked, and is when step 2 does.
TEST_F(GpuSteps, ASampleThatComesInTimeIsTrainedOn) {
  open();
  RecordingData data;
  data.refused = 3;
  ASSERT_TRUE(session->step(data).has_value());
  data.refused.reset();
  EXPECT_TRUE(session->step(data).has_value());
}

// The reader of stage 0's rank, whose tokens lie at the address of one of the role's buffers.
class BatchReaderTest : public ::testing::Test {
 protected:
  BatchReaderTest()
      : bundle_(tinyBundle({.tp = 1, .dp = 1})), world_(2, {}, std::chrono::seconds(20)) {
    gpu_ = *cuda::Gpu::open(emulated_.apis(), 0);
    arena_ = *Arena::allocate(bundle_.program.roles[0].arenaBytes);
    image_ = *resolveRank(bundle_.program, 0, arena_.data());
    device = *cuda::CudaRank::create(*gpu_, bundle_, image_);
    comm_ = world_.communicator(0);
    reader.emplace(*device, *comm_);
  }

  // A step that loads its three microbatches, into the same buffer; the first token of the last.
  int32_t step(int64_t number, DataSource& data) {
    EXPECT_TRUE(device->beginStep().ok());
    EXPECT_TRUE(reader->beginStep(number, data).ok());
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(reader->load().ok());
    reader->readAhead();
    EXPECT_TRUE(device->finishStep().ok());
    auto* tokens = reinterpret_cast<int32_t*>(image_.address(tokensBuffer()));
    EXPECT_TRUE(device->fetch(tokens, kTinyWidth * 4).ok());
    for (int32_t s = 1; s < kTinyWidth; ++s) EXPECT_EQ(tokens[s], tokens[0] + s);
    return tokens[0];
  }
  void failRank() { comm_->fail(unavailable("a test")); }
  int64_t numCreations() const { return emulated_.numCreations(); }

 private:
  int32_t tokensBuffer() const {
    const auto& buffers = bundle_.program.roles[0].buffers;
    for (size_t i = 0; i < buffers.size(); ++i)
      if (buffers[i].name == "tokens") return static_cast<int32_t>(i);
    ADD_FAILURE() << "no buffer of tokens";
    return 0;
  }

  EmulatedGpu emulated_;
  program::Bundle bundle_;
  ThreadWorld world_;
  std::unique_ptr<cuda::Gpu> gpu_;
  Arena arena_;
  RankProgram image_;
  std::unique_ptr<Communicator> comm_;

 protected:
  std::unique_ptr<cuda::CudaRank> device;
  std::optional<BatchReader> reader;
};

// What step n + 1 has read is not what the copies of step n, which are still to come, send.
TEST_F(BatchReaderTest, EveryStepSendsItsOwnTokens) {
  RecordingData data;
  for (int64_t n = 0; n < 5; ++n) EXPECT_EQ(step(n, data), 3 * n + 2);
}

TEST_F(BatchReaderTest, AStepOutOfTurnIsReadAnew) {
  RecordingData data;
  EXPECT_EQ(step(0, data), 2);
  EXPECT_EQ(step(7, data), 23);
  EXPECT_EQ(step(7, data), 23);
  EXPECT_EQ(step(1, data), 5);
}

TEST_F(BatchReaderTest, AnotherSourceIsReadAnewEvenAtTheSamePlace) {
  std::optional<RecordingData> data(0);
  EXPECT_EQ(step(0, *data), 2);
  data.emplace(100);
  EXPECT_EQ(step(1, *data), 105);
}

// A failure elsewhere ends the reading: nobody will need it.
TEST_F(BatchReaderTest, NothingIsReadAheadWhenARankHasFailed) {
  RecordingData data;
  EXPECT_TRUE(device->beginStep().ok());
  EXPECT_TRUE(reader->beginStep(0, data).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(reader->load().ok());
  failRank();
  reader->readAhead();
  EXPECT_TRUE(device->finishStep().ok());
  EXPECT_EQ(data.takeReads(), samplesOf(0));
}

TEST_F(BatchReaderTest, PlacesAreTakenInTheFirstStepAlone) {
  RecordingData data;
  data.refused = 4;  // in the middle of step 1
  step(0, data);
  const int64_t created = numCreations();
  data.refused.reset();
  for (int64_t n = 1; n < 4; ++n) step(n, data);
  EXPECT_EQ(numCreations(), created);
}

}  // namespace
}  // namespace trireme::runtime
