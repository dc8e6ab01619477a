#include "tests/support/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <random>

#include "ir/plan/plan.h"

namespace trireme::plan {
namespace {

using ::testing::HasSubstr;

Plan smallPlan() {
  Plan plan;
  plan.model = "gpt2";
  plan.fingerprint = 0xffff'ffff'ffff'fffeu;
  plan.training.sequenceLength = 1024;
  plan.training.globalBatchSize = 16;
  plan.pp = 2;
  plan.virtualStages = 2;
  plan.schedule = ScheduleKind::kInterleaved;
  plan.layers = {{{0, 3}, {6, 3}}, {{3, 3}, {9, 3}}};
  return plan;
}

TEST(PrintPlan, IsTheTextThatUsersEdit) {
  EXPECT_THAT(printPlan(smallPlan()), ::testing::StartsWith(R"(version: 2
model: gpt2
fingerprint: 18446744073709551614
stack: trireme
tp: 1
pp: 2
cp: 1
ep: 1
dp_replicate: 1
dp_shard: 1
virtual_stages: 2
microbatch_size: 1
schedule: interleaved
recompute: none
recompute_layers: 0
state_sharding: none
sequence_parallel: false
scatter_gather: false
vocab_multiple: 128
layers:  # per stage: its chunks as [first layer, number of layers]
  - [[0, 3], [6, 3]]
  - [[3, 3], [9, 3]]
training:
  precision: fp32
)"));
}

void expectRoundTrip(const Plan& plan) {
  const Result<Plan> read = parsePlan(printPlan(plan), "plan.yaml");
  ASSERT_TRUE(read.has_value()) << read.error().message() << "\n" << printPlan(plan);
  EXPECT_EQ(*read, plan) << printPlan(plan);
}

// Plans of before have none, and those that the default is meant by stay as they were.
TEST(ParsePlan, TheDefaultRankOrderIsNotWritten) {
  Plan plan = smallPlan();
  EXPECT_THAT(printPlan(plan), ::testing::Not(HasSubstr("rank_order")));
  plan.rankOrder = RankOrder::kTpCpPpDp;
  EXPECT_THAT(printPlan(plan), HasSubstr("\nrank_order: tp-cp-pp-dp\n"));
  expectRoundTrip(plan);
}

TEST(ParsePlan, DevicesOfAHostAreSaidWhereTheyAreKnown) {
  Plan plan = smallPlan();
  EXPECT_THAT(printPlan(plan), ::testing::Not(HasSubstr("devices_per_host")));
  plan.devicesPerHost = 4;
  EXPECT_THAT(printPlan(plan), HasSubstr("\ndevices_per_host: 4\n"));
  expectRoundTrip(plan);
  EXPECT_EQ(parsePlan(replaced(printPlan(plan), "host: 4", "host: 0"), "p.yaml").error().message(),
            "p.yaml:19:19: devices_per_host: must be 1 to 16777216, got 0");
}

TEST(ParsePlan, ReadsBackWhatWasPrinted) { expectRoundTrip(smallPlan()); }

// No rule of verifyPlan is needed to be read: a plan that breaks one is refused by its label later.
TEST(ParsePlan, ReadsBackAnyPlan) {
  std::mt19937_64 random(1);
  const char* const kNames[] = {"", "true", "12", "a: b", "# x", "naïve \"quoted\"\\", "- [", " "};
  for (int i = 0; i < 500; ++i) {
    const auto number = [&] { return static_cast<int64_t>(random()); };
    const auto share = [&] { return std::ldexp(static_cast<double>(random() >> 11), -53); };
    Plan p;
    p.model = kNames[random() % std::size(kNames)];
    p.fingerprint = random();
    p.stack = kNames[random() % std::size(kNames)];
    p.recomputeLayers = number();
    p.tp = number(), p.pp = number(), p.cp = number(), p.ep = number();
    p.dpReplicate = number(), p.dpShard = number();
    p.virtualStages = number(), p.microbatchSize = number(), p.vocabMultiple = number();
    p.schedule = static_cast<ScheduleKind>(random() % 3);
    p.recompute = static_cast<Recompute>(random() % 3);
    p.stateSharding = static_cast<StateSharding>(random() % 4);
    p.sequenceParallel = random() % 2 != 0;
    p.scatterGather = random() % 2 != 0;
    p.rankOrder = static_cast<RankOrder>(random() % 2);
    p.layers.resize(random() % 4);
    for (auto& stage : p.layers)
      for (uint64_t chunks = random() % 3; chunks > 0; --chunks)
        stage.push_back({number(), number()});
    p.training.precision = static_cast<spec::Precision>(random() % 3);
    p.training.seed = random();
    p.training.sequenceLength = static_cast<int64_t>(random() >> 35);
    p.training.globalBatchSize = static_cast<int64_t>(random() >> 35);
    p.training.embeddingDropout = share(), p.training.attentionDropout = share();
    p.training.residualDropout = share(), p.training.beta1 = share(), p.training.beta2 = share();
    p.training.learningRate = 1 + share(), p.training.minLearningRate = share();
    p.training.epsilon = share() * 1e-12 + 1e-300, p.training.weightDecay = share() * 1e30;
    expectRoundTrip(p);
  }
}

std::string messageAfterReplacing(const std::string& from, const std::string& to) {
  const Result<Plan> read = parsePlan(replaced(printPlan(smallPlan()), from, to), "plan.yaml");
  return read.has_value() ? "" : read.error().message();
}

TEST(ParsePlan, RefusesAnotherVersionBeforeAllElse) {
  EXPECT_EQ(messageAfterReplacing("version: 2\nmodel", "version: 3\nmesh"),
            "plan.yaml:1:10: version: 3 is newer than this program; expected 2");
  EXPECT_THAT(messageAfterReplacing("version: 2", "version: 1"),
              HasSubstr("version: 1 is unknown"));
  EXPECT_THAT(messageAfterReplacing("version: 2\n", ""), HasSubstr("version: missing"));
  EXPECT_THAT(messageAfterReplacing("version: 2", "version: one"),
              HasSubstr("plan.yaml:1:10: version:"));
}

TEST(ParsePlan, RefusesUnknownKeysWithTheNearestValidOne) {
  EXPECT_EQ(messageAfterReplacing("recompute:", "recomptue:"),
            "plan.yaml:14:1: unknown key 'recomptue'; did you mean 'recompute'?");
  EXPECT_THAT(messageAfterReplacing("  precision:", "  precison:"),
              HasSubstr("unknown key 'precison'; did you mean 'precision'?"));
}

// Whatever else a plan by hand leaves out is off, or one; its model is known by name.
TEST(ParsePlan, TakesWhatAPlanByHandNeeds) {
  const Plan whole = smallPlan();
  std::string text = printPlan(whole);
  for (const char* line : {"fingerprint", "cp", "ep", "dp_replicate", "dp_shard", "virtual_stages",
                           "schedule", "recompute", "recompute_layers", "state_sharding",
                           "sequence_parallel", "scatter_gather", "vocab_multiple"}) {
    const size_t at = text.find("\n" + std::string(line) + ":") + 1;
    ASSERT_GT(at, 0u) << line;
    text.erase(at, text.find('\n', at) + 1 - at);
  }
  const Result<Plan> read = parsePlan(text, "plan.yaml");
  ASSERT_TRUE(read.has_value()) << read.error().message();
  Plan expected = Plan{};
  expected.model = whole.model;
  expected.stack = whole.stack;
  expected.tp = whole.tp;
  expected.pp = whole.pp;
  expected.microbatchSize = whole.microbatchSize;
  expected.layers = whole.layers;
  expected.training = whole.training;
  EXPECT_EQ(*read, expected);
}

TEST(ParsePlan, RefusesAMissingField) {
  EXPECT_THAT(messageAfterReplacing("tp: 1\n", ""), HasSubstr("tp: missing"));
  EXPECT_THAT(parsePlan("version: 2\n", "plan.yaml").error().message(), HasSubstr("missing"));
}

TEST(ParsePlan, RefusesWrongValuesWithTheirPlace) {
  EXPECT_THAT(messageAfterReplacing("tp: 1", "tp: two"), HasSubstr("plan.yaml:5:5: tp: "));
  EXPECT_THAT(messageAfterReplacing("schedule: interleaved", "schedule: interleafed"),
              HasSubstr("plan.yaml:13:11: schedule: unknown value 'interleafed'; did you mean "
                        "'interleaved'?"));
  EXPECT_THAT(messageAfterReplacing("[3, 3]", "[3, 3, 3]"),
              HasSubstr("plan.yaml:22:6: layers: expected a chunk [first layer, number of "
                        "layers]"));
  EXPECT_THAT(messageAfterReplacing("[3, 3]", "[3, x]"),
              HasSubstr("plan.yaml:22:6: layers: expected"));
  EXPECT_THAT(messageAfterReplacing("- [[3, 3], [9, 3]]", "- 12"),
              HasSubstr("plan.yaml:22:5: layers: expected a stage"));
  EXPECT_THAT(messageAfterReplacing("beta1: 0.9", "beta1: 1.5"),
              HasSubstr("training.beta1: must be"));
  EXPECT_THAT(parsePlan("[]", "plan.yaml").error().message(), HasSubstr("plan.yaml:1:1: "));
}

TEST(LoadPlan, ReadsAFileAndNamesAMissingOne) {
  const std::string path = ::testing::TempDir() + "/trireme_plan_text_test.yaml";
  std::ofstream(path) << printPlan(smallPlan());
  const Result<Plan> read = loadPlan(path);
  std::remove(path.c_str());
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(*read, smallPlan());
  EXPECT_EQ(loadPlan(path).error().code(), StatusCode::kUnavailable);
}

TEST(EnumNames, AreThoseOfTheText) {
  EXPECT_EQ(scheduleName(ScheduleKind::k1F1B), "1f1b");
  EXPECT_EQ(recomputeName(Recompute::kSelective), "selective");
  EXPECT_EQ(stateShardingName(StateSharding::kParameters), "parameters");
}

}  // namespace
}  // namespace trireme::plan
