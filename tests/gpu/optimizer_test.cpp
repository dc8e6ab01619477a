// The kernels that belong to no op: reductions between ranks, the norm, AdamW.
#include "runtime/executor/optimizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "runtime/device/cuda/gpu.h"
#include "runtime/device/cuda/kernels/args.h"
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/thread_pool.h"
#include "tests/gpu/test_gpu.h"
#include "tests/support/op_case.h"

namespace trireme::runtime::gpu {
namespace {

using cuda::AdamWArgs;
using cuda::ReduceArgs;
using cuda::SquaresArgs;
using cuda::SquaresPiece;
using cuda::SquaresRow;

constexpr int64_t kWarp = 32;

trireme::testing::EmulatedGpuOptions emulation(bool inWarps) {
  trireme::testing::EmulatedGpuOptions options;
  options.inWarps = inWarps;
  return options;
}

// Emulated with one host thread for a warp; and with a fiber for each of its threads (true).
class GpuOptimizer : public ::testing::TestWithParam<bool> {
 protected:
  GpuOptimizer() : test_(emulation(GetParam())) {
    auto opened = cuda::Gpu::open(test_.apis(), 0);
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    gpu_ = *std::move(opened);
    memory_ = std::make_unique<GpuMemory>(*gpu_);
  }

  void SetUp() override {
    if (GetParam() && (TRIREME_SANITIZED || isRealGpu()))
      GTEST_SKIP() << "fibers are for emulation";
  }
  void launch(const std::string& kernel, const void* args, int64_t threads) {
    const auto function = gpu_->kernel(kernel);
    ASSERT_TRUE(function.has_value()) << function.error().message();
    ASSERT_EQ(gpu_->launch(cuda::launchOf(*function, args, threads), memory_->stream()).message(),
              "");
  }
  template <typename T>
  void expectReducedInF32(const char* kernel);
  template <typename S, typename P>
  void expectAdamWOfTheHost(DType state, DType compute);
  std::vector<float> draws(size_t count, float spread = 1) {
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }

 private:
  TestGpu test_;
  std::unique_ptr<cuda::Gpu> gpu_;

 protected:
  std::unique_ptr<GpuMemory> memory_;
  std::mt19937_64 random_{testing::seedOfDraws()};
};

// Three members, in their order, over the middle of the buffers; the rest keeps its value.
TEST_P(GpuOptimizer, ReductionsAddInTheOrderOfTheMembers) {
  constexpr size_t kCount = 1003, kBegin = 17, kEnd = 1000;
  const std::vector<std::vector<float>> members = {draws(kCount), draws(kCount), draws(kCount)};
  for (const bool isMax : {false, true}) {
    ReduceArgs args{};
    args.numInputs = args.numOutputs = 3;
    args.begin = kBegin, args.end = kEnd;
    std::vector<float*> onGpu;
    for (size_t m = 0; m < 3; ++m) {
      onGpu.push_back(memory_->upload(members[m]));
      args.inputs[m] = args.outputs[m] = onGpu[m];
    }
    launch(isMax ? "reduce_max_f32" : "reduce_sum_f32", &args, kEnd - kBegin);
    for (size_t m = 0; m < 3; ++m) {
      const std::vector<float> actual = memory_->download(onGpu[m], kCount);
      for (size_t i = 0; i < kCount; ++i) {
        const float a = members[0][i], b = members[1][i], c = members[2][i];
        const float all = isMax ? std::max({a, b, c}) : (a + b) + c;
        EXPECT_EQ(actual[i], i >= kBegin && i < kEnd ? all : members[m][i]) << i;
      }
    }
  }
}

template <typename T>
void GpuOptimizer::expectReducedInF32(const char* kernel) {
  constexpr size_t kCount = 517;
  const std::vector<std::vector<float>> members = {draws(kCount), draws(kCount), draws(kCount)};
  ReduceArgs args{};
  args.numInputs = 3, args.numOutputs = 1, args.end = kCount;
  std::vector<std::vector<uint16_t>> rounded(3, std::vector<uint16_t>(kCount));
  for (size_t m = 0; m < 3; ++m) {
    for (size_t i = 0; i < kCount; ++i) rounded[m][i] = narrow<T>(members[m][i]).bits;
    args.inputs[m] = memory_->upload(rounded[m]);
  }
  uint16_t* sum = memory_->upload(std::vector<uint16_t>(kCount, 0xFFFF));
  args.outputs[0] = sum;
  launch(kernel, &args, kCount);
  const std::vector<uint16_t> actual = memory_->download(sum, kCount);
  for (size_t i = 0; i < kCount; ++i)
    EXPECT_EQ(actual[i], narrow<T>((toFloat(T{rounded[0][i]}) + toFloat(T{rounded[1][i]})) +
                                   toFloat(T{rounded[2][i]}))
                             .bits)
        << i;
}

TEST_P(GpuOptimizer, SixteenBitsAreReducedInF32AndRoundedOnce) {
  expectReducedInF32<Bf16>("reduce_sum_bf16");
  expectReducedInF32<F16>("reduce_sum_f16");
}

// Two rows of pieces: 40,000 elements are three pieces, 5 are one. A row that nobody names keeps
// its value. Sums in f64 differ by their order alone.
TEST_P(GpuOptimizer, SquaresAreSummedByRow) {
  const std::vector<float> large = draws(40000), small = draws(5);
  const float* onGpuLarge = memory_->upload(large);
  const float* onGpuSmall = memory_->upload(small);
  std::vector<SquaresPiece> pieces;
  for (int64_t done = 0; done < 40000; done += cuda::kSquaresPiece)
    pieces.push_back({onGpuLarge + done, std::min<int64_t>(cuda::kSquaresPiece, 40000 - done)});
  ASSERT_EQ(pieces.size(), 3u);
  pieces.push_back({onGpuSmall, 5});
  SquaresArgs args{};
  args.pieces = memory_->upload(pieces);
  args.numPieces = 4;
  args.rows = memory_->upload(std::vector<SquaresRow>{{0, 3, 2}, {3, 1, 0}});
  args.numRows = 2;
  args.partial = memory_->upload(std::vector<double>(4, NAN));
  double* squares = memory_->upload(std::vector<double>(3, -1));
  args.squares = squares;
  launch("squares_pieces_f32", &args, args.numPieces * kWarp);
  launch("squares_rows", &args, args.numRows * kWarp);
  const std::vector<double> actual = memory_->download(squares, 3);
  const double expected = sumOfSquares(DType::kF32, large.data(), 40000);
  EXPECT_NEAR(actual[2], expected, 1e-12 * expected);
  EXPECT_NEAR(actual[0], sumOfSquares(DType::kF32, small.data(), 5), 1e-12 * actual[0]);
  EXPECT_EQ(actual[1], -1);
}

// The state of one bucket on the host, and where its copy is on the GPU.
template <typename S, typename P>
struct Bucket {
  std::vector<S> master, gradient, moment1, moment2;
  std::vector<P> parameter;
  double weightDecay = 0;
  cuda::AdamWBucket onGpu{};

  AdamWArrays arrays(DType state, DType compute) {
    return {state,          compute,        parameter.data(),      master.data(), gradient.data(),
            moment1.data(), moment2.data(), std::ssize(parameter), weightDecay};
  }
  void upload(GpuMemory& memory, int64_t firstPiece) {
    onGpu = {memory.upload(parameter),
             memory.upload(master),
             memory.upload(gradient),
             memory.upload(moment1),
             memory.upload(moment2),
             std::ssize(parameter),
             firstPiece,
             weightDecay};
  }
  void expectSameBits(GpuMemory& memory) const {
    expectSameBits(memory, onGpu.parameter, parameter);
    expectSameBits(memory, onGpu.master, master);
    expectSameBits(memory, onGpu.moment1, moment1);
    expectSameBits(memory, onGpu.moment2, moment2);
  }
  template <typename T>
  static void expectSameBits(GpuMemory& memory, const void* data, const std::vector<T>& expected) {
    const std::vector<T> actual = memory.download(static_cast<const T*>(data), expected.size());
    if (!expected.empty()) {
      EXPECT_EQ(std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(T)), 0);
    }
  }
};

// Eight buckets in one launch, each with a weight decay of its own: of one element, of none, around
// a piece, and of more pieces than a grid has warps. A step with clipping: the host's, bit by bit.
template <typename S, typename P>
void GpuOptimizer::expectAdamWOfTheHost(DType state, DType compute) {
  std::vector<Bucket<S, P>> buckets;
  AdamWArgs args{};
  std::vector<double> squares;
  for (const size_t size : {1, 1023, 0, 1024, 1025, 33, 9001, 2}) {
    const auto drawn = [&] {
      const std::vector<float> values = draws(size);
      return std::vector<S>(values.begin(), values.end());
    };
    Bucket<S, P>& bucket = buckets.emplace_back();
    bucket = {drawn(), drawn(), drawn(), drawn(), std::vector<P>(size)};
    for (S& value : bucket.moment2) value *= value;
    bucket.weightDecay = 0.1 * static_cast<double>(buckets.size());
    bucket.upload(*memory_, args.numPieces);
    squares.push_back(sumOfSquares(state, bucket.gradient.data(), static_cast<int64_t>(size)));
    args.buckets[args.numBuckets++] = bucket.onGpu;
    args.numPieces += (static_cast<int64_t>(size) + cuda::kAdamWPiece - 1) / cuda::kAdamWPiece;
  }
  ASSERT_EQ(args.numBuckets, cuda::kMaxAdamWBuckets);

  AdamWStep step;
  step.learningRate = 1e-2, step.beta1 = 0.9, step.beta2 = 0.95, step.epsilon = 1e-8;
  step.number = 3;
  const auto numSquares = std::ssize(squares);
  step.gradientScale = clipCoefficient(1, gradientNorm(squares.data(), numSquares));
  ASSERT_LT(step.gradientScale, 0.1);
  args.squares = memory_->upload(squares);
  args.numSquares = numSquares;
  args.factors = memory_->upload(std::vector<cuda::AdamWFactors>{{NAN, NAN, NAN, true}});
  args.clipNorm = 1;
  args.learningRate = step.learningRate, args.beta1 = step.beta1, args.beta2 = step.beta2;
  args.epsilon = step.epsilon;
  args.correct1 = 1 / (1 - powerOf(step.beta1, 3));
  args.correct2 = 1 / (1 - powerOf(step.beta2, 3));
  launch("adamw_scale", &args, kWarp);
  launch(fmt::format("adamw_{}", dtypeName(compute)), &args, args.numPieces * kWarp);

  ThreadPool pool(1);
  for (Bucket<S, P>& bucket : buckets) {
    SCOPED_TRACE(fmt::format("{} elements", bucket.parameter.size()));
    ASSERT_EQ(adamW(step, bucket.arrays(state, compute), pool).message(), "");
    bucket.expectSameBits(*memory_);
  }
}

TEST_P(GpuOptimizer, AdamWOfManyBucketsIsTheHostsBitByBit) {
  expectAdamWOfTheHost<double, double>(DType::kF64, DType::kF64);
  expectAdamWOfTheHost<float, float>(DType::kF32, DType::kF32);
  expectAdamWOfTheHost<float, Bf16>(DType::kF32, DType::kBf16);
  expectAdamWOfTheHost<float, F16>(DType::kF32, DType::kF16);
}

// With a scale of 1024, of parameters in f16: the number of the step is that of the steps that were
// taken, and norm and gradient are over the scale. The host's, bit by bit; and a norm that is not
// finite changes nothing.
TEST_P(GpuOptimizer, AdamWOfAScaledLossIsTheHostsOrSkipped) {
  constexpr size_t kSize = 1001;
  Bucket<float, F16> bucket{draws(kSize), draws(kSize, 1024), std::vector<float>(kSize),
                            std::vector<float>(kSize), std::vector<F16>(kSize, F16{0xFFFF})};
  bucket.upload(*memory_, 0);
  const double sum = sumOfSquares(DType::kF32, bucket.gradient.data(), kSize);
  AdamWArgs args{};
  args.buckets[0] = bucket.onGpu;
  args.numBuckets = args.numPieces = 1;
  args.numSquares = 1;
  args.lossScaling = memory_->upload(std::vector<double>{1024, 5, 36, 4});
  args.factors = memory_->upload(std::vector<cuda::AdamWFactors>{{NAN, NAN, NAN, false}});
  args.clipNorm = 1;
  args.learningRate = 1e-2, args.beta1 = 0.9, args.beta2 = 0.95, args.epsilon = 1e-8;
  for (const double notFinite : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    args.squares = memory_->upload(std::vector<double>{notFinite});
    launch("adamw_scale", &args, kWarp);
    launch("adamw_f16", &args, kWarp);
    bucket.expectSameBits(*memory_);
  }
  args.squares = memory_->upload(std::vector<double>{sum});
  launch("adamw_scale", &args, kWarp);
  launch("adamw_f16", &args, kWarp);

  AdamWStep step;
  step.learningRate = 1e-2, step.beta1 = 0.9, step.beta2 = 0.95, step.epsilon = 1e-8;
  step.number = 37;
  step.gradientScale = clipCoefficient(1, gradientNorm(&sum, 1) / 1024) / 1024;
  ThreadPool pool(1);
  ASSERT_EQ(adamW(step, bucket.arrays(DType::kF32, DType::kF16), pool).message(), "");
  bucket.expectSameBits(*memory_);
}

TEST_P(GpuOptimizer, AdamWOfANormThatIsNotFiniteChangesNothing) {
  constexpr size_t kSize = 1001;
  Bucket<float, float> bucket{draws(kSize), draws(kSize), std::vector<float>(kSize),
                              std::vector<float>(kSize), std::vector<float>(kSize, 1)};
  bucket.upload(*memory_, 0);
  AdamWArgs args{};
  args.buckets[0] = bucket.onGpu;
  args.numBuckets = args.numPieces = 1;
  args.numSquares = 1;
  args.factors = memory_->upload(std::vector<cuda::AdamWFactors>{{NAN, NAN, NAN, false}});
  args.learningRate = 1e-2, args.beta1 = 0.9, args.beta2 = 0.95, args.epsilon = 1e-8;
  args.correct1 = args.correct2 = 1;
  for (const double clipNorm : {0.0, 1.0})
    for (const double notFinite : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
      args.clipNorm = clipNorm;
      args.squares = memory_->upload(std::vector<double>{notFinite});
      launch("adamw_scale", &args, kWarp);
      launch("adamw_f32", &args, kWarp);
      bucket.expectSameBits(*memory_);
    }
}

// Good steps up to the window of 3, an overflow, and the smallest scale: as the host does.
TEST_P(GpuOptimizer, TheLossScaleIsUpdatedAsOnTheHost) {
  program::Training training;
  training.lossScaleWindow = 3;
  training.minLossScale = 2;
  program::LossScaling expected{4, 0, 0, 0};
  double* scaling = memory_->upload(std::vector<double>{4, 0, 0, 0});
  const double inf = INFINITY, nan = NAN;
  for (const double norm : {1.0, 1.0, 1.0, 1.0, inf, nan, inf, 1.0}) {
    cuda::LossScaleArgs args{};
    args.squares = memory_->upload(std::vector<double>{norm});
    args.numSquares = 1;
    args.lossScaling = scaling;
    args.window = 3;
    args.minimum = 2;
    launch("update_loss_scale", &args, kWarp);
    updateLossScaling(training, norm, expected);
    EXPECT_EQ(memory_->download(scaling, 4),
              (std::vector<double>{expected.scale, expected.goodSteps, expected.takenSteps,
                                   expected.skippedSteps}));
  }
  EXPECT_EQ(expected, (program::LossScaling{2, 1, 5, 3}));
}

INSTANTIATE_TEST_SUITE_P(Kernels, GpuOptimizer, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InWarps" : "InRows"; });

}  // namespace
}  // namespace trireme::runtime::gpu
