// How the command ends after a GPU was given up.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cli/command_line.h"
#include "ir/expand/expand.h"
#include "runtime/session.h"
#include "tests/support/emulated_gpu.h"
#include "tests/support/small_plan.h"
#include "tests/support/training.h"

namespace trireme::cli {
namespace {

using trireme::testing::EmulatedGpu;

// What a session says whose GPU stops at a launch.
std::string trainOnAGpuThatHangs() {
  EmulatedGpu emulated({.hangsAtLaunch = 5});
  const runtime::cuda::Apis apis = emulated.apis();
  const spec::ModelSpec model = small::gpt(1);
  const auto expansion = expand::expand(model, small::plan(model, small::training(1, 8)));
  if (!expansion.has_value()) return expansion.error().message();
  program::Bundle bundle;
  bundle.program = expansion->program;
  bundle.target.arch = "cuda:sm_90";
  auto session = runtime::Session::create(
      std::move(bundle), {.timeoutSeconds = 0.3, .virtualRanks = true, .cudaApis = &apis});
  if (!session.has_value()) return session.error().message();
  equivalence::SyntheticData data(model.vocabSize);
  const auto step = (*session)->step(data);
  return step.has_value() ? "no error" : step.error().message();
}

// Stands for CUDA's libraries, which wait for the GPU when a process exits.
void waitAtExit() {
  sleep(20);
  std::_Exit(99);
}

TEST(EndProcess, AfterAGpuThatHangsWaitsForNoLibrary) {
  EXPECT_EXIT(
      {
        std::atexit(waitAtExit);
        fmt::print(stderr, "error: {}\n", trainOnAGpuThatHangs());
        std::exit(endProcess(kExitFailure));
      },
      ::testing::ExitedWithCode(kExitFailure), "error: .*the device has not completed it in 0.3");
}

TEST(EndProcess, OtherwiseReturns) { EXPECT_EQ(endProcess(kExitUsage), kExitUsage); }

}  // namespace
}  // namespace trireme::cli
