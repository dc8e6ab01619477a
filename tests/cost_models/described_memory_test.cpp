// Memory of programs that Trireme does not make.
#include "cost_models/described_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost_models/described_blocks.h"
#include "cost_models/described_estimate.h"
#include "ir/spec/load.h"
#include "tests/cost_models/quiet_cluster.h"

namespace trireme::cost {
namespace {

using namespace literals;
using spec::AttentionKind;
using spec::StackDescription;

// Korthikanti et al. 2022, table 2, h = 12288, a = 96, s = 2048, b = 1, t = 8, MiB per layer.
TEST(DescribedMemory, IsThatOfKorthikantiPerLayer) {
  spec::ModelSpec model = small::gpt(8, 12288, 96);
  model.maxSequence = 2048;
  plan::Plan plan = small::plan(model, small::training(16, 2048), 8);
  plan.training.attentionDropout = plan.training.residualDropout = 0.1;
  StackDescription stack;
  stack.attention = AttentionKind::kFusedSoftmax;
  const auto mib = [&] { return keptByLayer(model, plan, stack).count() / (1 << 20); };
  EXPECT_NEAR(mib(), 552, 0.5);
  plan.recompute = plan::Recompute::kSelective;
  EXPECT_NEAR(mib(), 312, 0.5);
  plan.sequenceParallel = true;
  EXPECT_NEAR(mib(), 102, 0.5);
  plan.recompute = plan::Recompute::kNone;
  EXPECT_NEAR(mib(), 342, 0.5);
  plan.sequenceParallel = false;
  plan.recompute = plan::Recompute::kFull;
  EXPECT_NEAR(mib(), 48, 0.01);
}

// Llama 2 7B, 4,096 tokens: h 4096, f 11008, 32 layers of 54,784 bytes a token more, 7.18 GB;
// PyTorch took 47.45 GB of an H100 uncompiled and 40.21 GB compiled
// (github.com/Lightning-AI/lightning-thunder/pull/940, eight of them, FSDP2).
TEST(DescribedMemory, EagerLayersKeepBothFactorsAndNormsInF32) {
  spec::ModelSpec model = spec::loadModel("llama2-7b").value();
  plan::Plan plan = small::plan(model, small::training(8, 4096), 1, 1, 8);
  plan.training.precision = spec::Precision::kBf16;
  StackDescription stack;
  stack.attention = AttentionKind::kFlash2;
  const auto kept = [&] { return keptByLayer(model, plan, stack).count() / 4096; };
  const double fused = kept();
  EXPECT_EQ(fused, 2 * (4 * 4096 + 4 * 4096 + 3 * 11008));
  stack.eagerLayers = true;
  EXPECT_EQ(kept() - fused, 2 * 11008);
  stack.eagerNorms = true;
  EXPECT_EQ(kept() - fused, 2 * 11008 + 8 * 4096);
  EXPECT_NEAR(32 * 4096 * (kept() - fused), 47.45e9 - 40.21e9, 0.1e9);
  // A stream in f32 is kept itself; a LayerNorm is one operator.
  plan.training.precision = spec::Precision::kFp32;
  EXPECT_EQ(kept(), 2 * fused + 4 * 11008);
  plan.training.precision = spec::Precision::kBf16;
  model.norm = spec::NormKind::kLayerNorm;
  EXPECT_EQ(kept() - fused, 2 * 11008);
  // Keys and values of 8 heads are repeated for 32.
  model.numKvHeads = 8;
  const double shared = 2 * 2 * 3 * 4096 / 4;
  stack.eagerLayers = false;
  EXPECT_EQ(kept(), fused - shared);
  stack.eagerLayers = true;
  EXPECT_EQ(kept(), fused + 2 * 11008);
}

// Transformer Engine's userbuffers, of s b h elements each whatever tp: 10 of two bytes, of fp8 the
// six that are gathered of one. Without them one gathered and one to be reduced.
TEST(DescribedMemory, HasABufferForEveryCollectiveOfALayer) {
  const spec::ModelSpec model = small::gpt(8, 128, 8);
  plan::Plan plan = small::plan(model, small::training(16, 32), 4);
  plan.training.precision = spec::Precision::kBf16;
  spec::ClusterSpec cluster = quietCluster();
  cluster.device.matmul.push_back({MathFormat::kF8, FlopsPerSecond(20e12)});
  StackDescription stack;
  const auto working = [&] {
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    return workingMemory(StageSetting(blocks, model, plan, cluster, stack), 0).count();
  };
  const auto more = [&] {
    stack.keepsLayerBuffers = false;
    const double before = working();
    stack.keepsLayerBuffers = true;
    return working() - before;
  };
  EXPECT_EQ(more(), 0);
  plan.sequenceParallel = true;
  EXPECT_EQ(more(), (10 - 2) * 2 * 32.0 * 128);
  plan.training.precision = spec::Precision::kFp8;
  EXPECT_EQ(more(), (6 * 1 + 4 * 2 - 2 * 2) * 32.0 * 128);
  stack.gathersF8Activations = false;
  EXPECT_EQ(more(), (10 - 2) * 2 * 32.0 * 128);
}

// Four ranks gather what products read, 32 x 128 elements each for those of attention and of the
// MLP. A product that keeps a part has 2 x 2,048 B of them, one that keeps all 2 x 8,192, in fp8
// half of that. By single operators only every second product's result is kept, with full
// recomputation nothing but beside.
TEST(DescribedMemory, ProductsMayKeepTheWholeOperandThatWasGathered) {
  const spec::ModelSpec model = small::gpt(8, 128, 8);
  plan::Plan plan = small::plan(model, small::training(16, 32), 4);
  plan.training.precision = spec::Precision::kBf16;
  spec::ClusterSpec cluster = quietCluster();
  cluster.device.matmul.push_back({MathFormat::kF8, FlopsPerSecond(20e12)});
  StackDescription stack;
  const auto kept = [&] { return keptByLayer(model, plan, stack).count(); };
  const auto working = [&] {
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    return workingMemory(StageSetting(blocks, model, plan, cluster, stack), 0).count();
  };
  const auto more = [&](const auto& bytes) {
    stack.keepsGatheredInputs = false;
    const double before = bytes();
    stack.keepsGatheredInputs = true;
    return bytes() - before;
  };
  EXPECT_EQ(more(kept), 0);
  plan.sequenceParallel = true;
  EXPECT_EQ(more(kept), 2 * (8192 - 2048));
  plan.training.precision = spec::Precision::kFp8;
  EXPECT_EQ(more(kept), 2 * (4096 - 2048));
  stack.gathersF8Activations = false;
  EXPECT_EQ(more(kept), 2 * (8192 - 2048));
  plan.recompute = plan::Recompute::kFull;
  EXPECT_EQ(more(kept), 0);
  EXPECT_EQ(more(working), 2 * (8192 - 2048) + 8192);  // and a second gradient to be scattered
  plan.recompute = plan::Recompute::kSelective;
  stack.selective = spec::SelectiveRecompute::kPerOperator;
  EXPECT_EQ(more(kept), 0);
}

// 12 h^2 weights of a GPT's layer, two bytes each, of every layer that is not recomputed in full.
TEST(DescribedMemory, ProductsMayKeepGatheredWeights) {
  const spec::ModelSpec model = small::gpt(8, 128, 8);
  plan::Plan plan = small::plan(model, small::training(16, 32), 1, 1, 4);
  plan.dpReplicate = 1;
  plan.dpShard = 4;
  plan.training.precision = spec::Precision::kBf16;
  StackDescription stack;
  const DescribedBlocks blocks = describeBlocks(model, plan, quietCluster(), stack);
  const auto more = [&] {
    const auto bytes = [&](bool keeps) {
      stack.keepsGatheredWeights = keeps;
      return describedMemory({blocks, model, plan, quietCluster(), stack}).total();
    };
    return (bytes(true) - bytes(false)).count() / (2 * 12 * 128 * 128);
  };
  plan.stateSharding = plan::StateSharding::kGradients;
  EXPECT_EQ(more(), 0);
  plan.stateSharding = plan::StateSharding::kParameters;
  EXPECT_EQ(more(), 8);
  plan.recompute = plan::Recompute::kSelective;
  EXPECT_EQ(more(), 8);
  plan.recompute = plan::Recompute::kFull;
  EXPECT_EQ(more(), 0);
  plan.recomputeLayers = 3;
  EXPECT_EQ(more(), 5);
}

// A byte for each of s x s pairs of a microbatch's sequences: at once, or with full recomputation,
// whose checkpoints keep their arguments, of as many microbatches as are in flight. 1F1B of 4
// stages has 4 on the first one and 1 on the last one; no other stage needs tokens.
TEST(DescribedMemory, HasTheMasksOfTheLoaderOnTheFirstAndTheLastStage) {
  const spec::ModelSpec model = small::gpt(8, 128, 8);
  plan::Plan plan = small::plan(model, small::training(16, 32), 1, 4);
  ASSERT_GE(plan.numMicrobatches(), 4);
  const spec::ClusterSpec cluster = quietCluster();
  StackDescription stack;
  const auto masks = [&](size_t stage) {
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    const auto working = [&](bool makes) {
      stack.loaderMasks = makes;
      return workingMemory(StageSetting(blocks, model, plan, cluster, stack), stage).count();
    };
    return (working(true) - working(false)) /
           (32.0 * 32 * static_cast<double>(plan.microbatchSize));
  };
  const auto ofStages = [&] { return std::vector{masks(0), masks(1), masks(2), masks(3)}; };
  EXPECT_THAT(ofStages(), testing::ElementsAre(1, 0, 0, 1));
  plan.recompute = plan::Recompute::kFull;
  EXPECT_THAT(ofStages(), testing::ElementsAre(4, 0, 0, 1));
  plan.recompute = plan::Recompute::kSelective;
  EXPECT_THAT(ofStages(), testing::ElementsAre(4, 0, 0, 1));
  stack.selective = spec::SelectiveRecompute::kEveryOther;
  EXPECT_THAT(ofStages(), testing::ElementsAre(1, 0, 0, 1));
  plan.cp = 2;  // of the whole
  EXPECT_THAT(ofStages(), testing::ElementsAre(1 + 0.5, 0, 0, 1 + 0.5));
  plan.recompute = plan::Recompute::kFull;
  EXPECT_THAT(ofStages(), testing::ElementsAre(1 + 4 * 0.5, 0, 0, 1 + 0.5));
}

// Qi et al. 2024: 32 s b h at two bytes, here with s b h = 24 Mi elements and divided by t = 8 but
// for the 4 h of the residual stream, (4 + 12 / 8) x 24 Mi x 2 B.
TEST(DescribedMemory, KeepsWhatGradientsOfWeightsAreMadeOf) {
  spec::ModelSpec model = small::gpt(8, 12288, 96);
  model.maxSequence = 2048;
  plan::Plan plan = small::plan(model, small::training(16, 2048), 1);
  EXPECT_DOUBLE_EQ(keptForWeights(model, plan).count(), 32.0 * 2048 * 12288);
  plan.tp = 8;
  EXPECT_DOUBLE_EQ(keptForWeights(model, plan).count(), (8 + 24.0 / 8) * 2048 * 12288);
  plan.sequenceParallel = true;
  EXPECT_DOUBLE_EQ(keptForWeights(model, plan).count(), 4.0 * 2048 * 12288);
}

// Llama, T = 32 tokens, h = 64, f = 256, four heads of 16, two bytes:
//   all         T (4 h + q + 2 kv + a d + 3 f) e = 32 x (256 + 256 + 768) x 2 = 81,920
//   operators   T (2 h + 2 q + kv + f) e         = 32 x (128 + 192 + 256) x 2 = 36,864
//   every other half of all and half of T h e    = (81,920 + 4,096) / 2
//   f8          two inputs of h and one of f in one byte, attention's result once more in one:
//               32 x (-128 - 256 + 64) = -10,240
TEST(DescribedMemory, FollowsTheKindOfSelectiveRecomputation) {
  spec::ModelSpec model = small::gpt();
  model.activation = spec::ActivationKind::kSwiGlu;
  plan::Plan plan = small::plan(model, small::training());
  StackDescription stack;
  const auto kept = [&] { return keptByLayer(model, plan, stack).count(); };
  EXPECT_EQ(kept(), 81920);
  plan.recompute = plan::Recompute::kSelective;
  EXPECT_EQ(kept(), 81920);  // flash attention keeps no scores
  stack.selective = spec::SelectiveRecompute::kPerOperator;
  EXPECT_EQ(kept(), 36864);
  stack.selective = spec::SelectiveRecompute::kEveryOther;
  EXPECT_EQ(kept(), 43008);
  plan.recompute = plan::Recompute::kNone;
  stack.keepsNarrow = true;
  EXPECT_EQ(kept(), 81920);
  plan.training.precision = spec::Precision::kFp8;
  EXPECT_EQ(kept(), 81920 - 10240);
}

// Logits 32 x 512 at 10 B by default, at 6 B 65,536 less; and half a layer more beside.
TEST(DescribedMemory, CountsLogitsAndTemporaries) {
  const spec::ModelSpec model = small::gpt();
  const plan::Plan plan = small::plan(model, small::training());
  StackDescription stack;
  const DescribedBlocks blocks = describeBlocks(model, plan, quietCluster(), stack);
  const auto bytes = [&] {
    return static_cast<double>(
        describedMemory({blocks, model, plan, quietCluster(), stack}).arena.activations);
  };
  const double before = bytes();
  stack.logitBytes = 6;
  EXPECT_EQ(bytes(), before - 4 * 32 * 512);
  stack.workingLayers = 0.5;
  EXPECT_EQ(bytes(), before - 4 * 32 * 512 + keptByLayer(model, plan, stack).count() / 2);
}

// Four ranks that hold P parameters each, of which a step makes gradients in f32: 4 P, or P where
// they share the optimizer's state, in the place of all that passes keep.
TEST(DescribedMemory, TheStepTakesGradientsInF32) {
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 1, 1, 4);
  StackDescription stack;
  const DescribedBlocks blocks = describeBlocks(model, plan, quietCluster(), stack);
  const double parameters = parametersOfStage(blocks, model, plan, 0);
  const auto bytes = [&] {
    return static_cast<double>(
        describedMemory({blocks, model, plan, quietCluster(), stack}).arena.activations);
  };
  const double ofPasses = bytes();
  stack.stepGradientBytes = ofPasses / parameters / 2;
  EXPECT_EQ(bytes(), ofPasses);
  stack.stepGradientBytes = 8 * ofPasses / parameters;
  EXPECT_NEAR(bytes(), 8 * ofPasses, 1);
  plan.dpReplicate = 1;
  plan.dpShard = 4;
  for (const plan::StateSharding sharding :
       {plan::StateSharding::kOptimizer, plan::StateSharding::kGradients}) {
    plan.stateSharding = sharding;
    EXPECT_NEAR(bytes(), 2 * ofPasses, 1);
  }
  plan.stateSharding = plan::StateSharding::kParameters;
  const double whole = bytes();  // layers are gathered in the passes
  stack.stepGradientBytes *= 4 * whole / ofPasses;
  EXPECT_NEAR(bytes(), 8 * whole, 1);
  stack.stepGradientsAtOnce = Bytes(3 * whole);
  EXPECT_NEAR(bytes(), 3 * whole, 1);
  stack.stepGradientsAtOnce = Bytes(9 * whole);
  EXPECT_NEAR(bytes(), 8 * whole, 1);
  plan.stateSharding = plan::StateSharding::kOptimizer;
  stack.stepGradientsAtOnce = Bytes(1);
  EXPECT_NEAR(bytes(), 8 * whole, 1);
}

// In fp8 two more bytes of every weight of the layers; where ranks gather weights in fp8 they are
// the parameters themselves.
TEST(DescribedMemory, Fp8WeightsAreBesideTheParameters) {
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 1, 2, 2);
  spec::ClusterSpec cluster = quietCluster();
  StackDescription stack;
  stack.f8CopyBytes = 2;
  const auto parameters = [&](size_t stage) {
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    return static_cast<double>(
        describedMemoryOf({blocks, model, plan, cluster, stack}, stage).arena.parameters);
  };
  plan.training.precision = spec::Precision::kBf16;
  const double before[] = {parameters(0), parameters(1)};
  plan.training.precision = spec::Precision::kFp8;
  cluster.device.matmul.push_back({MathFormat::kF8, FlopsPerSecond(1e15)});
  const double ofLayer = describeBlocks(model, plan, cluster, stack).layer.parameters;
  for (const size_t stage : {0, 1}) {
    const auto layers = static_cast<double>(plan.layers[stage][0].count);
    EXPECT_EQ(parameters(stage), before[stage] + 2 * ofLayer * layers) << stage;
  }
  stack.gathersF8 = true;
  EXPECT_GT(parameters(0), before[0]);  // nothing is gathered
  plan.stateSharding = plan::StateSharding::kOptimizer;
  std::swap(plan.dpReplicate, plan.dpShard);
  EXPECT_EQ(parameters(0), before[0]);
  // One rank has nobody to gather from, and its parameters are in fp8 all the same.
  plan.stateSharding = plan::StateSharding::kNone;
  plan.dpShard = plan.dpReplicate = 1;
  stack.f8CopyBytes = 0;
  const double alone = parameters(0);
  stack.f8CopyBytes = 2;
  EXPECT_EQ(parameters(0), alone);
}

// Blocks of 4 devices at 100 GB/s and 10 GB/s between them: 8 channels within, 2 between.
//   tp 2, pp 2, dp 2  tp and dp within: 8 x 3 each; messages to one stage between: 2 x 1/2 each way
//   pp 4, dp 2        dp within: 8 x 3; messages to two stages within, 8 x 1/2 each way
//   dp 8, 2 replicas  shards and replicas, 8 x 3 within and 2 x 3 between
TEST(DescribedMemory, ReservesWhatTheContextAndNcclTake) {
  spec::ClusterSpec cluster = quietCluster(8, 4);
  cluster.tiers.front().bandwidth = 100_GBps;
  cluster.tiers.back().bandwidth = 10_GBps;
  const spec::ModelSpec model = small::gpt(4);
  StackDescription stack;
  stack.reserve = Bytes(5e8);
  stack.ncclConnection = Bytes(1e7);
  const auto connections = [&](const plan::Plan& plan) {
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    const MemoryUse use = describedMemory({blocks, model, plan, cluster, stack});
    EXPECT_EQ(use.reserve, describedReserve(plan, cluster, stack));
    return (use.reserve.count() - 5e8) / 1e7;
  };
  EXPECT_EQ(connections(small::plan(model, small::training(), 1, 1, 1)), 0);
  EXPECT_EQ(connections(small::plan(model, small::training(), 2, 2, 2)), 24 + 24 + 2);
  EXPECT_EQ(connections(small::plan(model, small::training(), 1, 4, 2)), 24 + 16);
  plan::Plan replicas = small::plan(model, small::training(), 1, 1, 8);
  replicas.stateSharding = plan::StateSharding::kParameters;
  replicas.dpShard = 4;
  replicas.dpReplicate = 2;
  EXPECT_EQ(connections(replicas), 24 + 6);
  cluster.device.kind = spec::DeviceKind::kHost;
  EXPECT_EQ(describedReserve(replicas, cluster, stack), Bytes(0));
}

TEST(DescribedMemory, TheLeastReserveOfDegreesIsNoMoreThanThatOfAPlan) {
  const spec::ClusterSpec cluster = quietCluster(16, 4);
  StackDescription stack;
  stack.reserve = Bytes(5e8);
  stack.ncclConnection = Bytes(1e7);
  for (const int64_t tp : {1, 2, 4})
    for (const int64_t pp : {1, 2, 4})
      for (const int64_t cp : {1, 2})
        for (const int64_t shard : {1, 2}) {
          plan::Plan plan = small::plan(small::gpt(), small::training(), tp, pp, 2);
          plan.cp = cp;
          plan.dpShard = shard;
          if (shard > 1) plan.stateSharding = plan::StateSharding::kOptimizer;
          if (plan.numRanks() > cluster.numDevices) continue;
          const Bytes least = leastDescribedReserve(tp, pp, plan.dp(), cluster, stack);
          EXPECT_LE(least, describedReserve(plan, cluster, stack)) << tp << pp << cp << shard;
          EXPECT_GT(least, stack.reserve);
        }
}

// What github.com/deepspeedai/DeepSpeed/issues/2899 has beside its allocator, on nodes of 4 A100:
// 79.17 - 77.24 - 0.37 = 1.56 GiB.
TEST(DescribedMemory, ReservesAboutAsMuchAsARunHadBesideItsAllocator) {
  const spec::ClusterSpec cluster = *spec::loadCluster("dgx-a100");
  const spec::StackProfile stack = *spec::loadStack("deepspeed-zero3");
  plan::Plan plan = small::plan(small::gpt(), small::training(), 1, 1, 1);
  plan.dpShard = 8;
  plan.stateSharding = plan::StateSharding::kParameters;
  EXPECT_NEAR(describedReserve(plan, cluster, stack.description).count() / (1 << 30), 1.56, 0.05);
}

// B = T h e = 32 x 64 x 2 = 4,096 B. Fully recomputed, L layers keep B each and one in full 4 B of
// the residual stream: with sequence parallelism half of both, and 2 B of it are gathered.
TEST(DescribedMemory, SequenceParallelismGathersOneOperandAndOneGradient) {
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 2);
  plan.recompute = plan::Recompute::kFull;
  const StackDescription stack;
  const auto bytes = [&] {
    const DescribedBlocks blocks = describeBlocks(model, plan, quietCluster(), stack);
    return static_cast<double>(
        describedMemory({blocks, model, plan, quietCluster(), stack}).arena.activations);
  };
  const double without = bytes();
  plan.sequenceParallel = true;
  const double kept = static_cast<double>(model.numLayers) + 4;
  EXPECT_EQ(bytes() - without, 2 * 4096 - kept * 4096 / 2);
}

// 1e30 bytes a parameter are more than a number of bytes can be: far too much, not less than
// nothing.
TEST(DescribedMemory, BeyondAllNumbersIsTooMuch) {
  const spec::ModelSpec model = small::gpt();
  StackDescription stack;
  stack.parameterBytes = 1e30;
  const Estimate estimate =
      *estimateDescribed(model, small::plan(model, small::training()), quietCluster(1, 1), stack);
  EXPECT_GT(estimate.memory.total().count(), 1e18);
  EXPECT_GT(estimate.missing().count(), 1e18);
}

}  // namespace
}  // namespace trireme::cost
