#include "runtime/device/cuda/matmul_chain.h"

#include <gtest/gtest.h>

#include "runtime/session.h"
#include "tests/runtime/device/extra_segment.h"
#include "tests/runtime/executor/counting_data.h"
#include "tests/runtime/executor/tiny_program.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::runtime::cuda {
namespace {

using program::OpKind;
using program::Segment;
using trireme::testing::EmulatedGpu;
using trireme::testing::EmulatedGpuOptions;

// x, w, x w^T, bias, the sum, gelu of it: 0 to 5; 2 is a temporary.
Segment geluForward(DType type = DType::kF32) {
  Segment segment{"forward",
                  {{type, {3, 2, 8}},
                   {type, {16, 8}},
                   {type, {3, 2, 16}},
                   {type, {16}},
                   {type, {3, 2, 16}},
                   {type, {3, 2, 16}}},
                  {false, false, true, false, false, false},
                  {}};
  segment.ops = {{OpKind::kMatmul, {}, {0, 1}, {2}},
                 {OpKind::kBiasAdd, {}, {2, 3}, {4}},
                 {OpKind::kGelu, {}, {4}, {5}}};
  return segment;
}

// dy, w, dy w, x, the weight's gradient, gelu's input, its gradient: 0 to 6; 2 is a temporary.
Segment geluBackward() {
  const DType type = DType::kF32;
  Segment segment{"backward",
                  {{type, {3, 2, 16}},
                   {type, {16, 8}},
                   {type, {3, 2, 8}},
                   {type, {3, 2, 8}},
                   {type, {16, 8}},
                   {type, {3, 2, 8}},
                   {type, {3, 2, 8}}},
                  {false, false, true, false, false, false, false},
                  {}};
  segment.ops = {{OpKind::kMatmulGradInput, {}, {0, 1}, {2}},
                 {OpKind::kMatmulGradWeight, {}, {0, 3}, {4}},
                 {OpKind::kGeluGrad, {}, {5, 2}, {6}}};
  return segment;
}

std::optional<MatmulChain> firstChain(const Segment& segment) {
  return chainFrom(segment, stepsOf(segment, nullptr), 0);
}

EpilogueKind epilogueKindOf(const Segment& segment) {
  const auto chain = firstChain(segment);
  return chain ? chain->epilogue.kind : EpilogueKind::kNone;
}

using Steps = std::vector<size_t>;

TEST(MatmulChain, BiasAndGeluFollowAProduct) {
  const auto chain = firstChain(geluForward());
  ASSERT_TRUE(chain.has_value());
  EXPECT_EQ(chain->steps, (Steps{0, 1, 2}));
  EXPECT_EQ(chain->epilogue.kind, EpilogueKind::kGelu);
  EXPECT_EQ(chain->epilogue.bias, 3);
  EXPECT_EQ(chain->epilogue.aux, 4);
  EXPECT_EQ(chain->epilogue.output, 5);
}

TEST(MatmulChain, GelusInputIsWrittenOnlyIfSomebodyReadsIt) {
  Segment segment = geluForward();
  segment.temporary[4] = true;
  EXPECT_EQ(firstChain(segment)->epilogue.aux, -1);
  segment.ops.push_back({OpKind::kAdd, {}, {4, 5}, {5}});
  EXPECT_EQ(firstChain(segment)->epilogue.aux, 4);
}

TEST(MatmulChain, WithoutGeluItIsTheBiasAlone) {
  Segment segment = geluForward();
  segment.ops.pop_back();
  const auto chain = firstChain(segment);
  ASSERT_TRUE(chain.has_value());
  EXPECT_EQ(chain->steps, (Steps{0, 1}));
  EXPECT_EQ(chain->epilogue.kind, EpilogueKind::kBias);
  EXPECT_EQ(chain->epilogue.output, 4);
  segment.ops[1].outputs = {2};  // over the product, which then need not be a temporary
  segment.temporary[2] = false;
  EXPECT_EQ(epilogueKindOf(segment), EpilogueKind::kBias);
}

TEST(MatmulChain, TheGradientOfGeluPassesThatOfTheWeight) {
  const auto chain = firstChain(geluBackward());
  ASSERT_TRUE(chain.has_value());
  EXPECT_EQ(chain->steps, (Steps{0, 2}));
  EXPECT_EQ(chain->epilogue.kind, EpilogueKind::kGeluGrad);
  EXPECT_EQ(chain->epilogue.aux, 5);
  EXPECT_EQ(chain->epilogue.output, 6);
}

TEST(MatmulChain, AProductThatIsReadElsewhereStaysApart) {
  Segment outlives = geluForward();
  outlives.temporary[2] = false;
  EXPECT_EQ(epilogueKindOf(outlives), EpilogueKind::kNone);
  Segment readAgain = geluForward();
  readAgain.ops.push_back({OpKind::kAdd, {}, {2, 5}, {5}});
  EXPECT_EQ(epilogueKindOf(readAgain), EpilogueKind::kNone);
  Segment swapped = geluBackward();
  swapped.ops[2].inputs = {2, 5};  // the product where gelu's input belongs
  EXPECT_EQ(epilogueKindOf(swapped), EpilogueKind::kNone);
}

TEST(MatmulChain, OfF64ThereAreNone) {
  EXPECT_EQ(epilogueKindOf(geluForward(DType::kF64)), EpilogueKind::kNone);
  EXPECT_EQ(epilogueKindOf(geluForward(DType::kBf16)), EpilogueKind::kGelu);
}

TEST(MatmulChain, AGeneratedKernelThatTouchesTheProductEndsIt) {
  const Segment segment = geluForward();
  program::KernelCall product, kernel;
  product.op = segment.ops[0];
  kernel.kind = program::KernelCallKind::kGenerated;
  kernel.operands = {2, 3, 4};
  const program::CompiledSegment compiled{{product, kernel}};
  EXPECT_FALSE(chainFrom(segment, stepsOf(segment, &compiled), 0).has_value());
}

// Operands one behind the other, but for those that a test moves.
class MatmulChainMemory : public ::testing::Test {
 protected:
  std::vector<void*> addressesOf(const Segment& segment) {
    std::vector<void*> addresses;
    uintptr_t next = 4096;
    for (const program::OperandType& type : segment.operands) {
      addresses.push_back(reinterpret_cast<void*>(next));
      next += static_cast<uintptr_t>(type.bytes());
    }
    return addresses;
  }
  bool isApartWith(const Segment& segment, size_t moved, size_t over, int64_t bytes = 0) {
    std::vector<void*> addresses = addressesOf(segment);
    addresses[moved] = static_cast<char*>(addresses[over]) + bytes;
    const std::vector<SegmentStep> steps = stepsOf(segment, nullptr);
    return isApart(mergedSteps(*firstChain(segment), steps), segment, steps, addresses);
  }
};

TEST_F(MatmulChainMemory, ResultsOverWhatTheChainReadsKeepItApart) {
  EXPECT_TRUE(isApartWith(geluForward(), 0, 0));
  EXPECT_TRUE(isApartWith(geluForward(), 5, 2));   // over the product, which is not written
  EXPECT_FALSE(isApartWith(geluForward(), 5, 0));  // gelu's result over x,
  EXPECT_FALSE(isApartWith(geluForward(), 4, 0));  // its input over x,
  EXPECT_FALSE(isApartWith(geluForward(), 5, 3));  // or over the bias
  EXPECT_FALSE(isApartWith(geluForward(), 5, 4));
  EXPECT_FALSE(isApartWith(geluForward(), 5, 4, 380));  // of 384 bytes
}

TEST_F(MatmulChainMemory, SoDoStepsBetweenItsOps) {
  EXPECT_TRUE(isApartWith(geluBackward(), 0, 0));
  EXPECT_TRUE(isApartWith(geluBackward(), 6, 2));
  EXPECT_FALSE(isApartWith(geluBackward(), 6, 3));  // x is read after the chain has run
  EXPECT_FALSE(isApartWith(geluBackward(), 4, 5));  // gelu's input is read before it is there
  EXPECT_FALSE(isApartWith(geluBackward(), 6, 5));
}

struct ChainOutcome {
  std::vector<int> epilogues;
  int64_t launches = 0;
};

// A step of the tiny program with the forward segment in one of its stages.
ChainOutcome run(const Segment& segment, const std::vector<int64_t>& offsets,
                 const EmulatedGpuOptions& emulation) {
  EmulatedGpu emulated(emulation);
  const Apis apis = emulated.apis();
  program::Bundle bundle = tinyBundle({.tp = 1, .dp = 1, .numMicrobatches = 1});
  bundle.target.arch = "cuda:sm_90";
  addSegment(bundle.program, bundle.program.roles[0], segment, offsets);
  ChainOutcome outcome;
  {
    SessionOptions options{.virtualRanks = true, .cudaGraphs = false};  // each product once
    options.cudaApis = &apis;
    auto session = Session::create(std::move(bundle), options);
    EXPECT_TRUE(session.has_value()) << session.error().message();
    CountingData data;
    EXPECT_TRUE((*session)->step(data).has_value());
  }
  for (const auto& product : emulated.products()) outcome.epilogues.push_back(product.epilogue);
  EXPECT_EQ(outcome.epilogues.size(), 2u) << "once before the step";
  outcome.epilogues.pop_back();
  outcome.launches = emulated.numLaunches();
  EXPECT_EQ(emulated.faults(), std::vector<std::string>());
  return outcome;
}

// Two kernels fewer. Where cuBLASLt has no algorithm, the ops run one by one: it is asked, or its
// conditions say so, here that gelu's input begins at a multiple of 16 bytes.
TEST(MatmulChainSession, RunsAsOneWhereCublasCan) {
  const ChainOutcome fused = run(geluForward(), {}, {});
  EXPECT_EQ(fused.epilogues, std::vector<int>{kEpilogueGeluAuxBias});
  const ChainOutcome apart = run(geluForward(), {}, {.refusesEpilogues = true});
  EXPECT_EQ(apart.epilogues, std::vector<int>{1});
  EXPECT_EQ(apart.launches, fused.launches + 2);
  EXPECT_EQ(run(geluForward(), {0, 0, 0, 0, 8}, {}).epilogues, std::vector<int>{1});
  EXPECT_EQ(run(geluForward(DType::kF64), {}, {}).epilogues, std::vector<int>{1});
}

}  // namespace
}  // namespace trireme::runtime::cuda
