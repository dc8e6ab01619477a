// Generated kernels of real models as ptxas assembles them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <fstream>
#include <regex>
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

Assembled assemble(const std::string& ptx, const std::string& processor, const std::string& name) {
  const std::string folder = ::testing::TempDir() + "/gpu_code_" + name;
  std::ofstream(folder + ".ptx") << ptx;
  const std::string command =
      fmt::format("{0} -arch={1} -v -o {2}.cubin {2}.ptx 2>&1", TRIREME_PTXAS, processor, folder);
  Assembled result;
  FILE* pipe = popen(command.c_str(), "r");
  char line[4096];
  while (fgets(line, sizeof(line), pipe) != nullptr) result.log += line;
  result.exitCode = pclose(pipe);
  return result;
}

class GpuCode : public ::testing::TestWithParam<std::string> {};

// In every precision, with sequence parallelism and dropout as the model has it.
TEST_P(GpuCode, AssemblesWithoutSpills) {
  if (std::string(TRIREME_PTXAS).empty()) GTEST_SKIP() << "this machine has no ptxas";
  const auto model = spec::loadModel(TRIREME_SOURCE_DIR "/examples/models/" + GetParam() + ".yaml");
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
    for (const std::string processor : {"sm_80", "sm_90", "sm_90a"}) {
      const auto kernels = codegen::compileSegments(expansion->program, {.gpu = processor});
      ASSERT_TRUE(kernels.has_value()) << kernels.error().message();
      const Assembled result = assemble(kernels->ptx, processor, GetParam() + processor);
      ASSERT_EQ(result.exitCode, 0) << result.log;
      const std::regex spill("[1-9][0-9]* bytes spill"), used("Used ([0-9]+) registers");
      EXPECT_FALSE(std::regex_search(result.log, spill)) << result.log;
      int numKernels = 0, most = 0;
      for (std::sregex_iterator it(result.log.begin(), result.log.end(), used), end; it != end;
           ++it, ++numKernels)
        most = std::max(most, std::stoi((*it)[1]));
      EXPECT_GT(numKernels, 5);
      fmt::print("{} in {} for {}: {} kernels, at most {} registers\n", GetParam(),
                 spec::precisionName(precision), processor, numKernels, most);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GpuCode, ::testing::Values("gpt2-124m", "llama3-8b"),
                         [](const auto& info) {
                           return info.param.substr(0, info.param.find('-'));
                         });

}  // namespace
}  // namespace trireme::equivalence
#endif
