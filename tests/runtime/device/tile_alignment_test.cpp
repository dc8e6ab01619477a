// Attention on tensor cores copies 16 bytes at a time: addresses that do not allow it are found
// when a rank starts, not by a GPU that stops.
#include <gmock/gmock.h>

#include "runtime/device/cuda/op_launch.h"
#include "runtime/session.h"
#include "tests/runtime/device/extra_segment.h"
#include "tests/runtime/executor/tiny_program.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::runtime::cuda {
namespace {

using program::OpKind;
using ::testing::HasSubstr;
using trireme::testing::EmulatedGpu;

// qkv, ctx, lse of two heads, and for the gradient dctx, dqkv: 0 to 4.
program::Segment attention(OpKind kind, int64_t headSize, DType type = DType::kBf16) {
  program::Segment segment{
      "attention",
      {{type, {16, 1, 2, 3 * headSize}}, {type, {16, 1, 2, headSize}}, {DType::kF32, {1, 2, 16}}},
      std::vector<bool>(5),
      {{kind, {.headSize = headSize, .headsPerGroup = 1}, {0}, {1, 2}}}};
  if (kind == OpKind::kAttention) return segment;
  segment.operands.push_back(segment.operands[1]);
  segment.operands.push_back(segment.operands[0]);
  segment.ops[0].inputs = {0, 1, 2, 3};
  segment.ops[0].outputs = {4};
  return segment;
}

// What a session says whose operands begin so many bytes behind a multiple of 256.
std::string startedWith(const program::Segment& segment, const std::vector<int64_t>& offsets) {
  EmulatedGpu emulated;
  const Apis apis = emulated.apis();
  program::Bundle bundle = tinyBundle({.tp = 1, .dp = 1});
  bundle.target.arch = "cuda:sm_90";
  addSegment(bundle.program, bundle.program.roles[0], segment, offsets);
  SessionOptions options{.virtualRanks = true};
  options.cudaApis = &apis;
  const auto session = Session::create(std::move(bundle), options);
  EXPECT_EQ(emulated.faults(), std::vector<std::string>());
  return session.has_value() ? "" : session.error().message();
}

TEST(TileAlignment, IsLookedAtWhenARankStarts) {
  const program::Segment onTiles = attention(OpKind::kAttention, 64);
  EXPECT_EQ(startedWith(onTiles, {}), "");
  EXPECT_EQ(startedWith(onTiles, {16, 48, 4}), "");
  EXPECT_THAT(startedWith(onTiles, {8}),
              HasSubstr("segment attention: attention: operand 0 begins"));
  EXPECT_THAT(startedWith(onTiles, {0, 2}), HasSubstr("operand 1 begins"));
}

// Plain kernels take an element at a time.
TEST(TileAlignment, BindsOnlyTensorCores) {
  EXPECT_EQ(startedWith(attention(OpKind::kAttention, 80), {2, 2, 4}), "");
  EXPECT_EQ(startedWith(attention(OpKind::kAttention, 64, DType::kF32), {4, 4, 4}), "");
}

TEST(TileAlignment, OfTheGradientIsThatOfAllActivations) {
  const program::Segment segment = attention(OpKind::kAttentionGrad, 128, DType::kF16);
  EmulatedGpu emulated;
  const auto gpu = Gpu::open(emulated.apis(), 0);
  ASSERT_TRUE(gpu.has_value()) << gpu.error().message();
  alignas(16) char deltas[128];
  const auto launch = OpLaunch::create(**gpu, segment.ops[0], segment.operands, 0,
                                       {.workspace = {deltas, sizeof(deltas)}});
  ASSERT_TRUE(launch.has_value()) << launch.error().message();
  for (size_t operand = 0; operand < 5; ++operand) {
    std::vector<void*> addresses(5, reinterpret_cast<void*>(0x1000));
    EXPECT_EQ(launch->checkAlignment(addresses.data()).message(), "");
    addresses[operand] = reinterpret_cast<void*>(0x1008);
    const Status status = launch->checkAlignment(addresses.data());
    // lse is copied number by number.
    EXPECT_EQ(status.code(), operand == 2 ? StatusCode::kOk : StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace trireme::runtime::cuda
