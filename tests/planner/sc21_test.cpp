// The planner on the models of Narayanan et al., SC 2021 (arXiv 2104.04473), Table 1: 80 GB
// devices, eight per node, full recomputation, replicated optimizer state (18 bytes per parameter),
// unfused attention.
#include <gtest/gtest.h>

#include "ir/spec/load.h"
#include "planner/search.h"

namespace trireme::planner {
namespace {

struct Row {
  double billions;
  int64_t heads, hidden, layers, tp, pp, gpus, batch;
};
constexpr Row kTable1[] = {
    {1.7, 24, 2304, 24, 1, 1, 32, 512},          {3.6, 32, 3072, 30, 2, 1, 64, 512},
    {7.5, 32, 4096, 36, 4, 1, 128, 512},         {18.4, 48, 6144, 40, 8, 1, 256, 1024},
    {39.1, 64, 8192, 48, 8, 2, 512, 1536},       {76.1, 80, 10240, 60, 8, 4, 1024, 1792},
    {145.6, 96, 12288, 80, 8, 8, 1536, 2304},    {310.1, 128, 16384, 96, 8, 16, 1920, 2160},
    {529.6, 128, 20480, 105, 8, 35, 2520, 2520}, {1008, 160, 25600, 128, 8, 64, 3072, 3072},
};

Query queryOfRow(const Row& row) {
  Query query;
  spec::ModelSpec& model = query.model;
  model.name = "gpt";
  model.numLayers = row.layers;
  model.hiddenSize = row.hidden;
  model.numHeads = model.numKvHeads = row.heads;
  model.headSize = row.hidden / row.heads;
  model.ffnSize = 4 * row.hidden;
  model.vocabSize = 51200;
  model.maxSequence = 2048;
  query.training.precision = spec::Precision::kBf16;
  query.training.globalBatchSize = row.batch;
  query.training.sequenceLength = 2048;
  auto cluster = spec::loadCluster(TRIREME_SOURCE_DIR "/examples/clusters/dgx-a100.yaml");
  EXPECT_TRUE(cluster.has_value());
  auto sized = spec::withNumDevices(std::move(*cluster), row.gpus);
  EXPECT_TRUE(sized.has_value());
  query.cluster = std::move(*sized);
  query.stack.flashAttention = false;
  query.stack.overlapPipelineTransfers = false;
  std::erase(query.stack.choices, spec::StackChoice::kZeroBubble);  // not of 2021
  query.pins.recompute = plan::Recompute::kFull;
  query.pins.stateSharding = plan::StateSharding::kNone;
  query.pins.sequenceParallel = false;
  query.pins.overlapReductions = false;
  query.topK = 1;
  return query;
}

// The paper's second rule: the model-parallel size t p is what memory asks for, the rest is data
// parallel.
TEST(Sc21, ModelParallelSizesAreWithinAFactorOfTwoOfThePapers) {
  for (const Row& row : kTable1) {
    const auto found = searchPlan(queryOfRow(row));
    ASSERT_TRUE(found.has_value()) << row.billions << ": " << found.error().message();
    const plan::Plan& plan = found->plan;
    const double ratio =
        static_cast<double>(plan.tp * plan.pp) / static_cast<double>(row.tp * row.pp);
    EXPECT_GE(ratio, 0.5) << row.billions;
    EXPECT_LE(ratio, 2) << row.billions;
    EXPECT_EQ(found->gpusUsed, row.gpus);
    std::printf("%7.1f B: paper t %ld p %ld, here t %ld p %ld, %.2f s, searched in %.2f s\n",
                row.billions, static_cast<long>(row.tp), static_cast<long>(row.pp),
                static_cast<long>(plan.tp), static_cast<long>(plan.pp),
                found->estimate.step.count(), found->seconds);
  }
}

// The paper's first rule, its half that concerns links: tensor parallelism stays inside a node.
TEST(Sc21, TensorParallelismStaysInsideANode) {
  for (const Row& row : kTable1) {
    const auto found = searchPlan(queryOfRow(row));
    ASSERT_TRUE(found.has_value());
    EXPECT_LE(found->plan.tp, 8) << row.billions;
  }
}

// GPT-3 175B on 96 devices, (t, p) = (8, 12), microbatch 1.
Seconds stepOf(int64_t batch, bool interleaved, bool scatterGather) {
  Query query = queryOfRow({175, 96, 12288, 96, 8, 12, 96, batch});
  query.pins.tp = 8;
  query.pins.pp = 12;
  query.pins.microbatchSize = 1;
  query.pins.schedule = interleaved ? plan::ScheduleKind::kInterleaved : plan::ScheduleKind::k1F1B;
  query.pins.virtualStages = interleaved ? 2 : 1;
  query.pins.scatterGather = scatterGather;
  const auto found = searchPlan(query);
  EXPECT_TRUE(found.has_value()) << found.error().message();
  return found.has_value() ? found->estimate.step : Seconds(0);
}

// Figure 12: interleaving wins, most at small batches.
TEST(Sc21, InterleavingGainsMostAtSmallBatches) {
  double gain = 1e9;
  for (int64_t batch : {12, 24, 60}) {
    const double now = stepOf(batch, false, true) / stepOf(batch, true, true);
    EXPECT_GT(now, 1) << batch;
    EXPECT_LT(now, gain) << batch;
    gain = now;
  }
}

// Section 4.1: interleaving sends v times as much, so that it needs the scatter-gather optimization
// more.
TEST(Sc21, InterleavingNeedsScatterGatherMore) {
  const double plain = stepOf(24, false, false) / stepOf(24, false, true);
  const double interleaved = stepOf(24, true, false) / stepOf(24, true, true);
  EXPECT_GT(plain, 1);
  EXPECT_GT(interleaved, plain);
}

}  // namespace
}  // namespace trireme::planner
