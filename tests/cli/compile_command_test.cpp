#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/device/cuda/driver_api.h"
#include "tests/cli/command.h"
#if TRIREME_HAVE_MLIR
#include "ir/dialect/model_graph.h"
#endif

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;

class CompileCommand : public CommandTest {
 protected:
  // Compiles path("plan.yaml") into path("out.bundle").
  Outcome compilePlan(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> args = {
        "compile", "--model", model, "--plan", path("plan.yaml"), "-o", path("out.bundle")};
    args.insert(args.end(), more.begin(), more.end());
    return runTrireme(args);
  }
};

// Before anything is read.
TEST_F(CompileCommand, WrongTargetsAreRefused) {
  const auto refuse = [&](const std::string& target, const std::string& message) {
    expectRefusal(compilePlan({"--target", target}), 1, {"--target: " + message});
  };
  refuse("cuda:sm_91", "no target sm_91; the nearest is sm_90, ");
  refuse("cuda:sm_80,sm_70",
         "no target sm_70: sm_80 is the oldest; there are sm_80, sm_90, sm_90a");
  refuse("cuda:sm_80,", "'cuda:sm_80,': a name is missing");
  refuse("cuda:sm_80,cuda:sm_90", "'cuda:sm_80,cuda:sm_90': cuda: stands once");
  refuse("host,cuda:sm_80",
         "'host,cuda:sm_80': a bundle is for GPUs or for hosts; compile one for each\n");
  refuse("gpu", "no target gpu; there are cuda:sm_80, sm_90, sm_90a, and host, this machine's");
}

// No GPU is needed to compile for one, and without one the run says what is missing.
TEST_F(CompileCommand, BundlesForGpusAreWrittenAnywhereAndRunOnlyThere) {
  expectSuccess(plan({"--tp", "1", "--pp", "1", "--dp", "1", "-o", path("plan.yaml")}));
#if TRIREME_HAVE_MLIR
  expectSuccess(compilePlan({"--target", "cuda:sm_90", "--dump-ir", path("ir")}));
  EXPECT_THAT(readAll(path("ir/3_lower.mlir")), HasSubstr("nvvm.shfl.sync"));
  EXPECT_THAT(readAll(path("out.bundle/kernels.ptx")), HasSubstr(".target sm_90"));
  EXPECT_THAT(readAll(path("out.bundle/manifest.json")), HasSubstr("cuda:sm_90"));
  EXPECT_FALSE(std::filesystem::exists(path("out.bundle/kernels.so")));
  if (runtime::cuda::loadDriver().has_value()) GTEST_SKIP() << "this machine has a driver";
  expectRefusal(run(path("out.bundle"), {"--steps", "1"}), 1,
                {"no NVIDIA driver: libcuda.so.1 cannot be loaded"});
#else
  expectRefusal(compilePlan({"--target", "cuda:sm_90"}), 1, {"TRIREME_MLIR=OFF"});
#endif
}

#if TRIREME_HAVE_MLIR
// With ptxas, which the test machine may lack.
TEST_F(CompileCommand, ABundleForSeveralGpusSaysWhatItHolds) {
  expectSuccess(plan({"--tp", "1", "--pp", "1", "--dp", "1", "-o", path("plan.yaml")}));
  const Outcome outcome = compilePlan({"--target", "cuda:sm_90,sm_80", "--json"});
  expectSuccess(outcome);
  const nlohmann::json report = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(report.at("target"), "cuda:sm_80,sm_90");
  const nlohmann::json& code = report.at("code");
  EXPECT_EQ(code.at("ptx"), "sm_80");
  EXPECT_THAT(readAll(path("out.bundle/kernels.ptx")), HasSubstr(".target sm_80"));
  const bool hasPtxas = !code.at("cubins").empty();
  size_t bytes = readAll(path("out.bundle/kernels.ptx")).size();
  for (const std::string name : {"sm_80", "sm_90"}) {
    const std::string file = path("out.bundle/kernels." + name + ".cubin");
    EXPECT_EQ(std::filesystem::exists(file), hasPtxas);
    if (hasPtxas) bytes += readAll(file).size();
  }
  EXPECT_EQ(code.at("bytes"), bytes);
  const std::string text = compilePlan({"--target", "cuda:sm_80,sm_90"}).out;
  EXPECT_THAT(text, HasSubstr("target        cuda:sm_80,sm_90: PTX of sm_80 and later GPUs, "));
  if (!hasPtxas) GTEST_SKIP() << "this machine has no ptxas";
  EXPECT_EQ(code.at("cubins"), nlohmann::json({"sm_80", "sm_90"}));
  EXPECT_THAT(text, HasSubstr("code for sm_80, sm_90\n"));
}
#endif

TEST_F(CompileCommand, PlanForAnotherModelIsRefused) {
  expectSuccess(plan({"-o", path("plan.yaml")}));
  model = write("other.yaml", replaced(kTinyModel, "layers: 4", "layers: 8"));
  expectRefusal(compilePlan(), 1,
                {"plan.yaml", "(P2)",
                 "was made for model 'tiny' with layers: 4, but model 'tiny' has "
                 "layers: 8"});
  EXPECT_FALSE(std::filesystem::exists(path("out.bundle")));
}

TEST_F(CompileCommand, PlansThatBreakARuleAreRefused) {
  expectSuccess(plan({"--tp", "2", "--pp", "2", "--dp", "2", "--microbatch", "1", "--schedule",
                      "1f1b", "-o", path("plan.yaml")}));
  const std::string good = readAll(path("plan.yaml"));
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"microbatch_size: 1", "microbatch_size: 3", "(P3)"},
      {"\ntp: 2", "\ntp: 3", "(P4)"},
      {"pp: 2", "pp: 3", "(P8)"},
      {"ep: 1", "ep: 2", "(P12)"},
      {"recompute_layers: 0", "recompute_layers: 1", "(P14)"},
      {"stack: trireme", "stack: ''", "(P16)"},
      {"vocab_multiple: 128", "vocab_multiple: 2147483647", "(P1)"},
      {"version: 2", "version: 3", "version: 3 is newer than this program"},
      {"microbatch_size", "microbatch_sise", "did you mean 'microbatch_size'?"},
      {"schedule: ", "schedule: x", "schedule: unknown value"}};
  for (const auto& [from, to, message] : cases) {
    write("plan.yaml", replaced(good, from, to));
    expectRefusal(compilePlan(), 1, {"plan.yaml", message});
  }
}

// Legal: another stack may run it. With dp 2 in one stage of one rank each.
TEST_F(CompileCommand, PlansThatOnlyOthersRunAreRefusedWithTheNearestChoice) {
  expectSuccess(plan({"--tp", "1", "--pp", "1", "--dp", "2", "--microbatch", "1", "--recompute",
                      "full", "--state-sharding", "optimizer", "-o", path("plan.yaml")}));
  const std::string good = readAll(path("plan.yaml"));
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"\ncp: 1", "\ncp: 2", "(E1) cp 2"},
      {"sharding: optimizer", "sharding: parameters", "(E2) state sharding parameters"},
      {"dp_replicate: 1", "dp_replicate: 2", "(E3) state sharding optimizer with dp_replicate 2"},
      {"recompute_layers: 0", "recompute_layers: 1", "(E4) recompute_layers 1"}};
  for (const auto& [from, to, message] : cases) {
    write("plan.yaml", replaced(good, from, to));
    expectRefusal(compilePlan(), 1, {"plan.yaml: " + message, "cannot be compiled yet; nearest: "});
  }
}

// Of the stack that the plan is for, as `trireme plan --check` does. Of one whose profile is not at
// hand nothing is known.
TEST_F(CompileCommand, WhatThePlansOwnStackHasNotIsRefusedAsPlanCheckDoes) {
  expectSuccess(plan({"--tp", "1", "--pp", "1", "--dp", "2", "--overlap-reductions", "on", "-o",
                      path("plan.yaml")}));
  const std::string own = readAll(path("plan.yaml"));
  const std::vector<std::string> refused = {
      "plan.yaml: stack 'megatron-core' has no overlapped reductions; nearest: off"};
  const auto check = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"plan",      "--check", path("plan.yaml"), "--model", model,
                                     "--cluster", cluster};
    args.insert(args.end(), more.begin(), more.end());
    return runTrireme(args);
  };
  EXPECT_THAT(check({"--stack", "megatron-core"}).err, HasSubstr(refused[0]));
  expectRefusal(compilePlan({"--cluster", cluster, "--stack", "megatron-core"}), 1, refused);
  write("plan.yaml", replaced(own, "stack: trireme", "stack: megatron-core"));
  expectRefusal(check({}), 1, refused);
  expectRefusal(compilePlan(), 1, refused);
  EXPECT_FALSE(std::filesystem::exists(path("out.bundle")));
#if TRIREME_HAVE_MLIR
  write("plan.yaml", replaced(own, "stack: trireme", "stack: mine"));
  expectSuccess(compilePlan());
#endif
}

// The time of another stack is not that of our program; `plan --check` prices it.
TEST_F(CompileCommand, OnlyStacksThatRunOurProgramsAreSimulated) {
  expectSuccess(plan({"--gpus", "1", "-o", path("plan.yaml")}));
  expectRefusal(compilePlan({"--cluster", cluster, "--stack", "megatron-core"}), 1,
                {"--stack megatron-core: what is simulated is Trireme's own program",
                 "`trireme plan --check`"});
  EXPECT_FALSE(std::filesystem::exists(path("out.bundle")));
#if TRIREME_HAVE_MLIR
  expectSuccess(compilePlan({"--cluster", cluster, "--stack", "trireme"}));
#endif
}

#if TRIREME_HAVE_MLIR
TEST_F(CompileCommand, AFolderThatCannotBeUsedIsNamed) {
  expectSuccess(plan({"--gpus", "1", "-o", path("plan.yaml")}));
  expectRefusal(compilePlan({"--dump-ir", model + "/d"}), 1,
                {"--dump-ir: ", "model.yaml/d: cannot create the folder: Not a directory"});
  const std::string err = path("err");
  const std::string command = "TMPDIR=/nonexistent '" + std::string(TRIREME_BINARY) +
                              "' compile --model '" + model + "' --plan '" + path("plan.yaml") +
                              "' -o '" + path("out.bundle") + "' 2> '" + err + "'";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  EXPECT_EQ(readAll(err),
            "error: cannot write to the temporary folder /nonexistent: No such file or directory; "
            "TMPDIR names another\n");
}
#endif

TEST_F(CompileCommand, MissingPlanIsNamed) {
  expectRefusal(compilePlan(), 1, {"plan.yaml: cannot read: No such file"});
}

TEST_F(CompileCommand, SimulationNeedsACluster) {
  expectRefusal(compilePlan({"--simulate", path("trace.json")}), 2,
                {"--simulate requires --cluster"});
}

// Refused before there is anything to write, so in a build without a code generator as well.
TEST_F(CompileCommand, OutputNeverReplacesAnInputOrAnotherOutput) {
  expectSuccess(plan({"-o", path("plan.yaml")}));
  const std::string before = readAll(path("plan.yaml"));
  const auto compileTo = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"compile",         "--model",   model,  "--plan",
                                     path("plan.yaml"), "--cluster", cluster};
    args.insert(args.end(), more.begin(), more.end());
    return runTrireme(args);
  };
  const std::string bundle = path("out.bundle");
  expectRefusal(compileTo({"-o", model}), 1, {"-o " + model + ": is also --model"});
  expectRefusal(compileTo({"-o", path("plan.yaml")}), 1, {"is also --plan"});
  expectRefusal(compileTo({"-o", bundle, "--simulate", cluster}), 1,
                {"--simulate " + cluster + ": is also --cluster"});
  expectRefusal(compileTo({"-o", bundle, "--simulate", bundle + "/trace.json"}), 1,
                {"--simulate", "is inside of the bundle " + bundle});
  expectRefusal(compileTo({"-o", bundle, "--simulate", path("no/trace.json")}), 1,
                {"no/trace.json: cannot write: No such file"});
  EXPECT_EQ(readAll(path("plan.yaml")), before);
  EXPECT_EQ(readAll(model), kTinyModel);
  EXPECT_EQ(readAll(cluster), kTinyCluster);
  EXPECT_FALSE(std::filesystem::exists(bundle));
}

// A bundle with other files in it could never be replaced again. Also of a bundle that this command
// has nothing to do with; its manifest says what it is.
TEST_F(CompileCommand, NothingIsWrittenIntoAnyBundle) {
  namespace fs = std::filesystem;
  expectSuccess(plan({"-o", path("plan.yaml")}));
  fs::create_directory(path("other.bundle"));
  write("other.bundle/manifest.json", R"({"format": "trireme bundle", "version": 1})");
  fs::create_directory_symlink(path("other.bundle"), path("link"));
  const auto refuse = [&](const std::vector<std::string>& outputs, const std::string& message) {
    std::vector<std::string> args = {"compile", "--model", model, "--plan", path("plan.yaml")};
    args.insert(args.end(), outputs.begin(), outputs.end());
    expectRefusal(runTrireme(args), 1, {message});
  };
  const std::string other = path("other.bundle"), bundle = path("out.bundle");
  const std::string inside = ": is inside of the bundle " + other + "; give another place";
  refuse({"-o", other + "/inner"}, "-o " + other + "/inner" + inside);
  refuse({"-o", other + "/a/b/inner"}, "-o " + other + "/a/b/inner" + inside);
  refuse({"-o", path("link/inner")}, "-o " + path("link/inner") + inside);
  refuse({"-o", bundle, "--dump-ir", other + "/ir"}, "--dump-ir " + other + "/ir" + inside);
  refuse({"-o", bundle, "--dump-ir", other}, "--dump-ir " + other + ": is a bundle; give another");
  refuse({"-o", other, "--dump-ir", other + "/ir"}, "--dump-ir " + other + "/ir" + inside);
  expectRefusal(plan({"-o", other + "/plan.yaml"}), 1, {"-o " + other + "/plan.yaml" + inside});
  EXPECT_EQ(std::distance(fs::directory_iterator(other), {}), 1);
  EXPECT_FALSE(fs::exists(bundle));
}

// Of which a plan may have more ranks than the file has devices.
TEST_F(CompileCommand, ClustersOfAnySizeHaveTheRanksOfThePlan) {
  expectSuccess(plan({"--tp", "2", "--dp", "4", "--gpus", "8", "-o", path("plan.yaml")}));
  const std::string few = replaced(kTinyCluster, "num_devices: 8", "num_devices: 4");
  expectRefusal(compilePlan({"--cluster", write("few.yaml", few)}), 1,
                {"few.yaml: the plan has 8 ranks, the cluster 4 devices"});
  expectSuccess(compilePlan({"--cluster", write("any.yaml", few + "scalable: true\n")}));
}

TEST_F(CompileCommand, ProgramsMustFitTheClustersMemory) {
  expectSuccess(plan({"--pp", "2", "-o", path("plan.yaml")}));
  const std::string small = write("small.yaml", replaced(kTinyCluster, "64 MiB", "64 KiB"));
  expectRefusal(compilePlan({"--cluster", small}), 1,
                {"small.yaml: does not fit in memory: a rank of stage0 needs ",
                 "MiB, device core has 64.00 KiB", "too much"});
  EXPECT_FALSE(std::filesystem::exists(path("out.bundle")));
}

#if TRIREME_HAVE_MLIR
TEST_F(CompileCommand, SummaryCountsRanksRolesAndKernels) {
  expectSuccess(plan({"--tp", "2", "--pp", "2", "--dp", "2", "-o", path("plan.yaml")}));
  const Outcome outcome = compilePlan();
  expectSuccess(outcome);
  for (const char* part :
       {"for 8 ranks, with 2 roles", "segments", "generated kernels", "arena", "out.bundle"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  EXPECT_TRUE(std::filesystem::exists(path("out.bundle/manifest.json")));
}

TEST_F(CompileCommand, SummaryAsJson) {
  expectSuccess(plan({"--tp", "2", "--pp", "2", "--dp", "2", "-o", path("plan.yaml")}));
  const Outcome outcome = compilePlan({"--cluster", cluster, "--json"});
  expectSuccess(outcome);
  const nlohmann::json report = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(report.at("numRanks"), 8);
  EXPECT_THAT(report.at("plan").get<std::string>(), HasSubstr("tp 2, pp 2, dp 2"));
  ASSERT_EQ(report.at("roles").size(), 2u);
  int64_t layers = 0;
  for (const nlohmann::json& role : report.at("roles")) {
    EXPECT_EQ(role.at("numRanks"), 4);
    EXPECT_GT(role.at("arenaBytes"), 0);
    EXPECT_GT(role.at("numTasks"), 2);
    layers += role.at("numLayers").get<int64_t>();
  }
  EXPECT_EQ(layers, 4);
  EXPECT_GT(report.at("code").at("numGeneratedKernels"), 0);
  EXPECT_GT(report.at("simulatedSeconds"), 0);
  EXPECT_TRUE(std::filesystem::exists(report.at("bundle").get<std::string>() + "/manifest.json"));
}

// The plan alone takes 103 columns here.
TEST_F(CompileCommand, SummaryFitsAHundredColumns) {
  expectSuccess(plan({"--tp", "2", "--pp", "2", "--dp", "2", "--microbatch", "1", "--schedule",
                      "gpipe", "--recompute", "full", "--state-sharding", "optimizer",
                      "--sequence-parallel", "on", "-o", path("plan.yaml")}));
  const Outcome outcome = compilePlan();
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("sharded optimizer, sequence\n              parallel\n"));
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line) && !line.starts_with("bundle ");)
    EXPECT_LE(line.size(), 100u) << line;
}

TEST_F(CompileCommand, DumpHasTheModelAndEveryPhase) {
  expectSuccess(plan({"--tp", "2", "-o", path("plan.yaml")}));
  expectSuccess(compilePlan({"--dump-ir", path("deep/ir")}));
  for (const char* name : {"1_build.mlir", "2_fuse.mlir", "3_lower.mlir", "4_emit.ll"})
    EXPECT_FALSE(readAll(path(std::string("deep/ir/") + name)).empty()) << name;
  const std::string text = readAll(path("deep/ir/model.mlir"));
  EXPECT_THAT(text, HasSubstr("trireme.repeat 4 times @layer"));
  EXPECT_THAT(text, HasSubstr("\"layers.{}.attn.qkv.weight\""));
  const auto graph = dialect::parseModelGraph(text, "model.mlir");
  ASSERT_TRUE(graph.has_value()) << graph.error().message();
  EXPECT_EQ(graph->name, "tiny");
}

TEST_F(CompileCommand, UnwritableDumpIsAnError) {
  expectSuccess(plan({"-o", path("plan.yaml")}));
  expectRefusal(compilePlan({"--dump-ir", path("plan.yaml") + "/ir"}), 1, {"plan.yaml/ir"});
}

TEST_F(CompileCommand, SimulatedTraceIsWritten) {
  expectSuccess(plan({"--pp", "2", "-o", path("plan.yaml")}));
  const Outcome outcome = compilePlan({"--cluster", cluster, "--simulate", path("trace.json")});
  expectSuccess(outcome);
  EXPECT_FALSE(nlohmann::json::parse(readAll(path("trace.json"))).empty());
}

TEST_F(CompileCommand, OtherFoldersAreNotReplaced) {
  expectSuccess(plan({"-o", path("plan.yaml")}));
  std::filesystem::create_directory(path("out.bundle"));
  write("out.bundle/thesis.txt", "two years of work");
  expectRefusal(compilePlan(), 1, {"out.bundle"});
  EXPECT_EQ(readAll(path("out.bundle/thesis.txt")), "two years of work");
}

TEST_F(CompileCommand, UnwritableOutputIsAnError) {
  expectSuccess(plan({"-o", path("plan.yaml")}));
  expectRefusal(runTrireme({"compile", "--model", model, "--plan", path("plan.yaml"), "-o",
                            path("plan.yaml") + "/bundle"}),
                1, {"plan.yaml/bundle"});
}
#endif

}  // namespace
}  // namespace trireme::cli
