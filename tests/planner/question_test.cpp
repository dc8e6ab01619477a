#include "planner/question.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ir/spec/load.h"
#include "planner/search/search.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;

TEST(OwnStack, IsTheShippedProfile) {
  spec::StackProfile shipped = spec::loadStack("trireme").value();
  shipped.sources.clear();
  EXPECT_EQ(ownStack(), shipped);
}

// It was planned for, and its kernels did not run there.
TEST(OwnStack, IsNotPlannedForGpusBeforeAmpere) {
  const auto refusalOn = [](const char* cluster) {
    auto query = makeQuery({.model = "gpt2-124m", .cluster = cluster, .batch = 8, .sequence = 512});
    query->pins.gpus = 1;
    const auto result = searchPlan(*query);
    return result.has_value() ? "" : result.error().message();
  };
  EXPECT_THAT(refusalOn("dgx-1v"), HasSubstr("stack 'trireme' needs GPUs of compute capability 8.0 "
                                             "or later, device V100-32GB-SXM has 7.0"));
  EXPECT_EQ(refusalOn("dgx-a100"), "");
}

// A file that names no precision leaves it to the stack, as no file does: a V100 has no bf16.
TEST(MakeQuery, PrecisionThatTheTrainingFileDoesNotNameIsTheUsualOne) {
  const auto precisionWith = [](const char* settings, const char* cluster) {
    Question question{.model = "llama3-8b", .cluster = cluster, .batch = 8, .sequence = 2048};
    question.training = ::testing::TempDir() + "question_test_train.yaml";
    std::ofstream(question.training) << settings;
    question.stack = "megatron-core";
    return makeQuery(question).value().training.precision;
  };
  EXPECT_EQ(precisionWith("learning_rate: 1e-4\n", "dgx-h100"), spec::Precision::kBf16);
  EXPECT_EQ(precisionWith("learning_rate: 1e-4\n", "dgx-1v"), spec::Precision::kFp16);
  EXPECT_EQ(precisionWith("precision: fp32\n", "dgx-h100"), spec::Precision::kFp32);
}

// What is asked for stays under another stack.
TEST(MakeQuery, KnowsWhatNobodyAskedFor) {
  const auto queryOf = [](const char* settings, std::optional<spec::Precision> precision,
                          std::optional<int64_t> vocabMultiple) {
    Question question{.model = "llama3-8b", .cluster = "dgx-h100", .batch = 8, .sequence = 2048};
    if (settings) {
      question.training = ::testing::TempDir() + "question_test_asked.yaml";
      std::ofstream(question.training) << settings;
    }
    question.stack = "nemo-fp8-current";
    question.precision = precision;
    question.vocabMultiple = vocabMultiple;
    return makeQuery(question).value();
  };
  EXPECT_TRUE(queryOf(nullptr, {}, {}).usualPrecision);
  EXPECT_TRUE(queryOf("learning_rate: 1e-4\n", {}, {}).usualPrecision);
  EXPECT_FALSE(queryOf("precision: fp8\n", {}, {}).usualPrecision);
  EXPECT_FALSE(queryOf(nullptr, spec::Precision::kFp8, {}).usualPrecision);
  EXPECT_TRUE(queryOf(nullptr, {}, {}).usualVocabMultiple);
  EXPECT_FALSE(queryOf(nullptr, {}, 128).usualVocabMultiple);
}

TEST(CaveatsOf, SayWhatAnAnswerRestsOn) {
  const auto caveats = [](const char* stack, const char* cluster) {
    return caveatsOf(spec::loadStack(stack).value(), spec::loadCluster(cluster).value().device);
  };
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  EXPECT_THAT(caveats("megatron-core", "dgx-h100"), ElementsAre());
  EXPECT_THAT(caveats("megatron-core", "gb200-nvl72"),
              ElementsAre("stack megatron-core: no run on this GPU was compared with its "
                          "predictions, only on A100, B200, H100; runs of nemo, nemo-fp8-current, "
                          "nemo-fp8-mx were"));
  EXPECT_THAT(caveats("megatron-core", "h100-nvl"), ::testing::SizeIs(1));  // the device's
  EXPECT_THAT(caveats("trireme", "local"), ElementsAre());  // a host, whose kernels are measured
  EXPECT_THAT(caveats("trireme", "dgx-h100"),
              ElementsAre(HasSubstr("stack trireme: no, or too few, runs on GPUs were compared")));
  EXPECT_THAT(caveats("megatron-deepspeed", "dgx-a100"),
              ElementsAre(HasSubstr("stack megatron-deepspeed: fitted to the runs of one group")));
  EXPECT_THAT(caveats("deepspeed", "dgx-b200"),
              ElementsAre(HasSubstr("stack deepspeed: no, or too few, runs on GPUs were compared"),
                          HasSubstr("device B200-180GB-SXM: bf16 is fitted to runs of one")));
}

// 9 racks of 72: 1,000 devices are a part of 14, as 500 are of the 9.
TEST(GrowCluster, AddsWholeGroups) {
  spec::ClusterSpec cluster = spec::loadCluster("gb200-nvl72").value();
  const int64_t rack = cluster.tiers[0].devices;
  ASSERT_EQ(rack, 72);
  ASSERT_TRUE(growCluster(1000, "gb200-nvl72", cluster).ok());
  EXPECT_EQ(cluster.numDevices, 14 * rack);
  EXPECT_EQ(cluster.tiers.back().devices, 14 * rack);
  ASSERT_TRUE(growCluster(500, "gb200-nvl72", cluster).ok());
  EXPECT_EQ(cluster.numDevices, 14 * rack);
}

// 4097 is odd: eight of them are a multiple of eight.
TEST(KeepFree, TakesAShareOfMemoryOrBytes) {
  const auto left = [](const char* headroom) {
    spec::DeviceSpec device;
    device.memory = Bytes(80e9);
    const Status status = keepFree(headroom, device);
    EXPECT_EQ(device.memory + device.headroom, Bytes(80e9)) << headroom;
    return status.ok() ? fmt::format("{:.4g}", device.memory.count()) : status.message();
  };
  EXPECT_EQ(left("7%"), "7.44e+10");
  EXPECT_EQ(left("12.5 %"), "7e+10");
  EXPECT_EQ(left("5 GB"), "7.5e+10");
  EXPECT_EQ(left("0%"), "8e+10");
  for (const char* bad :
       {"", "%", "x%", "7%x", "7 x%", "nan%", "-1%", "100%", "90 GB", "inf%", "7"})
    EXPECT_NE(left(bad).find("--headroom"), std::string::npos) << bad << ": " << left(bad);
}

TEST(SizeNotesOf, NameSizesThatProductsCannotHave) {
  Query query;
  query.model = small::gpt(4, 64, 4);
  query.training = small::training(8, 4097);
  query.stack.settings.fp8Rows = 8;
  query.stack.settings.fp8Columns = 16;
  EXPECT_TRUE(sizeNotesOf(query).empty());  // in another precision
  query.training.precision = spec::Precision::kFp8;
  EXPECT_EQ(sizeNotesOf(query),
            std::vector<std::string>{
                "fp8 products need a multiple of 8 tokens on a rank, which of sequences of 4097 "
                "only microbatches of 8 samples, or multiples, have; nearest: sequences of 4096 "
                "or 4104"});
  query.training.sequenceLength = 4100;
  EXPECT_NE(sizeNotesOf(query).front().find("microbatches of 2 samples"), std::string::npos);
  query.training.sequenceLength = 4096;
  EXPECT_TRUE(sizeNotesOf(query).empty());
  query.model.name = "odd";
  query.model.ffnSize = 250;
  EXPECT_EQ(sizeNotesOf(query),
            std::vector<std::string>{"ffn / tp of model odd is 250, of which fp8 products need a "
                                     "multiple of 16; nearest: 240 or 256"});
}

// GPT-2's vocabulary as it is, as Trireme pads it, in f32 and on a host.
TEST(SizeNotesOf, NameAVocabularyThatTensorCoresDoNotTake) {
  Query query;
  query.model = small::gpt(4, 64, 4);
  query.model.vocabSize = 50257;
  query.training = small::training(8, 32);
  query.training.precision = spec::Precision::kBf16;
  query.cluster = *spec::loadCluster("dgx-a100");
  query.vocabMultiple = 1;
  ASSERT_EQ(sizeNotesOf(query).size(), 1u);
  EXPECT_NE(sizeNotesOf(query)[0].find("of 50257 is no multiple of 8"), std::string::npos);
  EXPECT_NE(sizeNotesOf(query)[0].find("nearest: a vocab_size of 50264"), std::string::npos);
  query.vocabMultiple = 128;
  EXPECT_TRUE(sizeNotesOf(query).empty());
  query.vocabMultiple = 1;
  query.training.precision = spec::Precision::kFp32;
  EXPECT_TRUE(sizeNotesOf(query).empty());
  query.training.precision = spec::Precision::kBf16;
  query.cluster.device.kind = spec::DeviceKind::kHost;
  EXPECT_TRUE(sizeNotesOf(query).empty());
}

}  // namespace
}  // namespace trireme::planner
