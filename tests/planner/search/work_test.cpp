// What is known of a group without its blocks, against what its blocks say.
#include "planner/search/work.h"

#include <gtest/gtest.h>

#include <tuple>

#include "ir/plan/choices.h"
#include "ir/spec/load.h"
#include "planner/search/search.h"

namespace trireme::planner {
namespace {

Query queryOf(const char* model, const char* cluster, int64_t devices) {
  Query query;
  query.model = *spec::loadModel(model);
  query.cluster = *spec::withNumDevices(*spec::loadCluster(cluster), devices);
  query.stack = *spec::loadStack("trireme");
  query.training.sequenceLength = 2048;
  query.training.globalBatchSize = 64;
  query.training.precision = spec::Precision::kBf16;
  return query;
}

// Every pass of a layer, of Trireme's own programs, takes what is known of it without an expansion
// or more: products, attention, and what is reduced and gathered with nothing beside it.
TEST(LeastWork, OfOwnProgramsIsBelowThatOfTheirBlocks) {
  double closest = 0, loosest = 1;
  int count = 0;
  using spec::Precision;
  for (const char* cluster : {"dgx-a100", "dgx-h100", "gb200-nvl72", "l40s", "h100-nvl", "local"})
    for (const char* model : {"gpt3-175b", "llama3-8b", "mpt-7b", "qwen2-7b"})
      for (const auto& [flash, precision, tf32] : {std::tuple(true, Precision::kBf16, false),
                                                   {false, Precision::kBf16, false},
                                                   {true, Precision::kFp16, false},
                                                   {true, Precision::kFp32, false},
                                                   {true, Precision::kFp32, true},
                                                   {false, Precision::kFp64, false}}) {
        Query query = queryOf(model, cluster, 64);
        query.stack.flashAttention = flash;
        query.training.precision = precision;
        query.training.tf32 = tf32;
        if (query.cluster.device.peak(spec::linearFormat(query.training)) == nullptr) continue;
        const CostFunctions costs = modelCosts(query);
        std::vector<Rejection> rejections;
        for (const Group& group : groupsFor(query, 64, rejections)) {
          if (group.dp != 1 || group.microbatchSize > 2) continue;
          const auto blocks = costs.blocks(planOf(query, group));
          if (!blocks.has_value()) continue;
          const Work least = leastWork(query, group), real = probedWork(query, **blocks);
          const PassTimes& passes = (*blocks)->layer;
          EXPECT_LE(least.passes.forward, passes.forward * (1 + 1e-9));
          EXPECT_LE(least.passes.total(), passes.total() * (1 + 1e-9));
          EXPECT_LE(least.all, real.all * (1 + 1e-9));
          if (group.splitsBackward) {
            EXPECT_LE(least.passes.backward, passes.backward * (1 + 1e-9));
            EXPECT_LE(least.passes.weights, passes.weights * (1 + 1e-9));
          }
          ++count;
          closest = std::max(closest, least.layer / real.layer);
          loosest = std::min(loosest, least.layer / real.layer);
        }
      }
  std::printf("%d groups: %.1f to %.1f %% of a layer\n", count, 100 * loosest, 100 * closest);
  EXPECT_GT(count, 500);
  EXPECT_GT(closest, 0.95);
}

}  // namespace
}  // namespace trireme::planner
