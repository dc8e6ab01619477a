// The memory of a process that trains is that of its arenas, under every plan.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <memory>

#include "ir/program/workspace.h"
#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"

#if !TRIREME_SANITIZED  // a sanitizer keeps memory of its own
namespace trireme::equivalence {
namespace {

constexpr double kMiB = 1 << 20;

// Bytes.
struct Memory {
  double arenas = 0;  // that the ranks touch: not the workspace of threads that they do not have
  double peak = 0;    // of the process
  double constant() const { return peak - arenas; }
};

double touchedArenas(const program::Program& program) {
  int64_t bytes = 0;
  for (const program::RankInfo& rank : program.ranks) {
    const program::Role& role = program.roles[static_cast<size_t>(rank.role)];
    const int64_t workspace = role.buffers[static_cast<size_t>(role.workspace)].bytes();
    bytes += role.arenaBytes - program::idleWorkspaceBytes(workspace, 1);
  }
  return static_cast<double>(bytes);
}

// Trains in a process of its own, which has what this one has, and copies what it writes to. It
// keeps, if `leaks`, the arenas of a second session. Its peak, or 0 if it failed.
double peakOfTraining(const program::Bundle& bundle, const spec::ModelSpec& model, bool leaks) {
  const pid_t child = fork();
  if (child == 0) {
    // Large pages would round each arena to 2 MiB, or not: that is the system's to decide.
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    SyntheticData data(model.vocabSize);
    std::unique_ptr<runtime::Session> sessions[2];
    bool trained = true;
    for (int i = 0; i < (leaks ? 2 : 1); ++i) {
      auto session = runtime::Session::create(bundle, {});
      trained = trained && session.has_value() && (*session)->step(data).has_value();
      if (trained) sessions[i] = *std::move(session);
    }
    _exit(trained ? 0 : 1);
  }
  int status = -1;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) != child || status != 0) return 0;
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

struct Trainee {
  spec::ModelSpec model;
  program::Bundle bundle;
};

// Compiled: with kernels as the compiler makes them, else with those of the runtime.
Trainee trainee(const Choices& choices, bool large, bool compiled) {
  Trainee result{tinyGpt(layersFor(choices)), {}};
  spec::ModelSpec& model = result.model;
  spec::TrainingSpec training = tinyTraining(spec::Precision::kFp32);
  RunOptions options;
  options.compiled = compiled && options.compiled;
  if (large) {
    model.hiddenSize = 128;
    model.headSize = 32;
    model.ffnSize = 512;
    model.maxSequence = 8192;  // positions, which are parameters, and cost no time
    training.sequenceLength = 64;
  }
  auto bundle = makeBundle(model, planFor(choices, model, training), options);
  EXPECT_TRUE(bundle.has_value()) << bundle.error().message();
  result.bundle = *std::move(bundle);
  return result;
}

Memory memoryOf(const Trainee& trainee, bool leaks = false) {
  return {touchedArenas(trainee.bundle.program),
          peakOfTraining(trainee.bundle, trainee.model, leaks)};
}

// Besides its arenas a process holds code, programs and threads. That constant is measured with a
// tiny model under the same plan. Compiled kernels, which take most of the time here, are every
// fourth plan's. The workspace has room for the tiles of every CPU: where vectors are narrow,
// kernels touch less of it, up to 4 % of all with vectors of 256 bits.
TEST(ProcessMemory, IsThatOfTheArenasUnderEveryPlan) {
  double worst = 0;
  size_t plans = 0;
  for (const Choices& choices : coveringChoices()) {
    const bool compiled = plans++ % 4 == 0;
    const Trainee both[] = {trainee(choices, false, false),
                            trainee(choices, true, compiled)};  // before any is run
    const Memory tiny = memoryOf(both[0]), large = memoryOf(both[1]);
    const double error = (large.peak - tiny.constant()) / large.arenas - 1;
    EXPECT_GT(large.arenas, 40 * kMiB) << describe(choices);
    EXPECT_LT(tiny.constant(), 64 * kMiB) << describe(choices);
    EXPECT_LT(std::abs(error), 0.05) << describe(choices);
    if (std::abs(error) > std::abs(worst)) worst = error;
  }
  std::printf("at most %+.2f %% off the arenas\n", 100 * worst);
}

// The negative control.
TEST(ProcessMemory, ArenasThatAreKeptAreSeen) {
  const Trainee large = trainee({.tp = 2, .pp = 2}, true, true);
  const Memory once = memoryOf(large), twice = memoryOf(large, true);
  EXPECT_GT(twice.peak, once.peak + 0.9 * once.arenas);
}

}  // namespace
}  // namespace trireme::equivalence
#endif
