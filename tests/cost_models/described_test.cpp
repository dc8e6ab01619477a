// Costs of programs that Trireme does not make: products, attention, blocks.
#include <gtest/gtest.h>

#include <cmath>

#include "cost_models/attention.h"
#include "cost_models/collectives.h"
#include "cost_models/described_blocks.h"
#include "cost_models/described_estimate.h"
#include "cost_models/described_memory.h"
#include "cost_models/formulas.h"
#include "cost_models/gemm.h"
#include "tests/cost_models/quiet_cluster.h"

namespace trireme::cost {
namespace {

using namespace literals;
using spec::AttentionKind;
using spec::StackDescription;

// 1024 x 512 x 256 in bf16: 2 x 1024 x 512 x 256 = 268.4 MFLOP at 10 TFLOP/s = 26.84 us;
// (1024 x 256 + 256 x 512 + 1024 x 512) x 2 B = 1.835 MB at 1 TB/s = 1.835 us, the less.
TEST(Product, WithoutMultiprocessorsIsTheRoofline) {
  EXPECT_NEAR(productTime({1024, 512, 256}, FlopsPerSecond(10e12), deviceWithoutOverhead()).count(),
              26.8435e-6, 1e-9);
  EXPECT_NEAR(productTime({1024, 512, 1}, FlopsPerSecond(10e12), deviceWithoutOverhead()).count(),
              1.0516e-6, 1e-10);
}

// Two multiprocessors, no ramp, delivery 0, all of the last wave felt. 256 x 384 x 1024 in tiles of
// 256 x 128: 3 tiles in 2 waves, each wave 2 x 256 x 128 x 1024 x 2 = 134 MFLOP of 10 TFLOP/s. In
// tiles of 64 x 64: 24 tiles, 12 full waves of 16.8 MFLOP: 20.13 us, the least.
TEST(Product, FillsWavesOfTiles) {
  spec::DeviceSpec gpu = deviceWithoutOverhead();
  gpu.numMultiprocessors = 2;
  EXPECT_NEAR(productTime({256, 384, 1024}, FlopsPerSecond(10e12), gpu).count(), 20.1327e-6, 1e-9);
  // One tile more than fills a wave: of a 64 x 64 product with nothing to split, half is idle.
  EXPECT_NEAR(productTime({64, 64, 512}, FlopsPerSecond(10e12), gpu).count(), 2 * 0.41943e-6,
              1e-10);
}

TEST(Product, IsNeverSlowerOnAFasterDevice) {
  spec::DeviceSpec gpu = deviceWithoutOverhead();
  gpu.numMultiprocessors = 108;
  gpu.tileDelivery = 80;
  gpu.depthRamp = 137;
  gpu.waveShare = 0.65;
  spec::DeviceSpec faster = gpu;
  faster.memoryBandwidth = gpu.memoryBandwidth * 2;
  for (const int64_t m : {1, 63, 64, 1000, 4096})
    for (const int64_t n : {64, 129, 5000})
      for (const int64_t k : {16, 1024, 12288}) {
        const ProductShape shape{m, n, k};
        const Seconds time = productTime(shape, FlopsPerSecond(10e12), gpu);
        EXPECT_LE(productTime(shape, FlopsPerSecond(10e12), faster), time);
        EXPECT_LE(productTime(shape, FlopsPerSecond(20e12), gpu), time);
        EXPECT_GE(time.count(), shape.flops() / FlopsPerSecond(10e12) / Seconds(1));
        EXPECT_GE(productTime({m, n, 2 * k}, FlopsPerSecond(10e12), gpu), time);
      }
}

// b a s^2 d = 2 x 4 x 32^2 x 16; causal half of 4 of it, and of s keys s + 128:
//   4 x 131072 / 2 x (1 + 128 / 32) = 1.31072 MFLOP forward, 2.5 times that backward
TEST(Attention, FlashDoesHalfOfBothProducts) {
  spec::ClusterSpec cluster = quietCluster();
  cluster.device.memoryBandwidth = 1000000_GBps;
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training());
  plan.microbatchSize = 2;
  StackDescription stack;
  const auto time = [&](Direction direction) {
    return attentionTime(model, plan, cluster.device, stack, direction).device.count();
  };
  EXPECT_NEAR(time(Direction::kForward), 1.31072e6 / 10e12, 1e-12);
  EXPECT_NEAR(time(Direction::kBackward), 2.5 * 1.31072e6 / 10e12, 1e-12);
  // Four ranks of a context have a quarter of the queries each. Each of three further steps moves
  // 10 B per element of the context, 2 x 4 x 8 x 16, and of as many gradients of queries, keys and
  // values.
  plan.cp = 4;
  EXPECT_NEAR(time(Direction::kForward), 1.31072e6 / 4 / 10e12, 1e-12);
  // Three quarters of the keys are others', at half the rate: 1/4 + 3/4 x 2.
  stack.blockAttentionEfficiency = 0.5;
  EXPECT_NEAR(time(Direction::kForward), 1.75 * 1.31072e6 / 4 / 10e12, 1e-12);
  EXPECT_NEAR(time(Direction::kBackward), 1.75 * 2.5 * 1.31072e6 / 4 / 10e12, 1e-12);
  stack.blockAttentionEfficiency = 1;
  stack.ringBytes = 10;
  cluster.device.memoryBandwidth = 1_GBps;
  cluster.device.memoryEfficiency = 1;
  const double step = 10 * 1024 / 1e9;
  const auto added = [&](Direction direction) {
    spec::StackDescription without = stack;
    without.ringBytes = 0;
    return time(direction) -
           attentionTime(model, plan, cluster.device, without, direction).device.count();
  };
  EXPECT_NEAR(added(Direction::kForward), 3 * step, 1e-12);
  EXPECT_NEAR(added(Direction::kBackward), 3 * 3 * step, 1e-12);
}

// Scores 2 x 4 x 32^2 = 8192. Two products of 2 x 8192 x 16 FLOP, a softmax of 4 B a score; four
// products and 6 B backward.
TEST(Attention, UnfusedMovesItsScores) {
  spec::ClusterSpec cluster = quietCluster();
  cluster.device.memoryBandwidth = BytesPerSecond(1e6);  // only bytes count
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training());
  plan.microbatchSize = 2;
  StackDescription stack;
  stack.attention = AttentionKind::kFusedSoftmax;
  // A product's bytes: factors 8 heads x 2 x 32 x 16 x 2 B, result 8192 x 2 B, and the other way
  // round: 32 kB each.
  const double product = 8 * 2 * (2 * 32 * 16 + 32 * 32);
  const auto seconds = [&](Direction direction) {
    return attentionTime(model, plan, cluster.device, stack, direction).device.count();
  };
  EXPECT_NEAR(seconds(Direction::kForward), (2 * product + 4 * 8192) / 1e6, 1e-9);
  EXPECT_NEAR(seconds(Direction::kBackward), (4 * product + 6 * 8192) / 1e6, 1e-9);
  plan.training.attentionDropout = 0.1;
  EXPECT_NEAR(seconds(Direction::kForward), (2 * product + 9 * 8192) / 1e6, 1e-9);
}

// Four heads over two ranks: two heads of one sequence, which a block of four does not divide.
// Scores 2 x 32^2 = 2048. To f32, scale, mask, softmax and back: 6 + 8 + 9 + 8 + 6 B a score, and
// backward 6 + 12 + 9 + 8 + 6, each in a kernel of its own beside two and four products.
TEST(Attention, TheFusedSoftmaxTakesHeadsByFour) {
  spec::ClusterSpec cluster = quietCluster();
  cluster.device.memoryBandwidth = BytesPerSecond(1e6);  // only bytes count
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 2);
  StackDescription stack;
  stack.attention = AttentionKind::kFusedSoftmax;
  const double product = 2 * 2 * (2 * 32 * 16 + 32 * 32);
  const auto of = [&](Direction direction) {
    return attentionTime(model, plan, cluster.device, stack, direction);
  };
  EXPECT_NEAR(of(Direction::kForward).device.count(), (2 * product + 37 * 2048) / 1e6, 1e-9);
  EXPECT_EQ(of(Direction::kForward).numKernels, 2 + 5);
  EXPECT_NEAR(of(Direction::kBackward).device.count(), (4 * product + 41 * 2048) / 1e6, 1e-9);
  EXPECT_EQ(of(Direction::kBackward).numKernels, 4 + 5);
  plan.microbatchSize = 2;  // four heads
  EXPECT_NEAR(of(Direction::kForward).device.count(), (4 * product + 4 * 4096) / 1e6, 1e-9);
  EXPECT_EQ(of(Direction::kForward).numKernels, 2 + 1);
}

// Without overheads and limits of memory the products of all blocks take what modelFlops counts
// without attention: forward once, backward twice.
TEST(DescribedBlocks, DoTheFlopsOfTheModel) {
  spec::ClusterSpec cluster = quietCluster();
  cluster.device.memoryBandwidth = BytesPerSecond(1e30);
  for (const bool gated : {false, true})
    for (const int64_t tp : {1, 2, 4}) {
      spec::ModelSpec model = small::gpt();
      model.activation = gated ? spec::ActivationKind::kSwiGlu : spec::ActivationKind::kGeluTanh;
      const plan::Plan plan = small::plan(model, small::training(), tp);
      const DescribedBlocks blocks = describeBlocks(model, plan, cluster, {});
      const StepFlops flops = stepFlops(model, plan.training);
      const double perRank = static_cast<double>(plan.numMicrobatches() * tp) * 10e12;
      const auto products = [&](const BlockCost& block) {
        EXPECT_NEAR(block.backward.products.count(), 2 * block.forward.products.count(), 1e-15);
        return 3 * block.forward.products.count() * perRank;
      };
      EXPECT_NEAR(products(blocks.layer) * 8 / flops.layers.count(), 1, 1e-9);
      EXPECT_NEAR(products(blocks.head) / flops.head.count(), 1, 1e-9);
    }
}

// Per layer and direction two all-reduces of b s h elements: 8 b s h (t - 1)/t elements in all per
// rank (Narayanan et al. 2021), here at 10 GB/s. With sequence parallelism as many bytes, but half
// of an all-reduce more in the backward twice: the input of both column-parallel layers again.
// Four of a host of four, or of hosts of two in a rack whose links are faster than networks are.
TEST(DescribedBlocks, HideTensorParallelismWithinAnIslandAlone) {
  const spec::ModelSpec model = small::gpt(8, 128, 8);
  plan::Plan plan = small::plan(model, small::training(16, 32), 4, 1, 2);
  spec::ClusterSpec cluster = small::cluster(8, 4);
  spec::LinkTier& inner = cluster.tiers.front();
  inner.topology = spec::TierTopology::kSwitch;
  EXPECT_FALSE(hidesTensors(plan, cluster));
  plan.sequenceParallel = true;
  EXPECT_TRUE(hidesTensors(plan, cluster));
  plan.tp = 8;
  plan.dpReplicate = 1;
  EXPECT_FALSE(hidesTensors(plan, cluster));
  plan.tp = 4;
  for (const auto topology :
       {spec::TierTopology::kBus, spec::TierTopology::kRails, spec::TierTopology::kTree}) {
    inner.topology = topology;
    EXPECT_FALSE(hidesTensors(plan, cluster));
  }
  inner.topology = spec::TierTopology::kSwitch;
  cluster.hostDevices = 2;
  ASSERT_EQ(cluster.devicesPerHost(), 2);
  inner.bandwidth = BytesPerSecond(100e9);
  EXPECT_FALSE(hidesTensors(plan, cluster));
  inner.bandwidth = BytesPerSecond(900e9);
  EXPECT_TRUE(hidesTensors(plan, cluster));
  plan.tp = 8;  // two of those racks
  EXPECT_FALSE(hidesTensors(plan, cluster));
  plan.tp = 4;
  // What is hidden is what the description says, of a plan that may.
  StackDescription stack;
  const auto felt = [&] {
    return describeBlocks(model, plan, cluster, stack).layer.forward.tensorParallel;
  };
  const Seconds all = felt();
  stack.tensorParallelExposed = 0;
  EXPECT_LT(felt(), all);
  inner.bandwidth = BytesPerSecond(100e9);
  stack.tensorParallelExposed = 1;
  const Seconds slow = felt();
  stack.tensorParallelExposed = 0;
  EXPECT_EQ(felt(), slow);
}

TEST(DescribedBlocks, CommunicateFourTimesPerLayer) {
  spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 4);
  const double moved = 2 * 32 * 64 * 3.0 / 4 / 10e9;  // one pass over 2 b s h bytes
  const BlockCost layer = describeBlocks(model, plan, quietCluster(), {}).layer;
  EXPECT_NEAR(layer.forward.tensorParallel.count(), 4 * moved, 1e-12);
  EXPECT_NEAR(layer.backward.tensorParallel.count(), 4 * moved, 1e-12);
  plan.sequenceParallel = true;
  const BlockCost divided = describeBlocks(model, plan, quietCluster(), {}).layer;
  EXPECT_NEAR(divided.forward.tensorParallel.count(), 4 * moved, 1e-12);
  EXPECT_NEAR(divided.backward.tensorParallel.count(), 6 * moved, 1e-12);
}

// Megatron overlaps transfers of interleaved stages alone.
TEST(DescribedEstimate, HidesTransfersBetweenChunks) {
  const spec::ModelSpec model = small::gpt(8);
  plan::Plan plan = small::plan(model, small::training(), 1, 2);
  const spec::ClusterSpec cluster = quietCluster();
  StackDescription stack;
  const auto time = [&] { return transferTime(model, plan, cluster, stack); };
  const Seconds whole = time();
  stack.transferExposed = 0.25;
  EXPECT_DOUBLE_EQ(time() / whole, 0.25);
  stack.hidesBetweenChunks = true;
  EXPECT_EQ(time(), whole);
  plan.virtualStages = 2;  // of two stages every pass has a transfer, not one of two
  EXPECT_DOUBLE_EQ(time() / (whole * 2), 0.25);
}

// Half of the products of a layer's backward are its weights' gradients, and no time is lost or
// found by the split but where the CPU sets the pace.
TEST(DescribedBlocks, SplitTheBackwardIntoWhatItWas) {
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 2, 2);
  const spec::ClusterSpec cluster = quietCluster();
  const DescribedBlocks blocks = describeBlocks(model, plan, cluster, {});
  EXPECT_GT(blocks.layer.weights.products / blocks.layer.backward.products, 0.3);
  EXPECT_LT(blocks.layer.weights.products / blocks.layer.backward.products, 0.8);
  EXPECT_EQ(blocks.layer.weights.attention.count(), 0);
  EXPECT_EQ(blocks.layer.weights.tensorParallel.count(), 0);
  const StackDescription stack;
  const auto timesOf = [&] {
    const StageSetting setting(blocks, model, plan, cluster, stack);
    return estimateStage(setting, 1).times;
  };
  const StageTimes whole = timesOf();
  plan.schedule = plan::ScheduleKind::kZeroBubbleH1;
  const StageTimes split = timesOf();
  EXPECT_TRUE(whole.weights.empty());
  EXPECT_GT(split.weights.front().count(), 0);
  EXPECT_NEAR((split.backward.front() + split.weights.front()) / whole.backward.front(), 1, 1e-12);
}

// Megatron checkpoints core attention whatever its kernel: its forward comes again. Of a fused
// kernel memory is the same without, of an unfused one it also makes the scores of a layer again.
TEST(DescribedBlocks, SelectiveRecomputationRunsAttentionAgain) {
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training());
  plan.cp = 2;
  const spec::ClusterSpec cluster = quietCluster();
  for (const AttentionKind kind : {AttentionKind::kFlash, AttentionKind::kFusedSoftmax}) {
    StackDescription stack;
    stack.attention = kind;
    stack.workingLayers = 0;
    plan.recompute = plan::Recompute::kNone;
    const DescribedBlocks none = describeBlocks(model, plan, cluster, stack);
    const auto needed = [&] {
      return describedMemory({none, model, plan, cluster, stack}).total().count();
    };
    const double kept = needed();
    plan.recompute = plan::Recompute::kSelective;
    const BlockCost layer = describeBlocks(model, plan, cluster, stack).layer;
    EXPECT_EQ(none.layer.recomputed.device().count(), 0);
    EXPECT_EQ(layer.recomputed.attention, layer.forward.attention);
    EXPECT_GT(layer.recomputed.attention.count(), 0);
    EXPECT_EQ(layer.recomputed.contextParallel, layer.forward.contextParallel);
    EXPECT_GT(layer.recomputed.contextParallel.count(), 0);
    if (kind == AttentionKind::kFlash) {
      EXPECT_EQ(needed(), kept);
    }
  }
}

// Eight ranks by two on nodes of eight: at the border of a node two of its ranks send, each a
// ring's keys and values, though the others' ports are idle. An all-gather takes them all; it hides
// beside attention to a rank's own keys alone.
TEST(DescribedBlocks, ARingIsAsFastAsItsSlowestHop) {
  spec::ClusterSpec cluster = quietCluster(16, 8);
  cluster.tiers.back().bandwidth = cluster.tiers.front().bandwidth * 1e-3;
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 2);
  plan.cp = 8;
  const Bytes bytes(keyValueBytes(model, plan));
  const auto felt = [&](spec::ContextExchange exchange) {
    StackDescription stack;
    stack.contextExchange = exchange;
    return describeBlocks(model, plan, cluster, stack).layer.forward;
  };
  const BytesPerSecond border = cluster.tiers.back().sustained();
  const PassCost ring = felt(spec::ContextExchange::kRing);
  EXPECT_NEAR((ring.contextParallel + ring.attention) / (bytes * (7.0 / 8) / border), 1, 1e-9);
  const PassCost gathered = felt(spec::ContextExchange::kAllGather);
  EXPECT_NEAR(
      (gathered.contextParallel + gathered.attention / 8) / (bytes * (7.0 / 8) / (border * 4)), 1,
      1e-9);
}

// Between nodes at a hundredth of the rate, keys and values take longer than the attention beside
// them; nothing else of a layer whose tp ranks share a node changes.
TEST(DescribedBlocks, DifferInContextLinksAlone) {
  spec::ClusterSpec near = quietCluster(8, 2), far = near;
  far.tiers.back().bandwidth = near.tiers.back().bandwidth * 1e-2;
  const spec::ModelSpec model = small::gpt();
  const auto parts = [](const PassCost& p) {
    return std::vector<Seconds>{p.products,       p.attention,       p.streams,
                                p.tensorParallel, p.contextParallel, p.host};
  };
  for (const auto recompute :
       {plan::Recompute::kNone, plan::Recompute::kSelective, plan::Recompute::kFull}) {
    plan::Plan plan = small::plan(model, small::training(), 2);
    plan.cp = 4;
    plan.recompute = recompute;
    const DescribedBlocks before = describeBlocks(model, plan, near, {});
    const DescribedBlocks expected = describeBlocks(model, plan, far, {});
    const DescribedBlocks found = withContextLinks(before, model, plan, far, {});
    EXPECT_GT(expected.layer.forward.contextParallel, before.layer.forward.contextParallel);
    const auto same = [&](const BlockCost& a, const BlockCost& b) {
      EXPECT_EQ(parts(a.forward), parts(b.forward));
      EXPECT_EQ(parts(a.backward), parts(b.backward));
      EXPECT_EQ(parts(a.recomputed), parts(b.recomputed));
      EXPECT_EQ(a.parameters, b.parameters);
    };
    same(found.layer, expected.layer);
    same(found.embedding, expected.embedding);
    same(found.head, expected.head);
  }
}

// 4 ms on the device, 1 ms of collectives among it, and 3 ms of the CPU.
PassCost deviceAndHost() {
  PassCost cost;
  cost.products = 3_ms;
  cost.tensorParallel = 1_ms;
  cost.host = 3_ms;
  return cost;
}

// Of the CPU's 3 ms 0 or 2/3 are felt beside the device: max(4, 3) and max(4 + 2, 3). Where the
// CPU is the longer, with 9 ms, all of them: max(4 + 3, 9).
TEST(PassTime, IsTheLongerOfBothAndWhatIsExposedOfTheCpu) {
  StackDescription stack;
  EXPECT_NEAR(passTime(deviceAndHost(), stack).count(), 4e-3, 1e-15);
  stack.hostExposed = 2.0 / 3;
  EXPECT_NEAR(passTime(deviceAndHost(), stack).count(), 6e-3, 1e-15);
  stack.hostExposed = 1.0 / 3;
  PassCost slow = deviceAndHost();
  slow.host = 9_ms;
  EXPECT_NEAR(passTime(slow, stack).count(), 9e-3, 1e-15);
}

// sqrt(4^2 + 3^2) = 5; with 2/3 exposed sqrt(6^2 + 3^2); cubes (4^3 + 3^3)^(1/3) = 91^(1/3).
TEST(PassTime, WithAnExponentIsMoreThanEither) {
  StackDescription stack;
  stack.hostExponent = 2;
  EXPECT_NEAR(passTime(deviceAndHost(), stack).count(), 5e-3, 1e-15);
  stack.hostExposed = 2.0 / 3;
  EXPECT_NEAR(passTime(deviceAndHost(), stack).count(), std::sqrt(45.0) * 1e-3, 1e-15);
  stack.hostExposed = 0;
  stack.hostExponent = 3;
  EXPECT_NEAR(passTime(deviceAndHost(), stack).count(), std::cbrt(91.0) * 1e-3, 1e-15);
}

// The powers of these times vanish: 3e-3^1000. The longer of both is left, to a few bits.
TEST(PassTime, OfALargeExponentIsTheLongerOfBoth) {
  StackDescription stack;
  stack.hostExponent = 1000;
  EXPECT_NEAR(passTime(deviceAndHost(), stack).count(), 4e-3, 1e-15);
  EXPECT_EQ(passTime(PassCost{}, stack).count(), 0);
}

}  // namespace
}  // namespace trireme::cost
