#include "runtime/device/cuda/driver_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/program/gpu_memory.h"
#include "runtime/executor/arena.h"
#include "runtime/session.h"
#include "tests/runtime/executor/tiny_program.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::runtime::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A bundle whose segment 0, which every layer calls forwards and backwards, has `numOps` ops.
program::Bundle bundleOfOps(int numOps) {
  program::Bundle bundle = tinyBundle({.tp = 1, .dp = 1});
  bundle.target.arch = "cuda:sm_90";
  program::Segment& segment = bundle.program.segments[0];
  segment.ops.assign(static_cast<size_t>(numOps), segment.ops[0]);
  return bundle;
}

int64_t nodesOf(const program::Bundle& bundle, int32_t rank) {
  const auto arena = *Arena::allocate(1 << 20);
  return numGraphNodes(bundle, *resolveRank(bundle.program, rank, arena.data()));
}

// Three ops of up to two launches, 3 layers, forwards and backwards, in each of the slots of 3
// microbatches. The loss of the last stage is one op, which is no graph.
TEST(NumGraphNodes, AreLaunchesPerLayerBodyAndSlot) {
  const program::Bundle bundle = bundleOfOps(3);
  EXPECT_EQ(nodesOf(bundle, 0), 3 * 2 * 3 * 2 * 3);
  EXPECT_EQ(nodesOf(bundle, 1), 3 * 2 * 3 * 2 * 3);
  EXPECT_EQ(nodesOf(bundleOfOps(2), 0), 0) << "two are launched one by one";
}

TEST(NumGraphNodes, OfAGeneratedKernelIsOne) {
  program::Bundle bundle = bundleOfOps(3);
  program::KernelCall generated;
  generated.kind = program::KernelCallKind::kGenerated;
  generated.symbol = "all";
  bundle.kernels.resize(bundle.program.segments.size());
  bundle.kernels[0].calls.assign(5, generated);
  EXPECT_EQ(nodesOf(bundle, 0), 5 * 3 * 2 * 3);
}

// A slot that a later microbatch uses again has its graphs.
TEST(NumGraphNodes, OfASlotCountOnce) {
  program::Bundle bundle = bundleOfOps(3);
  for (program::Role& role : bundle.program.roles)
    for (program::TaskRecord& task : role.tasks) task.slot = 0;
  EXPECT_EQ(nodesOf(bundle, 0), 3 * 2 * 3 * 2);
}

std::string refusalWith(int64_t memoryBytes, bool graphs) {
  trireme::testing::EmulatedGpu emulated({.memoryBytes = memoryBytes});
  const Apis apis = emulated.apis();
  const auto session = Session::create(
      bundleOfOps(3), {.virtualRanks = true, .cudaGraphs = graphs, .cudaApis = &apis});
  if (session.has_value()) return "";
  EXPECT_EQ(session.error().code(), StatusCode::kResourceExhausted);
  return session.error().message();
}

// 2 ranks x 108 launches x 64 KiB: 13.5 MiB.
TEST(GpuMemoryCheck, CountsWhatTheDriverTakesBesideTheArenas) {
  EXPECT_THAT(refusalWith(program::kLazyBytes / 2, true),
              AllOf(HasSubstr("the arenas of 2 ranks need "), HasSubstr("128.00 MiB are free: "),
                    HasSubstr(" are missing, with estimates of 256.00 MiB for what the driver "
                              "loads"),
                    Not(HasSubstr("graphs"))));
  const int64_t between = program::kLazyBytes + (int64_t{4} << 20);
  EXPECT_THAT(refusalWith(between, true),
              HasSubstr("and 13.50 MiB for 216 launches in CUDA graphs, which --no-cuda-graphs "
                        "does without"));
  EXPECT_EQ(refusalWith(between, false), "");
  EXPECT_EQ(refusalWith(between + (int64_t{10} << 20), true), "");
}

}  // namespace
}  // namespace trireme::runtime::cuda
