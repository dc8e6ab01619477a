#include "ir/plan/choices.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/spec/load.h"
#include "tests/support/small_plan.h"

namespace trireme::plan {
namespace {

// By hand, of every number of ranks on hosts of 8: how many there are on each, if as many.
TEST(RanksPerHost, AreAsManyOnTheFewestHosts) {
  const auto on = [](int64_t tp, int64_t dp, int64_t host) {
    Plan plan;
    plan.tp = tp;
    plan.dpReplicate = dp;
    plan.devicesPerHost = host;
    return ranksPerHost(plan).value_or(0);
  };
  EXPECT_EQ(on(1, 5, 8), 5);
  EXPECT_EQ(on(2, 8, 8), 8);
  EXPECT_EQ(on(16, 2, 8), 8);  // a tp group on two hosts
  EXPECT_EQ(on(2, 6, 8), 6);
  EXPECT_EQ(on(4, 3, 8), 0);   // 6 on each of two hosts would part groups of 4
  EXPECT_EQ(on(6, 3, 8), 6);   // on each of three
  EXPECT_EQ(on(1, 20, 8), 0);  // three hosts
  EXPECT_EQ(on(1, 21, 8), 7);
  EXPECT_EQ(on(1, 20, 4), 4);
}

// Whatever the numbers: as many on each, never more than a host has, and on no more hosts than are
// needed.
TEST(RanksPerHost, FillHostsAlike) {
  for (int64_t host = 1; host <= 9; ++host)
    for (int64_t tp = 1; tp <= 9; ++tp)
      for (int64_t dp = 1; dp <= 40; ++dp) {
        Plan plan;
        plan.tp = tp;
        plan.dpReplicate = dp;
        plan.devicesPerHost = host;
        const int64_t ranks = tp * dp, hosts = (ranks + host - 1) / host;
        int64_t found = 0;  // by trying all
        for (int64_t each = 1; each <= host; ++each)
          if (each * hosts == ranks && (hosts == 1 || each == host || each % tp == 0)) found = each;
        EXPECT_EQ(ranksPerHost(plan).value_or(0), found) << ranks << " by " << tp << " on " << host;
      }
}

// Qwen2 72B: hidden 8192, 64 heads of 128, 8 key/value heads, ffn 29568 = 2^7 x 3 x 7 x 11, so that
// a rank of tp 8 has 3696 = 16 x 231, no multiple of 32.
TEST(Fp8, MultipliesWhatDividesIntoItsBlocks) {
  const spec::ModelSpec model = spec::loadModel("qwen2-72b").value();
  const spec::StackSettings ofTensors{.fp8Rows = 8, .fp8Columns = 16},
      ofBlocks{.fp8Rows = 32, .fp8Columns = 32};
  using enum spec::Precision;
  EXPECT_FALSE(fp8Misfit(model, kFp8, 8, ofTensors));
  EXPECT_FALSE(fp8Misfit(model, kFp8, 4, ofBlocks));
  EXPECT_FALSE(fp8Misfit(model, kBf16, 8, ofBlocks));
  EXPECT_FALSE(fp8Misfit(model, kFp8, 8, {}));
  EXPECT_EQ(fp8Misfit(model, kFp8, 8, ofBlocks)->what, "ffn / tp");
  EXPECT_EQ(fp8Misfit(model, kFp8, 8, ofBlocks)->size, 3696);
  EXPECT_EQ(fp8Misfit(model, kFp8, 8, {.fp8Rows = 640})->what, "hidden size");
  EXPECT_EQ(fp8Misfit(model, kFp8, 8, {.fp8Rows = 640})->multiple, 640);
  EXPECT_TRUE(hasFp8Tokens(8184, kFp8, ofTensors));
  EXPECT_FALSE(hasFp8Tokens(8181, kFp8, ofTensors));
  EXPECT_TRUE(hasFp8Tokens(8181, kBf16, ofTensors));

  Plan plan = small::plan(model, small::training(8, 4096), 8, 1, 1);
  plan.training.precision = kFp8;
  const auto breach = fp8Breach(plan, model, ofBlocks);
  ASSERT_TRUE(breach.has_value());
  EXPECT_EQ(breach->value, "fp8 products of ffn / tp 3696 at tp 8, which is no multiple of 32");
  EXPECT_EQ(breach->nearest, "tp 4");
  plan.tp = 4;
  EXPECT_FALSE(fp8Breach(plan, model, ofBlocks).has_value());
  plan.training.sequenceLength = 4100;
  EXPECT_EQ(fp8Breach(plan, model, ofBlocks)->value,
            fmt::format("fp8 products of {} tokens on a rank", 4100 * plan.microbatchSize));
  // With sequence parallelism a rank has a part of them: 4128 = 32 x 129.
  plan.training.sequenceLength = 4128;
  EXPECT_FALSE(fp8Breach(plan, model, ofBlocks).has_value());
  plan.sequenceParallel = true;
  EXPECT_EQ(fp8Breach(plan, model, ofBlocks)->value,
            fmt::format("fp8 products of {} tokens on a rank", 1032 * plan.microbatchSize));
}

}  // namespace
}  // namespace trireme::plan
