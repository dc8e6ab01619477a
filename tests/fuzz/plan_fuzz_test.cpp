// Damaged plans: parsePlan and verifyPlan answer with a plan or with an error that names its place,
// whatever the bytes. Deterministic: the same mutations in every run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ir/plan/plan.h"

namespace trireme::plan {
namespace {

spec::ModelSpec model() {
  return {.name = "small",
          .numLayers = 12,
          .hiddenSize = 32,
          .numHeads = 4,
          .numKvHeads = 4,
          .headSize = 8,
          .ffnSize = 128,
          .vocabSize = 120,
          .maxSequence = 64};
}

std::string validText() {
  Plan plan;
  plan.model = "small";
  plan.fingerprint = fingerprintOf(model());
  plan.training.sequenceLength = 64;
  plan.training.globalBatchSize = 16;
  plan.tp = 2;
  plan.pp = 2;
  plan.virtualStages = 2;
  plan.schedule = ScheduleKind::kInterleaved;
  plan.layers = evenLayers(12, 2, 2);
  EXPECT_TRUE(verifyPlan(plan, model()).ok()) << verifyPlan(plan, model()).message();
  return printPlan(plan);
}

void check(const std::string& text) {
  const Result<Plan> plan = parsePlan(text, "plan.yaml");
  if (!plan.has_value()) {
    EXPECT_EQ(plan.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(plan.error().message(), testing::MatchesRegex("plan\\.yaml:[0-9]+:[0-9]+: .+"))
        << text;
    return;
  }
  const Status status = verifyPlan(*plan, model());
  if (!status.ok()) {
    EXPECT_THAT(status.message(), testing::MatchesRegex("\\(P[0-9]+\\) .+")) << text;
  }
  const Result<Plan> again = parsePlan(printPlan(*plan), "plan.yaml");
  ASSERT_TRUE(again.has_value()) << again.error().message() << "\n" << text;
  EXPECT_EQ(*again, *plan) << text;
}

TEST(PlanFuzz, BytesAreChangedInsertedAndRemoved) {
  const std::string valid = validText();
  std::mt19937 random(7);
  const std::string interesting = "0123456789-.:[]{},#'\"\n \t&*!|>%@`\\\x01\x7f\xc3\xff";
  for (int i = 0; i < 4000; ++i) {
    std::string text = valid;
    for (size_t n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % text.size();
      const char byte = interesting[random() % interesting.size()];
      switch (random() % 3) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        default:
          text.erase(at, 1 + random() % 8);
          break;
      }
    }
    check(text);
  }
}

TEST(PlanFuzz, NumbersAreExtreme) {
  const std::string valid = validText();
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
  for (size_t begin = valid.find_first_of("0123456789"); begin != std::string::npos;) {
    size_t end = valid.find_first_not_of("0123456789.e-", begin);
    if (end == std::string::npos) end = valid.size();
    for (const char* number : kNumbers) check(valid.substr(0, begin) + number + valid.substr(end));
    begin = valid.find_first_of("0123456789", end);
  }
}

TEST(PlanFuzz, LinesAreLostSwappedAndRepeated) {
  const std::string valid = validText();
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < valid.size();) {
    const size_t end = valid.find('\n', begin) + 1;
    lines.push_back(valid.substr(begin, end - begin));
    begin = end;
  }
  const auto join = [](const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += part;
    return text;
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    auto changed = lines;
    changed.erase(changed.begin() + static_cast<long>(i));
    check(join(changed));
    for (size_t j = 0; j < lines.size(); ++j) {
      changed = lines;
      std::swap(changed[i], changed[j]);
      check(join(changed));
      changed = lines;
      changed.insert(changed.begin() + static_cast<long>(i), lines[j]);
      check(join(changed));
    }
  }
}

TEST(PlanFuzz, TheFileEndsEarly) {
  const std::string valid = validText();
  for (size_t size = 0; size <= valid.size(); ++size) check(valid.substr(0, size));
}

}  // namespace
}  // namespace trireme::plan
