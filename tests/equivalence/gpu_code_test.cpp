// Generated kernels of real models as ptxas assembles them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "ir/expand/expand.h"
#include "ir/spec/load.h"
#include "tests/equivalence/harness.h"
#if TRIREME_HAVE_MLIR
#include "codegen/codegen.h"

namespace trireme::equivalence {
namespace {

struct Assembled {
  int exitCode = -1;
  std::string log;
};

// What ptxas says is kept for the list of tests/cmake/gpu_registers.cmake.
Assembled assemble(const std::string& ptx, const std::string& processor, const std::string& name) {
  namespace fs = std::filesystem;
  const std::string file = ::testing::TempDir() + "/gpu_code_" + name + "_" + processor;
  std::ofstream(file + ".ptx") << ptx;
  const std::string command =
      fmt::format("{0} -arch={1} -v --warning-as-error -o {2}.cubin {2}.ptx 2>&1", TRIREME_PTXAS,
                  processor, file);
  Assembled result;
  FILE* pipe = popen(command.c_str(), "r");
  char line[4096];
  while (fgets(line, sizeof(line), pipe) != nullptr) result.log += line;
  result.exitCode = pclose(pipe);
  for (const char* made : {".ptx", ".cubin"}) fs::remove(file + made);
  const fs::path logs = fs::path(TRIREME_BINARY).parent_path() / "gpu_registers/models";
  fs::create_directories(logs);
  std::ofstream(logs / (name + "." + processor + ".log")) << result.log;
  return result;
}

void expectNoSpills(const codegen::CompiledKernels& kernels, const program::GpuTarget& target,
                    const std::string& what) {
  const std::string processor(target.name);
  const Assembled result = assemble(kernels.ptx, processor, what);
  ASSERT_EQ(result.exitCode, 0) << result.log;
  const std::regex spill("[1-9][0-9]* bytes spill"), used("Used ([0-9]+) registers");
  EXPECT_FALSE(std::regex_search(result.log, spill)) << result.log;
  int numKernels = 0, most = 0;
  for (std::sregex_iterator it(result.log.begin(), result.log.end(), used), end; it != end;
       ++it, ++numKernels)
    most = std::max(most, std::stoi((*it)[1]));
  EXPECT_GT(numKernels, 5);
  fmt::print("{} for {}: {} kernels, at most {} registers\n", what, processor, numKernels, most);
}

// In every precision, with sequence parallelism and dropout as the model has it: the PTX of the
// oldest of the targets for each of them.
void expectModelAssembles(const std::string& name) {
  const auto model = spec::loadModel(TRIREME_SOURCE_DIR "/examples/models/" + name + ".yaml");
  ASSERT_TRUE(model.has_value()) << model.error().message();
  for (const spec::Precision precision :
       {spec::Precision::kBf16, spec::Precision::kFp16, spec::Precision::kFp32}) {
    spec::TrainingSpec training = tinyTraining(precision);
    training.sequenceLength = 1024;
    plan::Plan plan = serialPlan(*model, training);
    plan.tp = 2;
    plan.sequenceParallel = true;
    const auto expansion = expand::expand(*model, plan);
    ASSERT_TRUE(expansion.has_value()) << expansion.error().message();
    std::set<std::string> ptx;  // without the line that names the target
    for (const std::string arch : {"cuda:sm_80,sm_90,sm_90a", "cuda:sm_90a"}) {
      const std::vector<program::GpuTarget> targets = *program::parseGpuTargets(arch);
      const auto kernels = codegen::compileSegments(expansion->program, {.gpus = targets});
      ASSERT_TRUE(kernels.has_value()) << kernels.error().message();
      EXPECT_EQ(kernels->target.arch, arch);
      EXPECT_THAT(kernels->ptx,
                  ::testing::HasSubstr(fmt::format(".target {}\n", targets.front().name)));
      const std::string code = std::regex_replace(kernels->ptx, std::regex("\\.target [^\n]*"), "");
      ASSERT_EQ(kernels->cubins.size(), targets.size());
      for (size_t i = 0; i < targets.size(); ++i) {
        EXPECT_EQ(kernels->cubins[i].target, targets[i].name);
        if (!ptx.contains(code))
          expectNoSpills(*kernels, targets[i],
                         fmt::format("{}-{}", name, spec::precisionName(precision)));
      }
      ptx.insert(code);
      EXPECT_NE(kernels->cubins.front().bytes, targets.size() > 1 ? kernels->cubins[1].bytes : "");
    }
    EXPECT_EQ(ptx.size(), 1u) << "an older target gives newer GPUs other code";
  }
}

TEST(GpuCode, OfGpt2AssemblesWithoutSpills) {
  if (std::string(TRIREME_PTXAS).empty()) GTEST_SKIP() << "this machine has no ptxas";
  expectModelAssembles("gpt2-124m");
}

TEST(GpuCode, OfLlamaAssemblesWithoutSpills) {
  if (std::string(TRIREME_PTXAS).empty()) GTEST_SKIP() << "this machine has no ptxas";
  expectModelAssembles("llama3-8b");
}

}  // namespace
}  // namespace trireme::equivalence
#endif
