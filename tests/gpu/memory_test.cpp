// What a training takes of a GPU's memory: its arenas, and beside them what driver_memory.h states.
//
// Nothing that a session allocates is freed before it ends, so what is in use after its second
// step, when segments run as graphs, is the most that it ever used. In use is what the driver no
// longer offers: on a real GPU nobody else may allocate meanwhile.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "ir/program/gpu_memory.h"
#include "runtime/device/cuda/driver_memory.h"
#include "runtime/executor/arena.h"
#include "runtime/session.h"
#include "tests/gpu/bundles.h"
#include "tests/gpu/test_gpu.h"
#include "tests/support/training.h"

namespace trireme::runtime::gpu {
namespace {

// Tables of the norm and factors of the optimizer, per rank. An emulated driver takes nothing else.
constexpr int64_t kSmallBlockBytes = int64_t{256} << 10;

struct MemoryUse {
  int64_t ranks = 0, graphNodes = 0;
  int64_t arenas = 0;         // bytes, as the following
  int64_t withoutGraphs = 0;  // in use after a training that launches one by one
  int64_t withGraphs = 0;     // and after the same with graphs
  int64_t estimate = 0;       // that the check before a run makes of withGraphs
};

void addStated(const program::Bundle& bundle, MemoryUse& use) {
  use.ranks = std::ssize(bundle.program.ranks);
  for (int32_t rank = 0; rank < use.ranks; ++rank) {
    const int32_t role = bundle.program.ranks[static_cast<size_t>(rank)].role;
    const int64_t bytes = bundle.program.roles[static_cast<size_t>(role)].arenaBytes;
    use.arenas += bytes;
    const auto unused = Arena::allocate(bytes);  // for its addresses
    ASSERT_TRUE(unused.has_value()) << unused.error().message();
    const auto resolved = resolveRank(bundle.program, rank, unused->data());
    ASSERT_TRUE(resolved.has_value()) << resolved.error().message();
    use.graphNodes += cuda::numGraphNodes(bundle, *resolved);
  }
  use.estimate = use.arenas + program::kLazyBytes + use.graphNodes * program::kGraphNodeBytes;
}

int64_t freeOn(const cuda::Gpu& gpu) {
  EXPECT_EQ(gpu.makeCurrent().message(), "");
  const Result<int64_t> bytes = gpu.freeBytes();
  EXPECT_TRUE(bytes.has_value()) << bytes.error().message();
  return bytes.value_or(0);
}

// Free bytes at the end of two steps.
int64_t freeAfterSteps(const cuda::Gpu& gpu, const cuda::Apis& apis, program::Bundle bundle,
                       bool graphs) {
  equivalence::SyntheticData data(bundle.program.training.vocabSize);
  SessionOptions options;
  options.virtualRanks = true;
  options.cudaGraphs = graphs;
  options.timesMatmuls = true;  // which loads more kernels
  options.cudaApis = &apis;
  auto session = Session::create(std::move(bundle), options);
  EXPECT_TRUE(session.has_value()) << session.error().message();
  if (!session.has_value()) return 0;
  for (int i = 0; i < 2; ++i) {
    const auto step = (*session)->step(data);
    EXPECT_TRUE(step.has_value()) << step.error().message();
  }
  return freeOn(gpu);
}

// What the first training has loaded stays, since the context does, and counts in the second.
MemoryUse measure(const program::Bundle& bundle) {
  MemoryUse use;
  addStated(bundle, use);
  const TestGpu test;
  auto gpu = cuda::Gpu::open(test.apis(), 0);
  EXPECT_TRUE(gpu.has_value()) << gpu.error().message();
  if (!gpu.has_value()) return use;
  const int64_t before = freeOn(**gpu);
  use.withoutGraphs = before - freeAfterSteps(**gpu, test.apis(), bundle, false);
  use.withGraphs = before - freeAfterSteps(**gpu, test.apis(), bundle, true);
  return use;
}

void expectWithinStated(const MemoryUse& use) {
  EXPECT_GT(use.arenas, 0);
  EXPECT_GE(use.withoutGraphs, use.arenas);
  EXPECT_LE(use.withoutGraphs, use.arenas + program::kLazyBytes);
  EXPECT_GE(use.withGraphs, use.withoutGraphs);
  EXPECT_LE(use.withGraphs, use.estimate);
  if (isRealGpu()) return;
  EXPECT_LE(use.withGraphs, use.arenas + use.ranks * kSmallBlockBytes);
}

TEST(GpuMemoryUse, IsTheArenasAndWhatIsStated) {
  if (!isRealGpu() && !hasBundles())
    GTEST_SKIP() << "no bundles: a build with the code generator makes them";
  for (const char* name : {"gpt-bf16", "gpt-fp32-t2p2d2-overlap"}) {
    SCOPED_TRACE(name);
    const MemoryUse use = measure(forTestGpu(bundleOf(std::string(name) + ".bundle")));
    EXPECT_GT(use.graphNodes, 0);
    expectWithinStated(use);
  }
}

// For bench/gpu/memory, which reads the line.
TEST(GpuMemoryUse, OfTheBundleOfTheEnvironment) {
  const char* path = std::getenv("TRIREME_MEMORY_OF");
  if (path == nullptr) GTEST_SKIP() << "TRIREME_MEMORY_OF names no bundle";
  const MemoryUse use = measure(forTestGpu(readBundleAt(path)));
  if (HasFailure()) return;
  fmt::print(
      R"(memory: {{"arenas": {}, "without_graphs": {}, "with_graphs": {}, "graph_nodes": {}, "estimate": {}}})"
      "\n",
      use.arenas, use.withoutGraphs, use.withGraphs, use.graphNodes, use.estimate);
  expectWithinStated(use);
}

}  // namespace
}  // namespace trireme::runtime::gpu
