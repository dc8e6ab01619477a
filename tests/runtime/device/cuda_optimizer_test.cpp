// The optimizer's instructions of a rank on a GPU: how many launches, of which buckets.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "runtime/device/cuda/cuda_rank.h"
#include "runtime/executor/arena.h"
#include "tests/runtime/executor/tiny_program.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::runtime::cuda {
namespace {

using trireme::testing::EmulatedGpu;
using Names = std::vector<std::string>;

// A rank of the tiny program, on memory of which tests use what they like.
class CudaOptimizer : public ::testing::Test {
 protected:
  CudaOptimizer() : emulated_(options()), gpu_(*Gpu::open(emulated_.apis(), 0)) {
    program::Role& role = bundle_.program.roles[0];
    role.arenaBytes = kArenaBytes;
    arena_ = *Arena::allocate(kArenaBytes);
    image_ = *resolveRank(bundle_.program, 0, arena_.data());
    rank_ = *CudaRank::create(*gpu_, bundle_, image_);
    launched_.clear();
    EXPECT_EQ(rank_->beginStep().message(), "");
  }
  ~CudaOptimizer() override {
    rank_.reset();
    gpu_.reset();
    EXPECT_EQ(emulated_.faults(), Names());
    EXPECT_EQ(emulated_.numLiveObjects(), 0);
  }

  // The kernels that were launched, in order.
  Names launched() {
    EXPECT_EQ(rank_->finishStep().message(), "");
    return std::exchange(launched_, {});
  }
  // `elements` behind the last, at a multiple of 64 bytes; they are zero.
  template <typename T>
  T* place(int64_t elements) {
    T* data = reinterpret_cast<T*>(rank_->program().arena + used_);
    used_ += (elements * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    EXPECT_LE(used_, kArenaBytes);
    return data;
  }
  template <typename T>
  void write(const T* onGpu, const std::vector<T>& values) {
    std::copy(values.begin(), values.end(), onHost(onGpu));
    EXPECT_TRUE(rank_->store(onHost(onGpu), std::ssize(values) * sizeof(T)).ok());
  }
  template <typename T>
  std::vector<T> read(const T* onGpu, int64_t elements) {
    T* data = onHost(onGpu);
    EXPECT_TRUE(rank_->fetch(data, elements * static_cast<int64_t>(sizeof(T))).ok());
    return {data, data + elements};
  }
  // State in f32 with a gradient of ones.
  AdamWArrays bucket(int64_t elements, DType compute = DType::kF32) {
    AdamWArrays arrays;
    arrays.computeType = compute;
    arrays.master = place<float>(elements);
    arrays.parameter = compute == DType::kF32 ? arrays.master : place<float>(elements);
    float* gradient = place<float>(elements);
    write(gradient, std::vector<float>(static_cast<size_t>(elements), 1));
    arrays.gradient = gradient;
    arrays.moment1 = place<float>(elements);
    arrays.moment2 = place<float>(elements);
    arrays.elements = elements;
    return arrays;
  }
  Status adamW(std::span<const AdamWArrays> buckets) {
    AdamWCall call;
    call.step = {.learningRate = 0.5, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
    call.squares = {place<double>(1), 1};
    call.buckets = buckets;
    return rank_->adamW(call);
  }

  std::unique_ptr<CudaRank> rank_;
  EmulatedGpu& emulated() { return emulated_; }

 private:
  static constexpr int64_t kArenaBytes = 1 << 20;

  trireme::testing::EmulatedGpuOptions options() {
    trireme::testing::EmulatedGpuOptions options;
    options.duration = [this](const trireme::testing::EmulatedTask& task) {
      if (task.args != nullptr) launched_.push_back(task.name);
      return 1e-6;
    };
    return options;
  }
  template <typename T>
  T* onHost(const T* onGpu) {
    const auto offset = reinterpret_cast<const char*>(onGpu) - rank_->program().arena;
    return reinterpret_cast<T*>(arena_.data() + offset);
  }

  Names launched_;
  EmulatedGpu emulated_;
  std::unique_ptr<Gpu> gpu_;
  program::Bundle bundle_ = tinyBundle({.tp = 1, .dp = 1});
  Arena arena_;
  RankProgram image_;
  int64_t used_ = 0;
};

// m / (1 - b1) = 1 and v / (1 - b2) = 1, so that each element makes a full step of 0.5 down.
TEST_F(CudaOptimizer, BucketsOfOneKindAreOneLaunch) {
  const std::vector<AdamWArrays> buckets = {bucket(1), bucket(2000), bucket(0), bucket(7)};
  ASSERT_EQ(adamW(buckets).message(), "");
  EXPECT_EQ(launched(), (Names{"adamw_scale", "adamw_f32"}));
  for (const AdamWArrays& arrays : buckets)
    for (const float x : read(static_cast<const float*>(arrays.master), arrays.elements))
      EXPECT_NEAR(x, -0.5, 1e-6);
}

// A launch takes eight buckets, all of the same types.
TEST_F(CudaOptimizer, OtherTypesAndMoreBucketsAreMoreLaunches) {
  std::vector<AdamWArrays> buckets;
  for (int i = 0; i < 16; ++i) buckets.push_back(bucket(3 + i));
  for (int i = 0; i < 2; ++i) buckets.push_back(bucket(5, DType::kBf16));
  ASSERT_EQ(adamW(buckets).message(), "");
  EXPECT_EQ(launched(), (Names{"adamw_scale", "adamw_f32", "adamw_f32", "adamw_bf16"}));
  for (const AdamWArrays& arrays : buckets)
    for (const float x : read(static_cast<const float*>(arrays.master), arrays.elements))
      EXPECT_NEAR(x, -0.5, 1e-6);
}

TEST_F(CudaOptimizer, TypesThatNoKernelTakesAreRefused) {
  AdamWArrays mixed = bucket(4);
  mixed.computeType = DType::kF64;
  EXPECT_EQ(adamW({&mixed, 1}).message(), "no AdamW for state in f32 and parameters in f64");
  static_cast<void>(launched());
}

// The squares of 3 threes and of 20,000 twos, which are two pieces; a row without elements is zero.
// The second time the table is there.
TEST_F(CudaOptimizer, NormsOfAllBucketsAreTwoLaunches) {
  float* threes = place<float>(3);
  float* twos = place<float>(20000);
  double* squares = place<double>(4);
  write(threes, std::vector<float>(3, 3));
  write(twos, std::vector<float>(20000, 2));
  const auto row = [](int32_t index, const float* data, int64_t elements) {
    return NormRow{index, reinterpret_cast<const char*>(data), elements};
  };
  const std::vector<NormRow> first = {row(2, threes, 3), row(0, threes, 0)};
  const std::vector<NormRow> second = {row(1, twos, 20000), row(3, twos, 1)};
  const std::vector<BucketRows> buckets = {{0, DType::kF32, first}, {1, DType::kF32, second}};
  int64_t creations = 0;
  for (int step = 0; step < 2; ++step) {
    write(squares, std::vector<double>(4, -1));
    ASSERT_EQ(rank_->sumSquares(buckets, squares).message(), "");
    EXPECT_EQ(launched(), (Names{"squares_pieces_f32", "squares_rows"}));
    EXPECT_EQ(read(squares, 4), (std::vector<double>{0, 80000, 27, 4}));
    if (step == 0) creations = emulated().numCreations();
  }
  EXPECT_EQ(emulated().numCreations(), creations);
}

// So a GPU that stops is found at the right instruction behind them.
TEST_F(CudaOptimizer, InstructionsOfOneCallAreMarkedAtOnce) {
  ASSERT_EQ(rank_->mark(program::Stream::kCompute, 3).message(), "");
  ASSERT_EQ(rank_->mark(program::Stream::kCompute, 1).message(), "");
  static_cast<void>(launched());
  EXPECT_EQ(rank_->passed(program::Stream::kCompute), 4);
}

}  // namespace
}  // namespace trireme::runtime::cuda
