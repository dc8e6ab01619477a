// What the degrees need that are rejected for memory.
#include <gmock/gmock.h>

#include <cstdio>

#include "ir/spec/load.h"
#include "planner/search/search.h"

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;

// "tp 1 pp 4 cp 2 dp 8", where cp 1 is not said.
Pins degreesOf(const std::string& subject) {
  Pins pins;
  int64_t tp = 0, pp = 0, cp = 1, dp = 0;
  if (std::sscanf(subject.c_str(), "tp %ld pp %ld cp %ld dp %ld", &tp, &pp, &cp, &dp) != 4) {
    cp = 1;
    EXPECT_EQ(std::sscanf(subject.c_str(), "tp %ld pp %ld dp %ld", &tp, &pp, &dp), 3) << subject;
  }
  pins.tp = tp;
  pins.pp = pp;
  pins.cp = cp;
  pins.dp = dp;
  return pins;
}

// The search opens those plans that may be fast, which recompute nothing and need most: what is
// said is what the leanest needs, as who pins the degrees is told.
TEST(Misfits, NeedWhatTheLeanestPlanOfTheirDegreesNeeds) {
  Query query;
  query.model = spec::loadModel("llama3-70b").value();
  query.cluster = spec::withNumDevices(spec::loadCluster("dgx-h100").value(), 64).value();
  query.training.globalBatchSize = 128;
  query.training.sequenceLength = 8192;
  query.training.precision = spec::Precision::kBf16;
  query.stack = spec::loadStack("megatron-core").value();
  const Result<PlanResult> found = searchPlan(query, modelCosts(query));
  ASSERT_TRUE(found.has_value());
  size_t next = 0;
  int looked = 0;
  for (const Rejection& rejection : found->rejections) {
    if (rejection.rule != "memory" || next++ % 2 != 0) continue;
    Query pinned = query;
    pinned.pins = degreesOf(rejection.subject);
    const Result<PlanResult> alone = searchPlan(pinned, modelCosts(pinned));
    ASSERT_FALSE(alone.has_value()) << rejection.subject;
    EXPECT_THAT(alone.error().message(),
                HasSubstr("the leanest needs " + rejection.needed + " of"));
    ++looked;
  }
  EXPECT_GT(looked, 5);
}

}  // namespace
}  // namespace trireme::planner
