// Damaged plans: parsePlan and verifyPlan answer with a plan or with an error that names its place,
// whatever the bytes. Deterministic: the same mutations in every run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/plan/plan.h"
#include "tests/support/damaged_text.h"
#include "tests/support/small_plan.h"

namespace trireme::plan {
namespace {

spec::ModelSpec model() { return small::gpt(12, 32, 4); }

std::string validPlanText() {
  Plan plan = small::plan(model(), small::training(16, 64), 2, 2);
  plan = small::interleaved(plan, model(), 2);
  EXPECT_TRUE(verifyPlan(plan, model()).ok()) << verifyPlan(plan, model()).message();
  return printPlan(plan);
}

void checkPlanText(const std::string& text) {
  const Result<Plan> plan = parsePlan(text, "plan.yaml");
  if (!plan.has_value()) {
    EXPECT_EQ(plan.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(plan.error().message(), ::testing::MatchesRegex("plan\\.yaml:[0-9]+:[0-9]+: .+"))
        << text;
    return;
  }
  const Status status = verifyPlan(*plan, model());
  if (!status.ok()) {
    EXPECT_THAT(status.message(), ::testing::MatchesRegex("\\(P[0-9]+\\) .+")) << text;
  }
  const Result<Plan> again = parsePlan(printPlan(*plan), "plan.yaml");
  ASSERT_TRUE(again.has_value()) << again.error().message() << "\n" << text;
  EXPECT_EQ(*again, *plan) << text;
}

TEST(PlanFuzz, BytesAreChangedInsertedAndRemoved) {
  const char* const kBytes = "0123456789-.:[]{},#'\"\n \t&*!|>%@`\\\x01\x7f\xc3\xff";
  damageBytes(validPlanText(), kBytes, 4000, 4, checkPlanText);
}

TEST(PlanFuzz, NumbersAreExtreme) {
  const char* const kNumbers[] = {"0",
                                  "-1",
                                  "3",
                                  "2147483647",
                                  "2147483648",
                                  "9223372036854775807",
                                  "-9223372036854775808",
                                  "9223372036854775808",
                                  "1e999",
                                  "nan",
                                  ".inf"};
  damageNumbers(validPlanText(), kNumbers, checkPlanText);
}

TEST(PlanFuzz, LinesAreLostSwappedAndRepeated) { damageLines(validPlanText(), 1, checkPlanText); }

TEST(PlanFuzz, TheFileEndsEarly) { endEarly(validPlanText(), 1, checkPlanText); }

}  // namespace
}  // namespace trireme::plan
