// Matrix products with epilogues against the reference's ops, one by one, on random operands
// (TRIREME_SEED). cuBLASLt rounds once where the ops round in between, so bf16 differs by
// roundings.
#include "runtime/device/cuda/matmul_chain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "runtime/kernels/kernels.h"
#include "runtime/kernels/operands.h"
#include "tests/gpu/test_gpu.h"
#include "tests/support/op_case.h"

namespace trireme::runtime {
namespace {

using gpu::GpuMemory;
using gpu::TestGpu;
using program::OpKind;
using program::Segment;

// The operands' bytes in memory of the host.
class Operands {
 public:
  explicit Operands(const Segment& segment) : segment_(segment) {
    std::mt19937_64 random(testing::seedOfDraws());
    std::normal_distribution<double> normal;
    for (const program::OperandType& type : segment.operands) {
      bytes_.emplace_back(static_cast<size_t>(type.bytes()));
      const Tensor tensor{bytes_.back().data(), &type};
      for (int64_t i = 0; i < type.elements(); ++i) tensor.set(i, normal(random));
    }
  }
  std::vector<void*> addresses() {
    std::vector<void*> addresses;
    for (auto& bytes : bytes_) addresses.push_back(bytes.data());
    return addresses;
  }
  double at(size_t operand, int64_t i) {
    return Tensor{bytes_[operand].data(), &segment_.operands[operand]}.at(i);
  }

 private:
  const Segment& segment_;
  std::vector<std::vector<char>> bytes_;
};

void runReference(const Segment& segment, const std::vector<void*>& addresses) {
  const program::KernelContext context;
  for (const program::SegmentOp& op : segment.ops)
    ASSERT_EQ(
        runReferenceOp({&op, segment.operands.data(), addresses.data(), &context, nullptr, nullptr})
            .message(),
        "");
}

// Runs the first op's chain, and nothing else of the segment. Whether there is an algorithm.
bool runChain(const Segment& segment, const std::vector<void*>& addresses) {
  TestGpu test;
  const auto gpu = cuda::Gpu::open(test.apis(), 0);
  GpuMemory memory(**gpu);
  std::vector<void*> onGpu;
  for (size_t i = 0; i < addresses.size(); ++i)
    onGpu.push_back(memory.upload(addresses[i], segment.operands[i].bytes()));
  const auto chain = cuda::chainFrom(segment, cuda::stepsOf(segment, nullptr), 0);
  EXPECT_EQ(chain->steps.size(), segment.ops.size());
  const auto library = cuda::CublasLt::create((*gpu)->cublasLt());
  const auto matmul =
      cuda::Matmul::create(**library, segment.ops[0], segment.operands, chain->epilogue);
  EXPECT_TRUE(matmul.has_value()) << matmul.error().message();
  if (!(*matmul)->candidates((*matmul)->alignmentOf(onGpu.data()), 0, 1).has_value()) return false;
  EXPECT_EQ((*matmul)->run(onGpu.data(), {}, memory.stream()).message(), "");
  for (size_t i = 0; i < addresses.size(); ++i)
    memory.download(onGpu[i], addresses[i], segment.operands[i].bytes());
  return true;
}

class GpuMatmulChain : public ::testing::TestWithParam<DType> {
 protected:
  DType type() const { return GetParam(); }

  void expectMatchesReference(const Segment& segment, const std::vector<size_t>& outputs) const {
    Operands slow(segment), fast(segment);
    runReference(segment, slow.addresses());
    const bool isThere = runChain(segment, fast.addresses());
    if (gpu::isRealGpu() && !isThere)
      GTEST_SKIP() << "cuBLASLt has no such epilogue: a rank runs the ops one by one";
    ASSERT_TRUE(isThere);
    for (const size_t output : outputs) {
      double largest = 0;
      const int64_t count = segment.operands[output].elements();
      for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(slow.at(output, i)));
      for (int64_t i = 0; i < count; ++i)
        ASSERT_NEAR(slow.at(output, i), fast.at(output, i),
                    2 * testing::roundingOf(type()) * largest)
            << "operand " << output << "[" << i << "]";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Types, GpuMatmulChain, ::testing::Values(DType::kF32, DType::kBf16),
                         [](const auto& info) { return std::string(dtypeName(info.param)); });

Segment forward(DType type, int64_t out) {
  Segment segment{"forward",
                  {{type, {5, 3, 24}},
                   {type, {out, 24}},
                   {type, {5, 3, out}},
                   {type, {out}},
                   {type, {5, 3, out}},
                   {type, {5, 3, out}}},
                  {false, false, true, false, false, false},
                  {}};
  segment.ops = {{OpKind::kMatmul, {}, {0, 1}, {2}}, {OpKind::kBiasAdd, {}, {2, 3}, {4}}};
  return segment;
}

TEST_P(GpuMatmulChain, Bias) { expectMatchesReference(forward(type(), 40), {4}); }

TEST_P(GpuMatmulChain, BiasAndGeluThatKeepsItsInput) {
  Segment segment = forward(type(), 40);
  segment.ops.push_back({OpKind::kGelu, {}, {4}, {5}});
  expectMatchesReference(segment, {4, 5});
}

TEST_P(GpuMatmulChain, BiasAndGelu) {
  Segment segment = forward(type(), 40);
  segment.temporary[4] = true;
  segment.ops.push_back({OpKind::kGelu, {}, {4}, {5}});
  expectMatchesReference(segment, {5});
}

TEST_P(GpuMatmulChain, GradientOfGelu) {
  Segment segment{"backward",
                  {{type(), {5, 3, 24}},
                   {type(), {24, 40}},
                   {type(), {5, 3, 40}},
                   {type(), {5, 3, 40}},
                   {type(), {5, 3, 40}}},
                  {false, false, true, false, false},
                  {}};
  segment.ops = {{OpKind::kMatmulGradInput, {}, {0, 1}, {2}}, {OpKind::kGeluGrad, {}, {3, 2}, {4}}};
  expectMatchesReference(segment, {4});
}

}  // namespace
}  // namespace trireme::runtime
