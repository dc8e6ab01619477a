// Single random mistakes in real programs: the verifier catches them, or replaying the mutant gives
// bitwise the same result and it was harmless. What is neither is a hole.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "ir/expand/expand.h"
#include "ir/program/verify.h"
#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"
#include "tests/support/mutate.h"

namespace trireme::equivalence {
namespace {

using trireme::testing::kNumMutationKinds;
using trireme::testing::MutationKind;

constexpr int kMutantsPerKind = 40;  // and plan

// With an operand replaced by another that exists and has its type, a program is as safe as before.
// Which of the two was meant, only the graph knows, and the verifier does not know the graph.
bool needsTheGraph(MutationKind kind) { return kind == MutationKind::kChangeOperand; }

struct Counts {
  int changed = 0, caught = 0, harmless = 0, holes = 0;
};
using CountsByKind = std::array<Counts, kNumMutationKinds>;

Result<RunResult> replay(const spec::ModelSpec& model, const plan::Plan& plan,
                         const Mutation& mutate) {
  RunOptions options;
  options.steps = 2;
  options.compiled = false;
  options.timeoutSeconds = 5;
  return run(model, plan, options, mutate);
}

bool sameResult(const RunResult& expected, const RunResult& actual) {
  return expected.losses == actual.losses && expected.gradNorms == actual.gradNorms &&
         compareTensors(expected.firstGradients, actual.firstGradients, {}).empty() &&
         compareTensors(expected.parameters, actual.parameters, {}).empty();
}

std::vector<Choices> subjects() {
  Choices everything{2, 2, 2, 2, plan::ScheduleKind::kInterleaved};
  everything.sequenceParallel = everything.shardOptimizer = true;
  Choices replicated{2, 2, 2, 1, plan::ScheduleKind::k1F1B, plan::Recompute::kFull};
  replicated.scatterGather = true;
  const Choices tensorOnly{4, 1, 1, 1, plan::ScheduleKind::kGpipe, plan::Recompute::kSelective};
  Choices split{2, 2, 2, 1, plan::ScheduleKind::kZeroBubbleH1, plan::Recompute::kSelective};
  split.sequenceParallel = split.overlapReductions = true;
  return {everything, replicated, tensorOnly, split};
}

void tryMutants(const spec::ModelSpec& model, const Choices& choices, CountsByKind& counts) {
  const plan::Plan plan = planFor(choices, model, tinyTraining(spec::Precision::kFp32));
  const auto program = expand::expand(model, plan);
  ASSERT_TRUE(program.has_value()) << program.error().message();
  const auto expected = replay(model, plan, nullptr);
  ASSERT_TRUE(expected.has_value()) << expected.error().message();
  std::mt19937_64 rng(7);
  for (int k = 0; k < kNumMutationKinds; ++k)
    for (int i = 0; i < kMutantsPerKind; ++i) {
      program::Program mutant = program->program;
      const auto mutation =
          trireme::testing::mutate(mutant, static_cast<MutationKind>(k), i % 2 == 0, rng);
      if (mutation.description.empty()) continue;
      Counts& count = counts[static_cast<size_t>(k)];
      ++count.changed;
      if (!program::verifyProgram(mutant).ok()) {
        ++count.caught;
        continue;
      }
      const auto actual = replay(model, plan, [&](program::Program& p) { p = mutant; });
      if (actual && sameResult(*expected, *actual)) {
        ++count.harmless;
        continue;
      }
      ++count.holes;
      fmt::print("let pass: {}: {}{}\n", describe(choices), mutation.description,
                 actual ? "" : ": " + actual.error().message());
    }
}

TEST(Mutants, AreCaughtOrHarmless) {
  if (TRIREME_SANITIZED)
    GTEST_SKIP() << "a mutant that is let pass may break any rule, a sanitizer's too";
  CountsByKind counts{};
  for (const Choices& choices : subjects()) tryMutants(tinyGpt(4), choices, counts);
  tryMutants(tinyLlama(4), subjects().front(), counts);
  tryMutants(tinyLlama(4), {1, 2, 1, 1, plan::ScheduleKind::kZeroBubbleH2, plan::Recompute::kFull},
             counts);
  Counts all;
  fmt::print("{:<24} {:>8} {:>8} {:>8} {:>8}\n", "mutation", "mutants", "caught", "harmless",
             "let pass");
  for (int k = 0; k < kNumMutationKinds; ++k) {
    const auto kind = static_cast<MutationKind>(k);
    const Counts& c = counts[static_cast<size_t>(k)];
    fmt::print("{:<24} {:>8} {:>8} {:>8} {:>8}{}\n", trireme::testing::mutationName(kind),
               c.changed, c.caught, c.harmless, c.holes,
               needsTheGraph(kind) ? "  (only the graph can tell)" : "");
    EXPECT_GT(c.changed, 0) << trireme::testing::mutationName(kind);
    if (needsTheGraph(kind)) continue;
    EXPECT_EQ(c.holes, 0) << trireme::testing::mutationName(kind);
    all.changed += c.changed;
    all.caught += c.caught;
  }
  EXPECT_GT(all.caught, all.changed * 8 / 10);
}

}  // namespace
}  // namespace trireme::equivalence
