// NCCL with one rank, called as NcclCommunicator calls it: all that one GPU can show of the table
// of functions, of the configuration and of the numbers that stand for types and operations. Where
// TRIREME_GPU=real it is the machine's NCCL, if there is one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "runtime/device/cuda/nccl_api.h"
#include "runtime/kernels/bf16.h"
#include "tests/gpu/test_gpu.h"
#include "tests/support/emulated_nccl.h"

namespace trireme::runtime::gpu {
namespace {

using cuda::NcclApi;
using cuda::NcclHandle;
using program::ReduceOp;

class GpuNccl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (isRealGpu()) {
      const Result<const NcclApi*> loaded = cuda::loadNccl();
      if (!loaded.has_value()) GTEST_SKIP() << loaded.error().message();
      api_ = *loaded;
    } else {
      api_ = &emulated_.emplace().api();
    }
    auto opened = cuda::Gpu::open(test_.apis(), 0);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    gpu_ = *std::move(opened);
    ASSERT_EQ(gpu_->makeCurrent().message(), "");
    memory_.emplace(*gpu_);
    open();
  }

  void TearDown() override {
    if (comm_ != nullptr) {
      settle(api_->finalize(comm_), "finalize");
      EXPECT_EQ(api_->destroy(comm_), cuda::kNcclSuccess);
    }
    if (emulated_) {
      EXPECT_EQ(emulated_->numCreated(), 1);
      EXPECT_EQ(emulated_->numLive(), 0);
    }
  }

  // Waits for the end of a call that may be in progress.
  void settle(int result, const char* what) const {
    constexpr auto kTimeout = std::chrono::seconds(60);
    const auto start = std::chrono::steady_clock::now();
    while (result == cuda::kNcclInProgress) {
      ASSERT_LT(std::chrono::steady_clock::now() - start, kTimeout)
          << what << ": still in progress";
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      int state = cuda::kNcclSuccess;
      result = api_->asyncError(comm_, &state);
      if (result == cuda::kNcclSuccess) result = state;
    }
    ASSERT_EQ(result, cuda::kNcclSuccess)
        << what << ": " << api_->errorString(result) << "; " << api_->lastError(comm_);
  }

  // What is on the GPU after `call` has written over `unwritten`.
  template <typename T, typename Call>
  std::vector<T> resultOf(const std::vector<T>& input, T unwritten, const char* what, Call call) {
    const T* from = memory_->upload(input);
    T* to = memory_->upload(std::vector<T>(input.size(), unwritten));
    settle(call(from, to, input.size(), memory_->stream()), what);
    EXPECT_EQ(memory_->download(from, input.size()), input) << what << " changed its input";
    return memory_->download(static_cast<const T*>(to), input.size());
  }

  // Of one rank the sum, the maximum, the part and the whole are what it gives.
  template <typename T>
  void expectIdentities(DType type, const std::vector<T>& input, T unwritten) {
    const Result<int> numbers = cuda::ncclType(type);
    ASSERT_TRUE(numbers.has_value()) << numbers.error().message();
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      EXPECT_EQ(resultOf(input, unwritten, "all_reduce",
                         [&](const void* from, void* to, size_t count, void* stream) {
                           return api_->allReduce(from, to, count, *numbers, cuda::ncclOp(op),
                                                  comm_, stream);
                         }),
                input);
    }
    EXPECT_EQ(resultOf(input, unwritten, "reduce_scatter",
                       [&](const void* from, void* to, size_t count, void* stream) {
                         return api_->reduceScatter(from, to, count, *numbers, cuda::kNcclSum,
                                                    comm_, stream);
                       }),
              input);
    EXPECT_EQ(resultOf(input, unwritten, "all_gather",
                       [&](const void* from, void* to, size_t count, void* stream) {
                         return api_->allGather(from, to, count, *numbers, comm_, stream);
                       }),
              input);
    // In place, as the runtime reduces.
    T* data = memory_->upload(input);
    settle(api_->allReduce(data, data, input.size(), *numbers, cuda::kNcclSum, comm_,
                           memory_->stream()),
           "all_reduce in place");
    EXPECT_EQ(memory_->download(static_cast<const T*>(data), input.size()), input);
  }

  NcclHandle comm_ = nullptr;

 private:
  void open() {
    ASSERT_EQ(cuda::checkNcclVersion(*api_).message(), "");
    cuda::NcclId id;
    ASSERT_EQ(api_->uniqueId(&id), cuda::kNcclSuccess);
    cuda::NcclConfig config;
    const int result = api_->create(&comm_, 1, id, 0, &config);
    ASSERT_NE(comm_, nullptr) << api_->errorString(result);
    settle(result, "create");
  }

  TestGpu test_;
  std::optional<trireme::testing::EmulatedNccl> emulated_;
  const NcclApi* api_ = nullptr;
  std::unique_ptr<cuda::Gpu> gpu_;
  std::optional<GpuMemory> memory_;
};

// Not a multiple of anything; values that differ.
constexpr size_t kCount = 1031;

TEST_F(GpuNccl, OfOneRankReturnsFloats) {
  std::vector<float> input;
  for (size_t i = 0; i < kCount; ++i) input.push_back(0.5F * static_cast<float>(i) - 100.25F);
  expectIdentities(DType::kF32, input, -1.0F);
}

// By their bits. 1/3 and its multiples use all of them.
TEST_F(GpuNccl, OfOneRankReturnsBfloats) {
  std::vector<uint16_t> input;
  for (size_t i = 0; i < kCount; ++i)
    input.push_back(toBf16(static_cast<float>(i) / 3.0F - 100.0F).bits);
  expectIdentities(DType::kBf16, input, toBf16(-1.0F).bits);
}

}  // namespace
}  // namespace trireme::runtime::gpu
