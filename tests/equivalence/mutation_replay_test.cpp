// Single random mistakes in a real program: the verifier catches them, or replaying the mutant gives the
// same result and it was harmless. What is neither is a hole.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/expand/expand.h"
#include "ir/program/verify.h"
#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"
#include "tests/support/mutate.h"

namespace trireme::equivalence {
namespace {

using trireme::testing::MutationKind;

struct Counts {
  int changed = 0, caught = 0, harmless = 0, holes = 0;
};

Result<RunResult> replay(const spec::ModelSpec& model, const plan::Plan& plan,
                         const Mutation& mutate) {
  RunOptions options;
  options.steps = 2;
  options.compiled = false;
  options.timeoutSeconds = 5;
  return run(model, plan, options, mutate);
}

bool sameResult(const RunResult& expected, const RunResult& actual) {
  return expected.losses == actual.losses &&
         compareTensors(expected.parameters, actual.parameters, {}).empty();
}

TEST(Mutants, AreCaughtOrHarmless) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a mutant that is let pass may break any rule, a sanitizer's too";
#endif
  const spec::ModelSpec model = tinyGpt(4);
  Choices choices{2, 2, 2, 2, plan::ScheduleKind::kInterleaved};
  choices.sequenceParallel = choices.shardOptimizer = true;
  const plan::Plan plan = planFor(choices, model, tinyTraining(spec::Precision::kFp32));
  const auto program = expand::expand(model, plan);
  ASSERT_TRUE(program.has_value());
  const auto expected = replay(model, plan, nullptr);
  ASSERT_TRUE(expected.has_value()) << expected.error().message();

  std::mt19937_64 rng(7);
  Counts all;
  for (int k = 0; k < trireme::testing::kNumMutationKinds; ++k)
    for (int i = 0; i < 12; ++i) {
      program::Program mutant = program->program;
      const auto kind = static_cast<MutationKind>(k);
      const auto mutation = trireme::testing::mutate(mutant, kind, i % 2 == 0, rng);
      if (mutation.description.empty()) continue;
      ++all.changed;
      if (!program::verifyProgram(mutant).ok()) {
        ++all.caught;
        continue;
      }
      const auto actual = replay(model, plan, [&](program::Program& p) { p = mutant; });
      if (actual && sameResult(*expected, *actual)) {
        ++all.harmless;
        continue;
      }
      ++all.holes;
      fmt::print("let pass: {}{}\n", mutation.description,
                 actual ? "" : ": " + actual.error().message());
    }
  fmt::print("{} mutants: {} caught, {} harmless on replay, {} let pass\n", all.changed, all.caught,
             all.harmless, all.holes);
  // Known holes: another operand of the same type, which no rule of safety can see; and a segment moved
  // across a collective of its layer, which then reads what the layer before left in scratch.
  EXPECT_GT(all.caught, all.changed * 8 / 10);
  EXPECT_GE(all.caught + all.harmless, all.changed * 95 / 100);
}

}  // namespace
}  // namespace trireme::equivalence
