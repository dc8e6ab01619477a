#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <tuple>

#include "ir/plan/plan.h"
#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;

class PlanCommand : public CommandTest {};

TEST_F(PlanCommand, TableSaysWhatAndWhy) {
  const Outcome outcome = plan({"--top", "3"});
  expectSuccess(outcome);
  for (const char* part :
       {"plan ", "tp ", "step ", "matrix products", "memory", "runners-up", "certificate"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_EQ(outcome.err, "");
}

TEST_F(PlanCommand, ShippedModelsClustersAndStacksHaveNames) {
  const Outcome outcome =
      runTrireme({"plan", "--model", "gpt2-124m", "--cluster", "dgx-a100", "--stack", "trireme",
                  "--gpus", "8", "--batch", "64", "--seq", "1024", "--precision", "bf16"});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("dgx-a100, stack trireme"));
}

TEST_F(PlanCommand, AnUnknownNameListsTheNearest) {
  expectRefusal(plan({"--stack", "trirem"}), 1,
                {"trirem: there is no such file and no stack of this name; did you mean "
                 "'trireme'?"});
}

TEST_F(PlanCommand, PrecisionsWithoutKernelsAreRefusedByName) {
  expectRefusal(plan({"--precision", "fp8"}), 1, {"fp8", "nearest: bf16"});
}

TEST_F(PlanCommand, WrittenPlanObeysThePins) {
  const Outcome outcome = plan({"--tp",
                                "2",
                                "--pp",
                                "2",
                                "--dp",
                                "2",
                                "--microbatch",
                                "1",
                                "--schedule",
                                "gpipe",
                                "--recompute",
                                "full",
                                "--state-sharding",
                                "optimizer",
                                "--scatter-gather",
                                "on",
                                "--overlap-reductions",
                                "on",
                                "--sequence-parallel",
                                "off",
                                "--virtual-stages",
                                "1",
                                "--vocab-multiple",
                                "16",
                                "-o",
                                path("plan.yaml")});
  expectSuccess(outcome);
  const Result<plan::Plan> written = plan::loadPlan(path("plan.yaml"));
  ASSERT_TRUE(written.has_value()) << written.error().message();
  EXPECT_EQ(written->tp, 2);
  EXPECT_EQ(written->pp, 2);
  EXPECT_EQ(written->dp(), 2);
  EXPECT_EQ(written->microbatchSize, 1);
  EXPECT_EQ(written->schedule, plan::ScheduleKind::kGpipe);
  EXPECT_EQ(written->recompute, plan::Recompute::kFull);
  EXPECT_EQ(written->stateSharding, plan::StateSharding::kOptimizer);
  EXPECT_TRUE(written->scatterGather);
  EXPECT_TRUE(written->overlapReductions);
  EXPECT_EQ(written->vocabMultiple, 16);
  EXPECT_EQ(written->training.globalBatchSize, 8);
}

TEST_F(PlanCommand, FlagsOverrideTheTrainingFile) {
  const Outcome outcome = plan({"--batch", "16", "--seq", "8", "-o", path("plan.yaml")});
  expectSuccess(outcome);
  const Result<plan::Plan> written = plan::loadPlan(path("plan.yaml"));
  ASSERT_TRUE(written.has_value());
  EXPECT_EQ(written->training.globalBatchSize, 16);
  EXPECT_EQ(written->training.sequenceLength, 8);
}

TEST_F(PlanCommand, JsonHoldsTheSamePlanAsTheFile) {
  const Outcome outcome = plan({"--json", "-o", path("plan.yaml")});
  expectSuccess(outcome);
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("plan").get<std::string>(), readAll(path("plan.yaml")));
  EXPECT_GT(json.at("estimate").at("stepSeconds").get<double>(), 0);
}

TEST_F(PlanCommand, MoreDevicesThanTheClusterHasAreRefused) {
  expectRefusal(plan({"--gpus", "9"}), 1,
                {"--gpus 9: cluster 'laptop' has 8 devices; nearest: 8",
                 "raise num_devices in " + cluster, "scalable: true"});
  expectSuccess(plan({"--gpus", "8"}));
}

// More than a buffer of stdio, so that the first part fails while it is printed.
TEST_F(PlanCommand, FullDiskUnderJsonIsCalledByItsName) {
  const std::string err = path("err");
  const std::string command = std::string(TRIREME_BINARY) + " plan --model " + model +
                              " --cluster " + cluster + " --train " + training +
                              " --json --top 9 > /dev/full 2> " + err;
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  EXPECT_EQ(readAll(err), "error: cannot write the results: No space left on device\n");
}

TEST_F(PlanCommand, TooManyLayersAreRefusedWithTheLimit) {
  model = write("deep.yaml", replaced(kTinyModel, "layers: 4", "layers: 20000"));
  expectRefusal(plan(), 1, {"model 'tiny' has 20000 layers, the planner takes up to 4096"});
}

TEST_F(PlanCommand, ScalableClusterHasMoreOfTheSame) {
  cluster = write("any.yaml", std::string(kTinyCluster) + "scalable: true\n");
  expectRefusal(plan({"--gpus", "99999999999"}), 1,
                {"--gpus: a cluster has 1 to 16777216 devices"});
  const Outcome outcome = plan({"--gpus", "16", "--dp", "16", "--batch", "16", "--json"});
  expectSuccess(outcome);
  EXPECT_EQ(nlohmann::json::parse(outcome.out).at("gpusUsed"), 16);
}

TEST_F(PlanCommand, BatchAndSequenceAreNotGuessed) {
  const std::vector<std::string> bare = {"plan", "--model", model, "--cluster", cluster};
  expectRefusal(runTrireme(bare), 1, {"batch size is missing: give --batch"});
  std::vector<std::string> withBatch = bare;
  withBatch.insert(withBatch.end(), {"--batch", "8"});
  expectRefusal(runTrireme(withBatch), 1, {"sequence length is missing: give --seq", "up to 16"});
}

TEST_F(PlanCommand, BadSpecsAreRefusedWithTheirPlace) {
  model = write("bad.yaml", replaced(kTinyModel, "hidden_size", "hiden_size"));
  expectRefusal(plan(), 1,
                {"bad.yaml:4:1", "unknown key 'hiden_size'; did you mean 'hidden_size'?"});
  model = write("model.yaml", kTinyModel);
  const std::string good = cluster;
  cluster = write("typo.yaml", replaced(kTinyCluster, "memory_bandwidth", "memory_bandwith"));
  expectRefusal(
      plan(), 1,
      {"typo.yaml:10:3", "unknown key 'memory_bandwith'; did you mean 'memory_bandwidth'?"});
  cluster = good;
  training = write("slow.yaml", replaced(kTinyTraining, "learning_rate", "learning_rat"));
  expectRefusal(plan(), 1,
                {"slow.yaml:7:1", "unknown key 'learning_rat'; did you mean 'learning_rate'?"});
  training = write("train.yaml", kTinyTraining);
  model = write("bad.yaml", replaced(kTinyModel, "heads: 4", "heads: four"));
  expectRefusal(plan(), 1, {"bad.yaml:5", "heads", "expected a whole number"});
  model = path("none.yaml");
  expectRefusal(plan(), 1, {"none.yaml: cannot read: No such file"});
}

TEST_F(PlanCommand, WrongUnitIsRefused) {
  cluster = write("bad.yaml", replaced(kTinyCluster, "64 MiB", "64 MiB/s"));
  expectRefusal(plan(), 1, {"bad.yaml:9", "memory", "MiB/s", "GiB"});
  cluster = write("bad.yaml", replaced(kTinyCluster, "value: 6 us", "value: 6"));
  expectRefusal(plan(), 1, {"latency", "us"});
}

TEST_F(PlanCommand, UnsupportedOptionOfHuggingFaceIsRefusedByName) {
  const std::string config = readAll(TRIREME_SOURCE_DIR "/examples/models/hf/llama2-7b.json");
  model = write("config.json",
                replaced(config, "{", R"({"rope_scaling": {"type": "yarn", "factor": 2.0},)"));
  expectRefusal(plan(), 1, {"config.json", "rope_scaling"});
}

TEST_F(PlanCommand, DropoutOfHuggingFaceIsNotDroppedSilently) {
  const std::string config = TRIREME_SOURCE_DIR "/examples/models/hf/gpt2.json";
  cluster = write("large.yaml", replaced(kTinyCluster, "64 MiB", "64 GiB"));
  const auto planWith = [&](const std::string& dropout) {
    return runTrireme({"plan", "--model", config, "--cluster", cluster, "--train",
                       write("t.yaml", "sequence_length: 16\nglobal_batch_size: 8\n" + dropout)});
  };
  const Outcome noted = planWith("residual_dropout: 0.1\n");
  expectSuccess(noted);
  EXPECT_THAT(noted.err,
              HasSubstr("gpt2.json: embd_pdrop 0.1 is not used; embedding_dropout of the "
                        "--train file counts, and is 0"));
  EXPECT_THAT(noted.err, HasSubstr("attn_pdrop 0.1"));
  EXPECT_THAT(noted.err, ::testing::Not(HasSubstr("resid_pdrop")));
}

TEST_F(PlanCommand, DamagedJsonIsCalledJson) {
  const std::string config = readAll(TRIREME_SOURCE_DIR "/examples/models/hf/gpt2.json");
  model = write("config.json", config.substr(0, config.size() / 2));
  expectRefusal(plan(), 1, {"config.json:", "not valid JSON: ", "unexpected end of input"});
}

// 4 layers, 4 heads, ffn 64, sequence 16, batch 8, on 8 devices. The rules and their messages are
// those of tests/planner/pins_test.cpp; behind them stands what would work instead.
TEST_F(PlanCommand, NumbersThatDoNotDivideAreRefusedWithTheRuleAndTheNearest) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--tp", "3"}, "(P4) tp 3 does not divide 4 key/value heads; nearest: 2 or 4"},
      {{"--tp", "16"}, "tp 16 needs 16 devices, there are 8; nearest: tp 4"},
      {{"--tp", "4", "--pp", "4"},
       "tp 4 x pp 4 need 16 devices, there are 8; nearest: tp 2 or pp 2"},
      {{"--pp", "5"},
       "(P8) pp 5 x 1 virtual stage need a layer each, the model has 4; nearest: pp 4"},
      {{"--dp", "3"}, "(P3) dp 3 does not divide the global batch 8; nearest: 2 or 4"},
      {{"--dp", "2", "--batch", "9"},
       "(P3) dp 2 does not divide the global batch 9; nearest: 1 or 3"},
      {{"--dp", "2", "--microbatch", "3"},
       "(P3) microbatch size 3 does not divide the 4 sequences of a replica (batch 8, dp 2); "
       "nearest: 2 or 4"},
      {{"--virtual-stages", "2", "--pp", "2", "--microbatch", "8"},
       "(P7) schedule interleaved: 1 microbatch per replica is not a multiple of pp 2; nearest: "
       "2 microbatches"},
      {{"--layers", "4,4,1"}, "(P8) layers 4,4,1 cover 9 layers, the model has 4; nearest: 2,1,1"}};
  for (const auto& [flags, message] : cases) {
    const Outcome outcome = plan(flags);
    EXPECT_EQ(outcome.exitCode, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, ::testing::StartsWith("error: " + message + "; would work"));
  }
}

using Flags = std::vector<std::string>;

Outcome planWith(const std::vector<Flags>& flags) {
  Flags all = {"plan"};
  for (const Flags& each : flags) all.insert(all.end(), each.begin(), each.end());
  return runTrireme(all);
}

// "stack" or "devices" with what is advised, and the time of a step with it: "10.444 s".
struct Advice {
  std::string what, step;
};
Advice adviceIn(const std::string& message, const std::string& kind) {
  const std::regex pattern((kind == "stack" ? R"(stack (\S+) )" : R"((\d+) devices )") +
                           std::string(R"([^:]*\([^)]*\): ([^:]*?) a step)"));
  std::smatch match;
  EXPECT_TRUE(std::regex_search(message, match, pattern)) << message;
  return match.empty() ? Advice{} : Advice{match[1], match[2]};
}

void expectStep(const Outcome& outcome, const std::string& step) {
  expectSuccess(outcome);
  const size_t at = outcome.out.find("\nstep ") + 1;
  EXPECT_EQ(outcome.out.substr(at, outcome.out.find(',', at) - at), "step          " + step);
}

TEST(PlanAdvice, OnMoreDevicesHoldsWhenItIsFollowed) {
  for (const auto& [model, cluster, batch, gpus] :
       {std::tuple{"mpt-30b", "a40", "32", "1"},
        std::tuple{"llama3-70b", "dgx-h100", "256", "4"}}) {
    const Flags question = {"--model", model,   "--cluster", cluster, "--batch",
                            batch,     "--seq", "2048",      "--for", "nemo"};
    const Advice advice = adviceIn(planWith({question, {"--gpus", gpus}}).err, "devices");
    expectStep(planWith({question, {"--gpus", advice.what}}), advice.step);
  }
}

// Under that stack what nobody asked for is what is usual there.
TEST(PlanAdvice, OnOtherSoftwareHoldsWhenItIsFollowed) {
  const Flags question = {"--model", "qwen2-72b", "--cluster", "gb300-nvl72", "--batch",
                          "256",     "--seq",     "2048",      "--gpus",      "4"};
  for (const Flags& asked :
       {Flags{}, Flags{"--precision", "bf16"}, Flags{"--vocab-multiple", "128"}}) {
    const std::string message = planWith({question, asked, {"--stack", "nemo"}}).err;
    const Advice advice = adviceIn(message, "stack");
    expectStep(planWith({question, asked, {"--stack", advice.what}}), advice.step);
    const bool saysPrecision = message.find(" in fp8 (now: nemo in bf16)") != std::string::npos;
    EXPECT_EQ(saysPrecision, asked != Flags({"--precision", "bf16"})) << message;
  }
}

TEST_F(PlanCommand, HeadsThatCannotBeSplitAreNamed) {
  expectRefusal(plan({"--tp", "8"}), 1,
                {"(P4) tp 8 does not divide 4 key/value heads; nearest: 4"});
}

TEST_F(PlanCommand, PinsThatNoPlanObeysNameTheRule) {
  expectRefusal(plan({"--state-sharding", "gradients"}), 1,
                {"(E2) state sharding gradients cannot be compiled yet; nearest: optimizer"});
  expectRefusal(plan({"--pp", "5"}), 1, {"(P8) pp 5", "the model has 4", "nearest: pp 4"});
  expectRefusal(plan({"--layers", "2,1,2"}), 1,
                {"(P8) layers 2,1,2 cover 5 layers, the model has 4", "nearest: 2,1,1"});
}

TEST_F(PlanCommand, LayersArePinnedPerStage) {
  expectSuccess(plan({"--layers", "2,1,1", "-o", path("plan.yaml")}));
  const Result<plan::Plan> written = plan::loadPlan(path("plan.yaml"));
  ASSERT_TRUE(written.has_value());
  EXPECT_EQ(written->pp, 3);
  EXPECT_EQ(written->layers[0][0], (plan::LayerRange{0, 2}));
  EXPECT_EQ(written->layers[2][0], (plan::LayerRange{3, 1}));
}

// 128 MiB per device, of which scratch takes a third; the model needs 16 bytes for each of its
// parameters.
TEST_F(PlanCommand, ModelThatDoesNotFitSaysByHowMuchAndWhatWould) {
  model = write("big.yaml", replaced(kTinyModel, "hidden_size: 32", "hidden_size: 2048"));
  cluster = write("small.yaml", replaced(kTinyCluster, "64 MiB", "128 MiB"));
  expectRefusal(
      plan({"--gpus", "1"}), 1,
      {"no plan fits in memory", "128.00 MiB per device", " bytes) too much (tp 1", "devices"});
}

TEST_F(PlanCommand, JsonSaysWhatWouldFitAndStillFails) {
  model = write("big.yaml", replaced(kTinyModel, "hidden_size: 32", "hidden_size: 2048"));
  cluster = write("small.yaml", replaced(kTinyCluster, "64 MiB", "128 MiB"));
  const Outcome outcome = plan({"--gpus", "1", "--json"});
  EXPECT_EQ(outcome.exitCode, 1);
  EXPECT_THAT(outcome.err, ::testing::StartsWith("error: no plan fits in memory"));
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("fits"), false);
  EXPECT_GT(json.at("nearest").at("missingBytes").get<double>(), 0);
  ASSERT_FALSE(json.at("changes").empty());
  for (const nlohmann::json& change : json.at("changes"))
    EXPECT_THAT(outcome.err, HasSubstr(change.at("change").get<std::string>()));
}

TEST_F(PlanCommand, ExplainShowsTheCriticalPath) {
  const Outcome text = plan({"--explain"});
  expectSuccess(text);
  EXPECT_THAT(text.out, HasSubstr("critical path "));
  const Outcome json = plan({"--explain", "--json"});
  expectSuccess(json);
  EXPECT_GT(nlohmann::json::parse(json.out).at("criticalPath").at("simulatedSeconds"), 0);
  const Outcome others =
      runTrireme({"plan", "--model", model, "--cluster", "dgx-a100", "--gpus", "2", "--batch", "8",
                  "--seq", "16", "--stack", "nemo", "--explain"});
  expectSuccess(others);
  EXPECT_THAT(others.out, HasSubstr("critical path simulated: "));
}

TEST_F(PlanCommand, SequenceBeyondTheModelIsRefused) {
  expectRefusal(plan({"--seq", "17"}), 1, {"17", "16"});
}

TEST_F(PlanCommand, UnwritableOutputIsAnErrorAndKeepsTheOldFile) {
  expectRefusal(plan({"-o", path("no/such/folder/plan.yaml")}), 1,
                {"no/such/folder/plan.yaml: cannot write: No such file"});
  expectRefusal(plan({"-o", path("")}), 1, {"cannot write: Is a directory"});
  expectRefusal(plan({"-o", "/dev/full"}), 1, {"/dev/full: cannot write: No space left"});
}

TEST_F(PlanCommand, OutputNeverReplacesAnInput) {
  for (const auto& [flag, input] : {std::pair("--model", model), std::pair("--cluster", cluster),
                                    std::pair("--train", training)}) {
    const std::string before = readAll(input);
    expectRefusal(plan({"-o", input}), 1, {"-o " + input + ": is also " + flag});
    EXPECT_EQ(readAll(input), before);
  }
  // The same file under another name.
  std::filesystem::create_symlink(model, path("link.yaml"));
  expectRefusal(plan({"-o", path("link.yaml")}), 1, {"link.yaml: is also --model"});
  expectRefusal(
      plan({"-o", path("../") + path("").substr(path("").rfind('/', path("").size() - 2) + 1) +
                      "model.yaml"}),
      1, {"is also --model"});
  EXPECT_EQ(readAll(model), kTinyModel);
}

}  // namespace
}  // namespace trireme::cli
