#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;

class ExportCommand : public CommandTest {
 protected:
  // A plan of the tiny model with `pins`; its path.
  std::string planned(const std::vector<std::string>& pins) const {
    std::vector<std::string> more = {"-o", path("plan.yaml")};
    more.insert(more.end(), pins.begin(), pins.end());
    expectSuccess(plan(more));
    return path("plan.yaml");
  }
  Outcome exported(const std::string& plan, const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"export", plan, "--model", model};
    args.insert(args.end(), more.begin(), more.end());
    return runTrireme(args);
  }
};

TEST_F(ExportCommand, WritesTheFileAndNotesWhatItLeavesToTheUser) {
  const std::string plan = planned({"--tp", "2", "--pp", "2", "--dp", "2", "--schedule", "1f1b"});
  const Outcome outcome = exported(plan, {"--to", "megatron", "--steps", "30"});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("--tensor-model-parallel-size 2\n"));
  EXPECT_THAT(outcome.out, HasSubstr("--train-iters 30\n"));
  EXPECT_THAT(outcome.err, HasSubstr("note: data, tokenizer and checkpoints are yours"));
  expectSuccess(exported(plan, {"--to", "megatron", "--steps", "30", "-o", path("job.sh")}));
  EXPECT_EQ(readAll(path("job.sh")), outcome.out);
}

TEST_F(ExportCommand, LaunchersStartEveryNode) {
  const std::string plan = planned({"--tp", "2", "--pp", "2", "--dp", "2", "--schedule", "1f1b"});
  const Outcome slurm =
      exported(plan, {"--to", "slurm", "--framework", "megatron", "--gpus-per-node", "4"});
  expectSuccess(slurm);
  EXPECT_THAT(slurm.err, HasSubstr("note: the plan was made for stack 'trireme': the times "
                                   "predicted for it are not those of Megatron-LM"));
  EXPECT_THAT(slurm.out, HasSubstr("#SBATCH --nodes=2\n"));
  EXPECT_THAT(slurm.out, HasSubstr("pretrain_gpt.py"));
  const Outcome mpirun =
      exported(plan, {"--to", "mpirun", "--framework", "nemo", "--gpus-per-node", "4"});
  expectRefusal(mpirun, 1, {"precision fp32", "nearest: bf16"});
  expectRefusal(
      exported(plan, {"--to", "slurm", "--framework", "megatron", "--gpus-per-node", "3"}), 1,
      {"--gpus-per-node 3: 8 ranks with tp 2 are not as many on every node; nearest: 2"});
  expectRefusal(
      exported(plan, {"--to", "slurm"}), 1,
      {"the plan is for stack 'trireme', which slurm cannot launch", "--framework megatron"});
}

// Its program of then is not what files are written for now.
TEST_F(ExportCommand, SaysThatAnEarlierProgramWasPriced) {
  const std::vector<std::string> question = {
      "plan",   "--model", "gpt2-350m", "--cluster", "dgx-a100",
      "--gpus", "8",       "--batch",   "64",        "--seq",
      "1024",   "--for",   "megatron",  "-o",        path("gpt.yaml")};
  for (const auto& [stack, isEarlier] :
       {std::pair("megatron-lm-2021", true), {"megatron-core", false}}) {
    std::vector<std::string> args = question;
    args.insert(args.end(), {"--stack", stack});
    expectSuccess(runTrireme(args));
    const Outcome outcome = runTrireme({"export", path("gpt.yaml"), "--to", "megatron"});
    expectSuccess(outcome);
    const std::string note = std::string("the plan was made for stack '") + stack + "'";
    EXPECT_EQ(outcome.err.find(note) != std::string::npos, isEarlier) << outcome.err;
  }
}

TEST_F(ExportCommand, RefusalsNameTheChoiceAndTheWayOut) {
  const std::string plan = planned({"--tp", "2", "--pp", "2", "--dp", "2", "--schedule", "gpipe"});
  expectRefusal(exported(plan, {"--to", "megatron"}), 1,
                {"plan.yaml: Megatron-LM cannot express schedule gpipe (nearest: schedule 1f1b)",
                 "'trireme plan --for megatron' finds the best plan that it can express"});
  // No plan makes another model of it.
  const Outcome other = exported(plan, {"--to", "torchtitan"});
  expectRefusal(other, 1, {"which it does not define (nearest: Llama 3 of 8B, 70B or 405B)"});
  EXPECT_EQ(other.err.find("trireme plan --for"), std::string::npos) << other.err;
  expectRefusal(exported(plan, {"--to", "megatrom"}), 2,
                {"unknown value 'megatrom'; did you mean 'megatron'?"});
  expectRefusal(exported(plan, {"--to", "nemo", "--framework", "nemo"}), 1, {"--framework says"});
  expectRefusal(runTrireme({"export", plan, "--to", "megatron"}), 1,
                {"is not shipped: give its file with --model"});
  expectRefusal(exported(plan, {"--to", "megatron", "-o", plan}), 1, {plan});
}

// What --for finds can be exported, whichever program it is for.
TEST_F(ExportCommand, PlansMadeForAProgramAreExportedToIt) {
  for (const char* framework : {"megatron", "deepspeed", "accelerate"}) {
    const std::string plan = planned({"--for", framework, "--stack", "trireme"});
    expectSuccess(exported(plan, {"--to", framework}));
  }
  for (const char* framework : {"megatron", "nemo", "torchtitan"}) {
    const Outcome outcome = runTrireme({"plan", "--model", "llama3-70b", "--cluster", "dgx-h100",
                                        "--gpus", "256", "--batch", "512", "--seq", "8192", "--for",
                                        framework, "-o", path("llama.yaml")});
    expectSuccess(outcome);
    EXPECT_THAT(outcome.out, HasSubstr("cluster       dgx-h100, stack "));
    expectSuccess(runTrireme({"export", path("llama.yaml"), "--to", framework}));
  }
}

// torchtitan has three schedules of ours, and its profile plans with each.
TEST_F(ExportCommand, TorchtitansSchedulesArePlannedAndExported) {
  const std::pair<const char*, const char*> kSchedules[] = {
      {"gpipe", "GPipe"}, {"1f1b", "1F1B"}, {"interleaved", "Interleaved1F1B"}};
  for (const auto& [schedule, name] : kSchedules) {
    expectSuccess(runTrireme({"plan", "--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus",
                              "64", "--batch", "128", "--seq", "4096", "--for", "torchtitan",
                              "--pp", "2", "--schedule", schedule, "-o", path("s.yaml")}));
    const Outcome outcome = runTrireme({"export", path("s.yaml"), "--to", "torchtitan"});
    expectSuccess(outcome);
    EXPECT_THAT(outcome.out, HasSubstr("pipeline_parallel_schedule = \"" + std::string(name)));
  }
}

// torchtitan's tensor parallelism is sequence parallel, and twice tp has to divide the sequence: of
// 2 x 2,047 positions there is none, and the best plan is one of the others. Of an odd length no
// plan is any.
TEST_F(ExportCommand, ForSearchesAmongWhatTheProgramTakesTogether) {
  const std::vector<std::string> odd = {"plan",     "--model", "llama3-70b", "--cluster",
                                        "dgx-h100", "--gpus",  "128",        "--batch",
                                        "64",       "--seq",   "4094",       "--for"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), odd.begin(), odd.end());
    return runTrireme(more);
  };
  const Outcome outcome = with({"torchtitan", "-o", path("odd.yaml")});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("which 2 x tp x cp does not divide"));
  expectSuccess(runTrireme({"export", path("odd.yaml"), "--to", "torchtitan"}));
  expectRefusal(with({"torchtitan", "--tp", "2"}), 1,
                {"sequence 4094 with tp 2", "would work: tp 1 (pinned: 2)"});
  expectRefusal(runTrireme({"plan", "--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus",
                            "128", "--batch", "64", "--seq", "4095", "--for", "torchtitan"}),
                1, {"(stack) sequence 4095 with tp 1 and cp 1", "needs sequence 4096"});
  expectSuccess(with({"megatron", "--tp", "2"}));
  // Of other lengths a pinned tp comes with it.
  expectSuccess(
      runTrireme({"plan", "--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus", "64",
                  "--batch", "64", "--seq", "4096", "--for", "torchtitan", "--tp", "2"}));
}

// Hosts of four GPUs: also what is suggested says so.
TEST_F(ExportCommand, SuggestedPlansKnowTheirHosts) {
  const Outcome outcome =
      runTrireme({"plan", "--model", "llama3-70b", "--cluster", "gb200-nvl72", "--gpus", "4",
                  "--batch", "64", "--seq", "8192", "--for", "megatron", "--json"});
  ASSERT_EQ(outcome.exitCode, 1);
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_THAT(json["nearest"]["plan"].get<std::string>(), HasSubstr("devices_per_host: 4"));
  ASSERT_FALSE(json["changes"].empty());
  for (const auto& change : json["changes"])
    EXPECT_THAT(change["plan"].get<std::string>(), HasSubstr("devices_per_host: 4"));
}

// FSDP2 that reshards after the forward, or never: what is faster, as without --for.
TEST_F(ExportCommand, ForLeavesTorchtitanItsKindsOfSharding) {
  const auto answer = [&](const char* flag) {
    const Outcome outcome =
        runTrireme({"plan", "--model", "llama3-8b", "--cluster", "dgx-b200", "--gpus", "64",
                    "--batch", "256", "--seq", "8192", flag, "torchtitan", "--json"});
    EXPECT_EQ(outcome.exitCode, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const nlohmann::json found = answer("--for");
  EXPECT_THAT(found["plan"].get<std::string>(), HasSubstr("state_sharding: gradients"));
  EXPECT_EQ(found["estimate"], answer("--stack")["estimate"]);
  for (const auto& alternative : found["why"])
    EXPECT_THAT(alternative.get<std::string>(), ::testing::Not(HasSubstr("faster")));
}

// Times of another stack are not the program's, whose own is what would help where nothing fits.
TEST_F(ExportCommand, ForSaysWhoseTimesTheseAre) {
  const Outcome other =
      runTrireme({"plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "8", "--batch",
                  "8", "--seq", "2048", "--for", "torchtitan", "--stack", "nemo"});
  EXPECT_EQ(other.exitCode, 0);
  EXPECT_THAT(other.err, HasSubstr("note: the times are those of stack 'nemo', not of torchtitan "
                                   "(stack 'torchtitan')\n"));
  const Outcome tooLarge = runTrireme({"plan", "--model", "gpt3-175b", "--cluster", "dgx-a100",
                                       "--gpus", "1024", "--batch", "1536", "--seq", "2048",
                                       "--for", "deepspeed", "--stack", "megatron-core"});
  EXPECT_EQ(tooLarge.exitCode, 1);
  EXPECT_THAT(tooLarge.err, HasSubstr("would work: stack deepspeed (now: megatron-core)"));
  // A context that DeepSpeed's JSON cannot divide; others can.
  EXPECT_THAT(
      runTrireme({"plan", "--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "32",
                  "--batch", "8", "--seq", "131072", "--for", "deepspeed"})
          .err,
      HasSubstr("no single change of the query that was tried (up to 2048 devices; batch 16, 32) "
                "gives a plan for DeepSpeed's JSON; other software is tried without --for"));
}

// Pins that the program cannot run are its limit, not a matter of another stack.
TEST_F(ExportCommand, ForNamesThePinThatTheProgramHasNot) {
  expectRefusal(plan({"--for", "deepspeed", "--stack", "trireme", "--tp", "2"}), 1,
                {"DeepSpeed's JSON cannot express tp 2 (nearest: tp 1)"});
  const Outcome tooSmall =
      runTrireme({"plan", "--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus", "8",
                  "--batch", "64", "--seq", "8192", "--for", "deepspeed"});
  EXPECT_EQ(tooSmall.exitCode, 1);
  const size_t error = tooSmall.err.find("error: ");
  ASSERT_NE(error, std::string::npos);
  EXPECT_THAT(tooSmall.err.substr(error), ::testing::Not(HasSubstr("stack ")));
}

// The recipe of fp8 and what torchtitan compiles are in the profile, and come back from the file.
TEST_F(ExportCommand, TheProfileOfThePlanDecidesOnFp8) {
  const std::vector<std::string> question = {"--model", "llama3-70b", "--cluster", "dgx-b200"};
  const auto run = [&](std::vector<std::string> args) {
    args.insert(args.end(), question.begin(), question.end());
    return runTrireme(args);
  };
  const std::pair<const char*, const char*> kCases[] = {
      {"torchtitan-compiled-fp8-rowwise", "torchtitan"}, {"nemo-fp8-mx", "megatron"}};
  for (const auto& [stack, framework] : kCases) {
    expectSuccess(run({"plan", "--gpus", "64", "--batch", "128", "--seq", "4096", "--stack", stack,
                       "--for", framework, "--precision", "fp8", "-o", path("p.yaml")}));
    const Outcome exported = runTrireme({"export", path("p.yaml"), "--to", framework});
    expectSuccess(exported);
    if (std::string(framework) == "torchtitan") {
      EXPECT_THAT(exported.err, ::testing::Not(HasSubstr("made for stack")));
      const Outcome slurm = runTrireme({"export", path("p.yaml"), "--to", "slurm"});
      EXPECT_THAT(slurm.out, HasSubstr("torchtitan.train"));
    }
    const bool isToml = std::string(framework) == "torchtitan";
    const std::string file = write(isToml ? "p.toml" : "p.sh", exported.out);
    const Outcome check = run({"plan", "--check", file});
    expectSuccess(check);
    EXPECT_THAT(check.out, HasSubstr("stack " + std::string(stack) + "\n"));
  }
  expectRefusal(runTrireme({"export", path("p.yaml"), "--to", "torchtitan"}), 1,
                {"fp8 with scales by the recipe mx (nearest: current)"});
  expectRefusal(runTrireme({"export", path("p.yaml"), "--to", "megatron", "--stack", "nemo"}), 1,
                {"the plan is for stack 'nemo-fp8-mx', but --stack is 'nemo'"});
}

// Trays of four GPUs, though racks have 72. What is asked for comes first; plans of before say
// nothing, and eight is then a guess.
TEST_F(ExportCommand, NodesAreThoseOfThePlansCluster) {
  expectSuccess(
      runTrireme({"plan", "--model", "llama3-8b", "--cluster", "gb200-nvl72", "--gpus", "72",
                  "--batch", "144", "--seq", "4096", "--for", "megatron", "-o", path("p.yaml")}));
  std::string text = readAll(path("p.yaml"));
  EXPECT_THAT(text, HasSubstr("\ndevices_per_host: 4\n"));
  const auto slurm = [&](const std::string& plan, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"export", plan, "--to", "slurm"});
    return runTrireme(more);
  };
  const Outcome own = slurm(path("p.yaml"));
  EXPECT_THAT(own.out, HasSubstr("#SBATCH --nodes=18\n"));
  EXPECT_THAT(own.out, HasSubstr("#SBATCH --gpus-per-node=4\n"));
  EXPECT_THAT(own.out, HasSubstr("--nproc-per-node 4 "));
  EXPECT_THAT(own.err, ::testing::Not(HasSubstr("--gpus-per-node")));
  const Outcome larger = slurm(path("p.yaml"), {"--gpus-per-node", "8"});
  EXPECT_THAT(larger.out, HasSubstr("#SBATCH --nodes=9\n"));
  EXPECT_THAT(larger.err,
              HasSubstr("note: the plan was made for nodes of 4 devices: with 8 ranks on each of 9 "
                        "nodes its step takes another time than was predicted\n"));
  text.replace(text.find("devices_per_host: 4\n"), 20, "");
  const Outcome before = slurm(write("before.yaml", text));
  EXPECT_THAT(before.out, HasSubstr("#SBATCH --gpus-per-node=8\n"));
  EXPECT_THAT(before.err,
              HasSubstr("note: nodes of 8 devices: the plan does not say it (--gpus-per-node)\n"));
}

// Of 20 GPUs in nodes of 8 a launcher can use 16, or 18 as 6 on each of three; what is planned for
// a program is exported to it. Without --for all 20 are used, and tp 2 would not stay within a node
// if they were 5 on each of four.
TEST_F(ExportCommand, PlansForAProgramFillTheirNodesAlike) {
  const auto planned = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--seq",
                               "4096", "-o", path("n.yaml")});
    expectSuccess(runTrireme(more));
  };
  for (const char* framework : {"megatron", "nemo", "torchtitan", "deepspeed", "accelerate"})
    for (const auto& [gpus, batch] : {std::pair{"20", "60"}, {"12", "24"}, {"18", "36"}}) {
      planned({"--gpus", gpus, "--batch", batch, "--for", framework});
      expectSuccess(runTrireme({"export", path("n.yaml"), "--to", framework, "--steps", "10"}));
    }
  planned({"--gpus", "20", "--batch", "60", "--stack", "nemo", "--tp", "2", "--pp", "2"});
  ASSERT_THAT(readAll(path("n.yaml")),
              HasSubstr("\ntp: 2\npp: 2\ncp: 1\nep: 1\ndp_replicate: 1\ndp_shard: 5\n"));
  expectRefusal(
      runTrireme({"export", path("n.yaml"), "--to", "nemo"}), 1,
      {"20 ranks, not as many on each host of 8", "nearest: dp 4", "trireme plan --for nemo"});
  EXPECT_THAT(runTrireme({"export", path("n.yaml"), "--to", "nemo", "--gpus-per-node", "5"}).err,
              HasSubstr("another time than was predicted, a longer one, for groups of tp 2 lie "
                        "across nodes"));
}

// A plan that fits with two bytes of each gradient may not with four.
TEST_F(ExportCommand, TheProfileOfThePlanDecidesOnGradients) {
  expectSuccess(
      runTrireme({"plan", "--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus", "64",
                  "--batch", "128", "--seq", "4096", "--for", "nemo", "-o", path("p.yaml")}));
  const Outcome nemo = runTrireme({"export", path("p.yaml"), "--to", "nemo"});
  expectSuccess(nemo);
  EXPECT_THAT(nemo.out, HasSubstr("grad_reduce_in_fp32:false}"));
  EXPECT_THAT(nemo.err, HasSubstr("note: mixed_precision is spelled out"));
  const Outcome megatron = runTrireme({"export", path("p.yaml"), "--to", "megatron"});
  EXPECT_THAT(megatron.out, HasSubstr("  --grad-reduce-in-bf16\n"));
  std::string text = readAll(path("p.yaml"));
  text.replace(text.find("stack: nemo"), 11, "stack: our");
  expectRefusal(runTrireme({"export", write("own.yaml", text), "--to", "nemo"}), 1,
                {"the plan was made for stack 'our': give its profile with --stack"});
}

// The profile reduces in 16 bits, as Accelerate does by itself; a copy of it does not.
TEST_F(ExportCommand, TheProfileOfThePlanDecidesOnReductions) {
  const auto noteOf = [&](const std::string& stack) {
    std::vector<std::string> args = {"plan",
                                     "--model",
                                     "llama2-7b",
                                     "--cluster",
                                     "dgx-a100",
                                     "--gpus",
                                     "8",
                                     "--batch",
                                     "16",
                                     "--seq",
                                     "4096",
                                     "--stack",
                                     stack,
                                     "-o",
                                     path("a.yaml"),
                                     "--state-sharding",
                                     "parameters"};
    expectSuccess(runTrireme(args));
    const Outcome outcome =
        runTrireme({"export", path("a.yaml"), "--to", "accelerate", "--stack", stack});
    expectSuccess(outcome);
    return outcome.err;
  };
  const std::string note = "the plan reduces gradients in float32";
  EXPECT_THAT(noteOf("accelerate"), ::testing::Not(HasSubstr(note)));
  std::string text = readAll(std::string(TRIREME_SOURCE_DIR) + "/examples/stacks/accelerate.yaml");
  write("accelerate.yaml",
        replaced(text, "reduced_gradient_bytes: {value: 2", "reduced_gradient_bytes: {value: 4"));
  EXPECT_THAT(noteOf(path("accelerate.yaml")), HasSubstr(note));
}

TEST_F(ExportCommand, ForRefusesAModelThatTheProgramHasNot) {
  expectRefusal(plan({"--for", "torchtitan"}), 1,
                {"torchtitan cannot express model", "nearest: Llama 3 of 8B, 70B or 405B"});
}

}  // namespace
}  // namespace trireme::cli
