// Layers in fp8 of programs that Trireme does not make.
#include <gtest/gtest.h>

#include "cost_models/collectives.h"
#include "cost_models/described_blocks.h"
#include "tests/cost_models/quiet_cluster.h"

namespace trireme::cost {
namespace {

// Products in f8 at 0.4 of their peak where others reach 0.8: the linear layers take twice as long.
TEST(DescribedBlocks, MultiplyInF8AtItsOwnEfficiency) {
  spec::ClusterSpec cluster = quietCluster();
  cluster.device.memoryBandwidth = BytesPerSecond(1e30);
  cluster.device.matmul.push_back({MathFormat::kF8, FlopsPerSecond(20e12)});
  cluster.device.matmulEfficiency = 0.8;
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training());
  plan.training.precision = spec::Precision::kFp8;
  const auto time = [&] {
    return describeBlocks(model, plan, cluster, {}).layer.forward.products.count();
  };
  const double even = time();
  cluster.device.f8MatmulEfficiency = 0.4;
  EXPECT_NEAR(time() / even, 2, 1e-12);
}

// The software's share of that is of them alone: the head stays in the compute dtype.
TEST(DescribedBlocks, MultiplyInF8AsFastAsTheSoftwareDoes) {
  spec::ClusterSpec cluster = quietCluster();
  cluster.device.memoryBandwidth = BytesPerSecond(1e30);
  cluster.device.matmul.push_back({MathFormat::kF8, FlopsPerSecond(20e12)});
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training());
  plan.training.precision = spec::Precision::kFp8;
  StackDescription stack;
  const DescribedBlocks even = describeBlocks(model, plan, cluster, stack);
  stack.f8MatmulFactor = 0.5;
  const DescribedBlocks slow = describeBlocks(model, plan, cluster, stack);
  EXPECT_NEAR(slow.layer.backward.products / even.layer.backward.products, 2, 1e-12);
  EXPECT_EQ(slow.head.forward.products, even.head.forward.products);
  ASSERT_GT(even.head.forward.products, Seconds(0));
}

// Before products two tensors of 32 x 128 are gathered forward and four backward, in fp8 half the
// bytes where the software does. What is reduced is in the compute dtype.
TEST(DescribedBlocks, GatherInF8WhereTheSoftwareDoes) {
  spec::ClusterSpec cluster = quietCluster();
  cluster.device.matmul.push_back({MathFormat::kF8, FlopsPerSecond(20e12)});
  const spec::ModelSpec model = small::gpt(8, 128, 8);
  plan::Plan plan = small::plan(model, small::training(16, 32), 4);
  plan.sequenceParallel = true;
  StackDescription stack;
  const auto time = [&](spec::Precision precision, bool gathersF8) {
    plan.training.precision = precision;
    stack.gathersF8Activations = gathersF8;
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    return blocks.layer.forward.tensorParallel + blocks.layer.backward.tensorParallel;
  };
  EXPECT_EQ(time(spec::Precision::kFp8, false), time(spec::Precision::kBf16, true));
  const Seconds saved = time(spec::Precision::kFp8, false) - time(spec::Precision::kFp8, true);
  const Levels levels = levelsOf({{4, 1}}, ranksOf(plan, cluster), cluster);
  const auto gather = [&](double bytes) {
    return collectiveTime(spec::CollectiveKind::kAllGather, Bytes(bytes * 32 * 128), levels);
  };
  EXPECT_NEAR(saved / ((gather(2) - gather(1)) * 6), 1, 1e-9);
}

}  // namespace
}  // namespace trireme::cost
