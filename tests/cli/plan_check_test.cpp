#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "ir/plan/plan.h"
#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PlanCheckCommand : public CommandTest {
 protected:
  // Plans with `pins`, and returns the text of the plan.
  std::string planned(const std::vector<std::string>& pins = {}) const {
    std::vector<std::string> more = {"-o", path("plan.yaml")};
    more.insert(more.end(), pins.begin(), pins.end());
    expectSuccess(plan(more));
    return readAll(path("plan.yaml"));
  }
  Outcome check(const std::string& plan, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> args = {"plan", "--check",   plan,   "--model",
                                     model,  "--cluster", cluster};
    args.insert(args.end(), more.begin(), more.end());
    return runTrireme(args);
  }
};

TEST_F(PlanCheckCommand, TheWinnerIsTheOptimum) {
  planned();
  const Outcome outcome = check(path("plan.yaml"));
  expectSuccess(outcome);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("training      batch 8, sequence 16, fp32"));
  EXPECT_THAT(outcome.out, HasSubstr("fits          yes"));
  EXPECT_THAT(outcome.out, HasSubstr("distance      0.0 %: the plan is the optimum"));
  EXPECT_THAT(outcome.out, HasSubstr("best change   no single change gains"));
  EXPECT_THAT(outcome.out, HasSubstr("\ncertificate   optimal: gap 0 %, bound "));
}

// Of as many devices as the plan has, though the cluster has more.
TEST_F(PlanCheckCommand, TheOptimumIsOfThePlansDevices) {
  planned({"--gpus", "4"});
  const Outcome outcome = check(path("plan.yaml"));
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("devices       4 of 8\n"));
  EXPECT_THAT(outcome.out, HasSubstr("0.0 %: the plan is the optimum of 4 devices\n"));
}

TEST_F(PlanCheckCommand, APlanByHandIsSetBesideTheOptimum) {
  planned({"--tp", "2", "--pp", "2", "--dp", "2", "--microbatch", "1", "--recompute", "full",
           "--schedule", "gpipe"});
  const Outcome outcome = check(path("plan.yaml"));
  expectSuccess(outcome);
  for (const char* part :
       {"slower than the optimum", "best change   ", "faster", "stages ", "memory"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;

  const Outcome json = check(path("plan.yaml"), {"--json"});
  expectSuccess(json);
  const nlohmann::json answer = nlohmann::json::parse(json.out);
  EXPECT_EQ(answer.at("plan").get<std::string>(), readAll(path("plan.yaml")));
  EXPECT_EQ(answer.at("stageBytes").size(), 2u);
  EXPECT_TRUE(answer.at("fits").get<bool>());
  EXPECT_GT(answer.at("behindPercent").get<double>(), 0);
  const double best = answer.at("optimum").at("estimate").at("stepSeconds");
  EXPECT_NEAR(answer.at("estimate").at("stepSeconds").get<double>(),
              best + answer.at("behindSeconds").get<double>(), 1e-12);
  EXPECT_LT(answer.at("bestChange").at("differenceSeconds").get<double>(), 0);
}

TEST_F(PlanCheckCommand, APlanThatDoesNotFitIsPricedAllTheSame) {
  planned({"--tp", "1", "--pp", "1", "--dp", "8"});
  cluster = write("small.yaml", replaced(kTinyCluster, "64 MiB", "100 KiB"));
  const Outcome outcome = check(path("plan.yaml"));
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("fits          no: "));
  EXPECT_THAT(outcome.out, HasSubstr(" too much on stage 0"));
}

TEST_F(PlanCheckCommand, BadPlansAreRefusedWithFileAndRule) {
  const std::string good = planned({"--tp", "2", "--pp", "2", "--dp", "2"});
  expectRefusal(check(path("none.yaml")), 1, {"none.yaml: cannot read"});
  expectRefusal(check(write("bad.yaml", replaced(good, "tp: 2", "tpp: 2"))), 1,
                {"bad.yaml:", "unknown key 'tpp'"});
  expectRefusal(check(write("bad.yaml", replaced(good, "tp: 2", "tp: 3"))), 1,
                {"bad.yaml: (P4) tp 3"});
  model = write("other.yaml", replaced(kTinyModel, "heads: 4", "heads: 8"));
  expectRefusal(check(path("plan.yaml")), 1, {"plan.yaml: (P2)", "heads: 4", "heads: 8"});
}

TEST_F(PlanCheckCommand, APlanThatNeedsMoreDevicesIsRefusedByName) {
  planned({"--tp", "2", "--pp", "2", "--dp", "2"});
  cluster = write("four.yaml", replaced(kTinyCluster, "num_devices: 8", "num_devices: 4"));
  expectRefusal(check(path("plan.yaml")), 1,
                {"plan.yaml: the plan needs 8 devices (tp 2 x pp 2 x cp 1 x dp 2), cluster "
                 "'laptop' has 4"});
  cluster = write("any.yaml",
                  replaced(kTinyCluster, "num_devices: 8", "num_devices: 4") + "scalable: true\n");
  const Outcome grown = check(path("plan.yaml"));
  expectSuccess(grown);
  EXPECT_THAT(grown.out, HasSubstr("devices       8 of 8"));
}

TEST_F(PlanCheckCommand, AnotherStackHasToBeGivenAndIsNoted) {
  const std::string good = planned({"--tp", "2", "--pp", "2", "--dp", "2"});
  const std::string foreign =
      write("foreign.yaml", replaced(good, "stack: trireme", "stack: mine"));
  expectRefusal(
      check(foreign), 1,
      {"foreign.yaml: the plan was made for stack 'mine': give its profile with --stack"});
  const Outcome noted =
      check(foreign, {"--stack", TRIREME_SOURCE_DIR "/examples/stacks/trireme.yaml"});
  expectSuccess(noted);
  EXPECT_THAT(noted.err, HasSubstr("made for stack 'mine', priced for 'trireme'"));
}

TEST_F(PlanCheckCommand, WhatThePlanSaysItselfIsNoFlag) {
  planned();
  // These say what files of other programs leave open.
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--batch", "16"}, {"--tp", "2"}, {"--gpus", "4"}})
    expectRefusal(check(path("plan.yaml"), more), 1, {"plan.yaml: a plan says", more.front()});
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--train", training}, {"--explain"}, {"-o", path("out.yaml")}})
    expectRefusal(check(path("plan.yaml"), more), 2, {"--check", more.front(), "plan --help"});
}

// Flags that another program's file needs do not hide that it is none that is read.
TEST_F(PlanCheckCommand, AFileOfNoKnownProgramIsSaidToBeNone) {
  const std::string nemo =
      write("nemo.yaml", "trainer:\n  num_nodes: 1\nmodel:\n  mcore_gpt: true\n");
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--gpus", "8"}})
    expectRefusal(check(nemo, more), 1,
                  {"nemo.yaml:1:", "read as a plan of trireme, since it is no TOML of torchtitan",
                   "NeMo's recipes are not read"});
}

TEST_F(PlanCheckCommand, ExplainSaysWhatBindsAndWhatWouldChangeTheAnswer) {
  const Outcome outcome = plan({"--explain", "--recompute", "full"});
  expectSuccess(outcome);
  EXPECT_EQ(outcome.err, "");
  for (const char* part : {"binding       the pinned recompute", "sensitivity", "10 % more matmul",
                           "10 % more memory bandwidth", "10 % more memory link bandwidth",
                           "10 % more memory ", "twice the batch"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  const Outcome json = plan({"--explain", "--json", "--recompute", "full"});
  expectSuccess(json);
  const nlohmann::json outlook = nlohmann::json::parse(json.out).at("outlook");
  EXPECT_EQ(outlook.at("binding").at(0).at("kind"), "pin");
  EXPECT_EQ(outlook.at("sensitivities").size(), 5u);
  EXPECT_FALSE(nlohmann::json::parse(plan({"--json"}).out).contains("outlook"));
}

// Ring attention needs fused attention, which a V100 does not run.
TEST_F(PlanCheckCommand, APlanIsCheckedAgainstWhatItsStackDoesThere) {
  const std::string file = path("ring.yaml");
  expectSuccess(runTrireme({"plan", "--model", "gpt2-1.5b", "--cluster", "dgx-a100", "--gpus", "8",
                            "--batch", "8", "--seq", "1024", "--stack", "megatron-core",
                            "--precision", "fp16", "--cp", "2", "-o", file}));
  const Outcome outcome =
      runTrireme({"plan", "--model", "gpt2-1.5b", "--cluster", "dgx-1v", "--check", file});
  EXPECT_EQ(outcome.exitCode, 1);
  EXPECT_THAT(outcome.err, HasSubstr("note: device V100-32GB-SXM: of runs on it Alpa's alone"));
  EXPECT_THAT(outcome.err, HasSubstr("stack 'megatron-core' has no cp 2 without fused attention"));
  EXPECT_THAT(outcome.err, HasSubstr("nearest: cp 1"));
}

// What --for and export write is what --check reads: the plan is the optimum of its own stack. A
// flag that nobody here knows is named.
TEST_F(PlanCheckCommand, AMegatronScriptIsPricedLikeItsPlan) {
  const std::vector<std::string> cluster = {"--model", "gpt3-175b", "--cluster", "dgx-a100"};
  std::vector<std::string> args = {"plan",     "--gpus", "1024",           "--batch",
                                   "1536",     "--seq",  "2048",           "--for",
                                   "megatron", "-o",     path("plan.yaml")};
  args.insert(args.end(), cluster.begin(), cluster.end());
  expectSuccess(runTrireme(args));
  const Outcome script = runTrireme({"export", path("plan.yaml"), "--to", "megatron"});
  expectSuccess(script);
  const std::string file =
      write("run.sh", replaced(script.out, "--sequence-parallel", "--sequence-parallel --tp-x 3"));
  args = {"plan", "--check", file};
  args.insert(args.end(), cluster.begin(), cluster.end());
  const Outcome outcome = runTrireme(args);
  expectSuccess(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("note: " + file + ": not known here and not counted: --tp-x"));
  EXPECT_THAT(outcome.out, HasSubstr("stack megatron-core"));
  EXPECT_THAT(outcome.out, HasSubstr("distance      0.0 %: the plan is the optimum"));
}

// Hosts are those of the cluster: 36 ranks are 4 on each of 9 hosts of 4, though not on hosts of 8.
TEST_F(PlanCheckCommand, AMegatronScriptIsOnTheHostsOfTheCluster) {
  expectSuccess(
      runTrireme({"plan", "--model", "gpt-7.5b", "--cluster", "t4", "--gpus", "36", "--batch",
                  "120", "--seq", "512", "--for", "megatron", "-o", path("t4.yaml")}));
  const Outcome script =
      runTrireme({"export", path("t4.yaml"), "--to", "megatron", "--steps", "10"});
  ASSERT_THAT(script.out, HasSubstr("--nnodes 9"));
  const Outcome outcome = runTrireme(
      {"plan", "--check", write("t4.sh", script.out), "--model", "gpt-7.5b", "--cluster", "t4"});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.err, Not(HasSubstr("launches")));
  EXPECT_THAT(outcome.out, HasSubstr("distance      0.0 %: the plan is the optimum"));
}

// Four ranks on each of two hosts reduce over the network what eight on one do over NVLink; five on
// each of four are what --for places there, so that the script is the optimum.
TEST_F(PlanCheckCommand, AScriptIsPricedOnAsManyRanksOfAHostAsItLaunches) {
  const auto checked = [&](const char* gpus, const char* batch, const char* dp,
                           const std::vector<std::string>& more) {
    const std::vector<std::string> question = {"--model", "llama3-8b", "--cluster", "dgx-h100"};
    std::vector<std::string> plan = {
        "plan", "--gpus", gpus, "--batch", batch, "--seq", "4096", "--for", "megatron",    "--tp",
        "1",    "--pp",   "1",  "--cp",    "1",   "--dp",  dp,     "-o",    path("t.yaml")};
    plan.insert(plan.end(), question.begin(), question.end());
    expectSuccess(runTrireme(plan));
    std::vector<std::string> args = {"export", path("t.yaml"), "--to", "megatron", "--steps", "10"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome script = runTrireme(args);
    std::vector<std::string> check = {"plan", "--check", write("t.sh", script.out)};
    check.insert(check.end(), question.begin(), question.end());
    check.emplace_back("--json");
    const Outcome outcome = runTrireme(check);
    expectSuccess(outcome);
    EXPECT_THAT(outcome.err, Not(HasSubstr("launches")));
    const nlohmann::json json = nlohmann::json::parse(outcome.out);
    const nlohmann::json planned = nlohmann::json::parse(runTrireme([&] {
                                                           plan.emplace_back("--json");
                                                           return plan;
                                                         }())
                                                             .out);
    return json["estimate"]["stepSeconds"].get<double>() /
           planned["estimate"]["stepSeconds"].get<double>();
  };
  EXPECT_EQ(checked("8", "64", "8", {}), 1);
  EXPECT_GT(checked("8", "64", "8", {"--gpus-per-node", "4"}), 1.01);
  EXPECT_EQ(checked("40", "20", "20", {}), 1);
}

// 30 ranks, six on each of five hosts of eight: the optimum for those hosts is the plan.
TEST_F(PlanCheckCommand, APlanOnPartsOfHostsIsHeldAgainstPlansOnThem) {
  const std::string file = path("parts.yaml");
  const std::vector<std::string> question = {"--model", "gpt2-350m",       "--cluster", "dgx-h100",
                                             "--stack", "deepspeed-zero3", "--json"};
  std::vector<std::string> args = {"plan",  "--gpus", "64", "--batch", "15",
                                   "--seq", "1024",   "-o", file};
  args.insert(args.end(), question.begin(), question.end());
  expectSuccess(runTrireme(args));
  args = {"plan", "--check", file};
  args.insert(args.end(), question.begin(), question.end());
  const Outcome checked = runTrireme(args);
  expectSuccess(checked);
  const auto json = nlohmann::json::parse(checked.out);
  EXPECT_EQ(json.at("estimate").at("stepSeconds"),
            json.at("optimum").at("estimate").at("stepSeconds"));
}

// What ranks gather is in fp8 or, as MXFP8 has it, in bf16: a script takes what its plan takes.
TEST_F(PlanCheckCommand, AnFp8ScriptIsPricedAsItsPlan) {
  for (const char* stack : {"megatron-core", "nemo", "nemo-fp8-current", "nemo-fp8-mx"})
    for (const char* sharding : {"none", "optimizer"}) {
      const std::string file = path(std::string(stack) + "-" + sharding + ".yaml");
      const std::vector<std::string> question = {"--model", "llama3-8b", "--cluster", "dgx-b200",
                                                 "--stack", stack,       "--json"};
      std::vector<std::string> args = {
          "plan",   "--gpus", "16",       "--batch", "16", "--seq", "4096", "--precision",
          "fp8",    "--for",  "megatron", "--tp",    "2",  "--pp",  "1",    "--state-sharding",
          sharding, "-o",     file};
      args.insert(args.end(), question.begin(), question.end());
      const Outcome planned = runTrireme(args);
      expectSuccess(planned);
      const Outcome script = runTrireme({"export", file, "--to", "megatron", "--steps", "10"});
      expectSuccess(script);
      args = {"plan", "--check", write("run.sh", script.out)};
      args.insert(args.end(), question.begin(), question.end());
      const Outcome checked = runTrireme(args);
      expectSuccess(checked);
      const auto estimateOf = [](const Outcome& outcome) {
        return nlohmann::json::parse(outcome.out).at("estimate");
      };
      EXPECT_EQ(estimateOf(planned), estimateOf(checked)) << stack << " " << sharding;
    }
}

// DeepSpeed's JSON leaves four things to the script; all are asked for at once, and the price is
// that of the plan that they complete. 32 = 1 x 2 x 16.
TEST_F(PlanCheckCommand, ADeepspeedFileIsPricedWithWhatTheScriptSays) {
  const std::string file = write("ds.json", R"({"train_batch_size": 32,
      "train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true}, "mystery": 1,
      "zero_optimization": {"stage": 3}})");
  std::vector<std::string> args = {"plan",      "--check",   file,      "--model",
                                   "gpt2-774m", "--cluster", "dgx-a100"};
  expectRefusal(runTrireme(args), 1, {"(--gpus)", "--tp", "(--seq)", "--recompute"});
  for (const char* more : {"--gpus", "16", "--tp", "1", "--seq", "1024", "--recompute", "full"})
    args.emplace_back(more);
  const Outcome outcome = runTrireme(args);
  expectSuccess(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("not known here and not counted: mystery"));
  EXPECT_THAT(outcome.out, HasSubstr("stack deepspeed"));
  EXPECT_THAT(outcome.out, HasSubstr("tp 1, pp 1, dp 16, microbatch 1, 1f1b, recompute full, "
                                     "sharded parameters"));
  EXPECT_THAT(outcome.out, HasSubstr("optimum  "));
  EXPECT_THAT(outcome.out, HasSubstr("best change"));
}

// The JSON has no word for it, but scripts split tensors, and AutoTP does by its own key.
TEST_F(PlanCheckCommand, ADeepspeedFileOfASplitModelIsPriced) {
  const auto check = [&](const std::string& more, std::vector<std::string> flags) {
    const std::string file = write("ds.json", R"({"train_batch_size": 32,
        "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
        "zero_optimization": {"stage": 1})" + more +
                                                  "}");
    flags.insert(flags.begin(),
                 {"plan", "--check", file, "--model", "gpt2-774m", "--cluster", "dgx-a100",
                  "--gpus", "16", "--seq", "1024", "--recompute", "full"});
    return runTrireme(flags);
  };
  for (const Outcome& outcome :
       {check("", {"--tp", "4"}), check(R"(, "tensor_parallel": {"autotp_size": 4})", {})}) {
    expectSuccess(outcome);
    EXPECT_THAT(outcome.out, HasSubstr("tp 4, pp 1, dp 4, microbatch 1, 1f1b, recompute full, "
                                       "sharded optimizer"));
    EXPECT_THAT(outcome.out, HasSubstr("optimum  "));
  }
  expectRefusal(check(R"(, "bf_16": {"enabled": true})", {"--tp", "1"}), 1,
                {"bf_16 is not known; did you mean 'bf16'?"});
}

// What `export` writes for torchtitan is priced like the plan that it came from.
TEST_F(PlanCheckCommand, ATorchtitanFileIsPricedLikeItsPlan) {
  const std::vector<std::string> cluster = {"--model", "llama3-8b", "--cluster", "dgx-h100"};
  std::vector<std::string> args = {
      "plan",  "--gpus",     "64",           "--batch", "128", "--seq",           "8192",
      "--for", "torchtitan", "--microbatch", "1",       "-o",  path("plan.yaml"), "--json"};
  args.insert(args.end(), cluster.begin(), cluster.end());
  const Outcome planned = runTrireme(args);
  expectSuccess(planned);
  const Outcome exported = runTrireme({"export", path("plan.yaml"), "--to", "torchtitan"});
  expectSuccess(exported);
  args = {"plan", "--json", "--check", write("run.toml", exported.out)};
  args.insert(args.end(), cluster.begin(), cluster.end());
  const Outcome outcome = runTrireme(args);
  expectSuccess(outcome);
  const auto step = [](const Outcome& o) {
    return nlohmann::json::parse(o.out).at("estimate").at("stepSeconds").get<double>();
  };
  // The vocabulary is not padded, so the head is 128,256 rows in place of a multiple of 128 x tp.
  EXPECT_NEAR(step(outcome), step(planned), 0.01 * step(planned));
}

}  // namespace
}  // namespace trireme::cli
