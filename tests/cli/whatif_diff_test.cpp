// `trireme whatif --diff`.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/whatif_command.h"

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;

class WhatifDiff : public WhatifCommand {};

// Other precisions have other rates.
TEST_F(WhatifDiff, ADifferenceOfPrecisionsShowsBothRates) {
  const Outcome outcome =
      runTrireme({"whatif", "--model", "llama2-7b", "--stack", "megatron-deepspeed", "--gpus", "32",
                  "--batch", "128", "--seq", "4096", "--diff", "p3-16xlarge", "dgx-a100"});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("precision fp16 -> bf16"));
  EXPECT_THAT(outcome.out, HasSubstr("matmul rate 125 TFLOP/s -> 312 TFLOP/s"));
}

// Three decimals of a millisecond at least, so that the printed changes add up to the last digit.
TEST_F(WhatifDiff, ADifferenceAddsUpAndSaysWhy) {
  const std::vector<std::string> question = {"whatif",  "--model", "llama2-7b", "--gpus", "64",
                                             "--batch", "128",     "--seq",     "4096"};
  std::vector<std::string> args = question;
  args.insert(args.end(), {"--stack", "megatron-core", "--diff", "dgx-a100", "dgx-h100"});
  const Outcome table = runTrireme(args);
  expectSuccess(table);
  for (const char* part : {"before", "matmul rate 312 TFLOP/s -> 989", "why", "plan of before"})
    EXPECT_THAT(table.out, HasSubstr(part));
  std::istringstream lines(table.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  args.push_back("--json");
  const nlohmann::json json = jsonOf(runTrireme(args));
  int64_t sum = 0;
  for (const nlohmann::json& part : json.at("parts")) sum += part.at("changeUnits").get<int64_t>();
  EXPECT_EQ(sum, json.at("changeUnits"));
  EXPECT_LT(sum, 0);
  args = question;
  args.insert(args.end(), {"--cluster", "dgx-h100", "--diff", "megatron-core", "nemo"});
  EXPECT_THAT(runTrireme(args).out, HasSubstr("stack: the plan of before would take"));
}

TEST_F(WhatifDiff, TwoPlansArePricedAsTheyAre) {
  expectSuccess(plan({"--gpus", "2", "-o", path("two.yaml")}));
  expectSuccess(plan({"--gpus", "8", "-o", path("eight.yaml")}));
  const auto diff = [&](const std::string& a, const std::string& b) {
    return runTrireme({"whatif", "--model", model, "--cluster", cluster, "--diff", a, b, "--json"});
  };
  const nlohmann::json json = jsonOf(diff(path("two.yaml"), path("eight.yaml")));
  EXPECT_EQ(json.at("before").at("stepSeconds"),
            jsonOf(plan({"--gpus", "2", "--json"})).at("estimate").at("stepSeconds"));
  EXPECT_EQ(json.at("after").at("stepSeconds"),
            jsonOf(plan({"--json"})).at("estimate").at("stepSeconds"));
  expectRefusal(diff(path("two.yaml"), "dgx-a100"), 1,
                {"two of a kind", "is a plan, 'dgx-a100' a"});
  expectRefusal(diff("nowhere", "dgx-a100"), 1, {"'nowhere' is no cluster, stack or plan"});
  const std::string damaged = write("damaged.yaml", "version: 2\ntp: abc\n");
  expectRefusal(diff(damaged, path("eight.yaml")), 1, {"damaged.yaml:2:5: tp"});
  expectRefusal(whatif({"--diff", "dgx-a100", "dgx-h100", "--gpus", "2,4"}), 1,
                {"--gpus has 2 values"});
  expectRefusal(whatif({"--diff", "dgx-a100"}), 2, {"--diff"});
  expectRefusal(whatif({"--diff", "dgx-a100", "dgx-h100", "--csv"}), 2, {"--diff", "--csv"});
}

std::vector<std::string> diffOf(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"whatif",  "--model", "llama2-7b", "--gpus", "64",
                                   "--batch", "128",     "--seq",     "4096"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// What nobody asked for is seen: the precision that is usual.
TEST_F(WhatifDiff, ADifferenceSaysWhatWasAsked) {
  const Outcome clusters = runTrireme(diffOf({"--diff", "dgx-a100", "dgx-h100"}));
  expectSuccess(clusters);
  EXPECT_EQ(clusters.out.rfind("question      llama2-7b, 6.738 G parameters; dgx-a100, dgx-h100; "
                               "stack trireme\n"
                               "everywhere    precision bf16, seq 4096, batch 128, GPUs 64\n",
                               0),
            0u)
      << clusters.out;
  const std::vector<std::string> stacks =
      diffOf({"--cluster", "dgx-h100", "--report", path("page.html"), "--diff", "nemo",
              "nemo-fp8-current"});
  const Outcome text = runTrireme(stacks);
  EXPECT_THAT(text.out, HasSubstr("dgx-h100; stack nemo, nemo-fp8-current\n"
                                  "everywhere    seq 4096, batch 128, GPUs 64\n"));
  EXPECT_THAT(text.out, HasSubstr("\n  precision bf16 -> fp8\n"));
  EXPECT_THAT(readAll(path("page.html")), HasSubstr("\"question\":\"question      llama2-7b"));
  std::vector<std::string> args = stacks;
  args.push_back("--json");
  const nlohmann::json json = jsonOf(runTrireme(args));
  EXPECT_EQ(json.at("before").at("question"), (nlohmann::json{{"model", "llama2-7b"},
                                                              {"cluster", "dgx-h100"},
                                                              {"stack", "nemo"},
                                                              {"precision", "bf16"},
                                                              {"sequence", 4096},
                                                              {"batch", 128},
                                                              {"gpus", 64}}));
  EXPECT_EQ(json.at("after").at("question").at("precision"), "fp8");
}

TEST_F(WhatifDiff, ADifferenceNamesEveryCauseInHardwareAndSoftware) {
  const Outcome racks =
      runTrireme(diffOf({"--stack", "nemo", "--diff", "dgx-h100", "gb200-nvl72"}));
  expectSuccess(racks);
  for (const char* part : {"nvlink domain, devices 8 -> 72 (x 9)", "matmul efficiency 0.72 -> ",
                           "matmul rate that is reached 712.368 TFLOP/s -> ",
                           "attention efficiency, forward 0.5996 -> "})
    EXPECT_THAT(racks.out, HasSubstr(part));
  EXPECT_THAT(runTrireme(diffOf({"--stack", "nemo", "--diff", "dgx-h100", "p3-16xlarge"})).out,
              HasSubstr("50 GB/s -> 390.625 MB/s"));
  const Outcome stacks =
      runTrireme(diffOf({"--cluster", "dgx-h100", "--diff", "megatron-core", "nemo"}));
  expectSuccess(stacks);
  for (const char* part : {"elementwise_factor 1 -> 1.46", "host_launch 60 us -> 0 s",
                           "gathers_f8 false -> true", "precisions only before: fp32"})
    EXPECT_THAT(stacks.out, HasSubstr(part));
}

// Plans of NeMo shard the gradients, which torchtitan has no choice for.
TEST_F(WhatifDiff, ADifferenceSaysWhyThePlanOfBeforeIsNotThere) {
  const Outcome outcome =
      runTrireme(diffOf({"--cluster", "dgx-h100", "--diff", "nemo", "torchtitan"}));
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out,
              HasSubstr("the plan of before is not possible after: stack 'torchtitan' has no "));
}

// Context parallelism needs fused attention, which a V100 does not run.
TEST_F(WhatifDiff, ADifferenceIsOfWhatTheSoftwareDoesOnEachGpu) {
  const Outcome outcome = runTrireme({"whatif", "--model", "gpt2-1.5b", "--gpus", "64", "--batch",
                                      "4", "--seq", "1024", "--stack", "megatron-core",
                                      "--precision", "fp16", "--diff", "dgx-a100", "dgx-1v"});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("the plan of before is not possible after: stack "
                                     "'megatron-core' has no cp"));
  EXPECT_THAT(outcome.out, HasSubstr("attention flash2 -> unfused"));
  EXPECT_THAT(outcome.out, HasSubstr("choices only before: context_parallel"));
}

TEST_F(WhatifDiff, PlansOfTwoStacksBringTheirOwn) {
  const auto planFor = [&](const std::string& stack, const std::string& batch) {
    const std::string file = path(stack + ".yaml");
    expectSuccess(
        runTrireme({"plan", "--model", "llama2-7b", "--cluster", "dgx-h100", "--gpus", "16",
                    "--batch", batch, "--seq", "4096", "--stack", stack, "-o", file}));
    return file;
  };
  const std::string nemo = planFor("nemo", "64"), titan = planFor("torchtitan", "32");
  const auto diff = [&](const std::string& a, const std::string& b,
                        const std::vector<std::string>& more) {
    std::vector<std::string> args = {"whatif",   "--model", "llama2-7b", "--cluster",
                                     "dgx-h100", "--diff",  a,           b};
    args.insert(args.end(), more.begin(), more.end());
    return runTrireme(args);
  };
  const Outcome text = diff(titan, nemo, {});
  expectSuccess(text);
  for (const char* part :
       {"dgx-h100; stack torchtitan, nemo\n",
        "everywhere    precision bf16, "
        "seq 4096, GPUs 16\n",
        "\n  batch 32 -> 64\n", "\n  attention flash2 -> cudnn\n", "choices only after: "})
    EXPECT_THAT(text.out, HasSubstr(part));
  EXPECT_THAT(text.out, HasSubstr("\n  microbatch_size 2 -> 4\n"));
  const nlohmann::json json = jsonOf(diff(titan, nemo, {"--json"}));
  int64_t sum = 0;
  for (const nlohmann::json& part : json.at("parts")) sum += part.at("changeUnits").get<int64_t>();
  EXPECT_EQ(sum, json.at("changeUnits"));
  // Each is what it is priced at with its own stack.
  EXPECT_EQ(json.at("after").at("stepSeconds"),
            jsonOf(diff(nemo, nemo, {"--stack", "nemo", "--json"})).at("before").at("stepSeconds"));
  expectRefusal(
      diff(titan, nemo, {"--stack", "nemo"}), 1,
      {"torchtitan.yaml: made for stack 'torchtitan', priced for 'nemo'; leave out --stack"});
  std::string foreign = readAll(nemo);
  foreign.replace(foreign.find("stack: nemo"), 11, "stack: ours");
  expectRefusal(diff(write("ours.yaml", foreign), nemo, {}), 1,
                {"ours.yaml: the plan was made for stack 'ours': give its profile with --stack"});
  expectRefusal(diff(titan, nemo, {"--batch", "64"}), 1, {"leave --batch, --seq"});
}

}  // namespace
}  // namespace trireme::cli
