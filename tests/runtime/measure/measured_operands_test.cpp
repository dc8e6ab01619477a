#include "runtime/measure/measured_operands.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace trireme::runtime {
namespace {

using program::OpKind;
using program::Segment;

// x[8,1,16] is 512 bytes, w[4,16] 256, y[8,1,4] 128.
Segment productSegment(OpKind kind) {
  const program::OperandType x{DType::kF32, {8, 1, 16}}, w{DType::kF32, {4, 16}},
      y{DType::kF32, {8, 1, 4}};
  Segment segment;
  switch (kind) {
    case OpKind::kMatmul:
      segment.operands = {x, w, y};
      break;
    case OpKind::kMatmulGradInput:
      segment.operands = {y, w, x};
      break;
    default:
      segment.operands = {y, x, w};
  }
  segment.temporary = {false, false, false};
  segment.ops = {{kind, {}, {0, 1}, {2}}};
  return segment;
}

constexpr int64_t kMost = 65536;

// Half of the bytes are weights' copies: 32768 / 256 = 128. Of the others, 640 bytes, 51 would fit.
TEST(NumCopies, ManyOfWeightsAndAFewOfTheRest) {
  using Copies = std::vector<int64_t>;
  EXPECT_EQ(numCopies(productSegment(OpKind::kMatmul), kMost), (Copies{16, 128, 16}));
  EXPECT_EQ(numCopies(productSegment(OpKind::kMatmulGradInput), kMost), (Copies{16, 128, 16}));
  EXPECT_EQ(numCopies(productSegment(OpKind::kMatmulGradWeight), kMost), (Copies{16, 16, 128}));
}

TEST(NumCopies, NoMoreThanFitButOneOfEach) {
  using Copies = std::vector<int64_t>;
  EXPECT_EQ(numCopies(productSegment(OpKind::kMatmul), 2 * 2 * 640 + 1), (Copies{2, 5, 2}));
  EXPECT_EQ(numCopies(productSegment(OpKind::kMatmul), 1), (Copies{1, 1, 1}));
  EXPECT_EQ(bytesOfCopies(productSegment(OpKind::kMatmul), 1), 512 + 256 + 128);
  EXPECT_LE(bytesOfCopies(productSegment(OpKind::kMatmul), kMost), kMost);
}

// Without weights all bytes are for the rest.
TEST(NumCopies, OfOpsWithoutWeights) {
  Segment segment;
  segment.operands = {{DType::kF32, {8, 1, 16}}, {DType::kF32, {8, 1, 16}}};
  segment.temporary = {false, false};
  segment.ops = {{OpKind::kGelu, {}, {0}, {1}}};
  using Copies = std::vector<int64_t>;
  EXPECT_EQ(numCopies(segment, 3 * 1024), (Copies{3, 3}));
  EXPECT_EQ(numCopies(segment, 1 << 20), (Copies{16, 16}));
}

TEST(Operands, CopiesTakeTurnsAndNoneOverlap) {
  const Segment segment = productSegment(OpKind::kMatmul);
  OperandMemory memory;
  auto operands = Operands::make(segment, kMost, memory);
  ASSERT_TRUE(operands.has_value());
  const std::vector<int64_t> copies = numCopies(segment, kMost);
  std::vector<std::set<char*>> seen(copies.size());
  std::vector<void*> firsts;
  for (int call = 0; call < 128; ++call) {
    void* const* addresses = operands->next();
    for (size_t i = 0; i < copies.size(); ++i) seen[i].insert(static_cast<char*>(addresses[i]));
    if (call == 0) firsts.assign(addresses, addresses + copies.size());
  }
  void* const* again = operands->next();  // 128 is a multiple of every count
  EXPECT_EQ(firsts, std::vector<void*>(again, again + copies.size()));
  std::set<std::pair<char*, char*>> extents;
  for (size_t i = 0; i < copies.size(); ++i) {
    EXPECT_EQ(std::ssize(seen[i]), copies[i]);
    for (char* address : seen[i]) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 64, 0U);
      extents.emplace(address, address + segment.operands[i].bytes());
    }
  }
  for (auto it = extents.begin(); std::next(it) != extents.end(); ++it)
    EXPECT_LE(it->second, std::next(it)->first);
}

// Every copy of the weight, also in memory that other operands were in before.
TEST(Operands, AllCopiesHoldTheSameSmallNumbers) {
  OperandMemory memory;
  ASSERT_TRUE(Operands::make(productSegment(OpKind::kMatmulGradWeight), kMost, memory).has_value());
  const Segment segment = productSegment(OpKind::kMatmul);
  auto operands = Operands::make(segment, kMost, memory);
  ASSERT_TRUE(operands.has_value());
  std::vector<float> expected(64);
  fillSmall(segment.operands[1], expected.data());
  for (float value : expected) {
    EXPECT_LT(std::abs(value), 0.2);
    EXPECT_GT(std::abs(value), 1e-4);
  }
  for (int call = 0; call < 128; ++call) {
    const auto* weight = static_cast<const float*>(operands->next()[1]);
    EXPECT_EQ(std::vector<float>(weight, weight + 64), expected) << call;
  }
}

}  // namespace
}  // namespace trireme::runtime
