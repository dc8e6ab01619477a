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

bool sameScaling(const RunResult& expected, const RunResult& actual) {
  return std::equal(expected.scaled.begin(), expected.scaled.end(), actual.scaled.begin(),
                    actual.scaled.end(), [](const auto& a, const auto& b) {
                      return a.lossScale == b.lossScale && a.isSkipped == b.isSkipped;
                    });
}

bool sameResult(const RunResult& expected, const RunResult& actual) {
  return expected.losses == actual.losses && expected.gradNorms == actual.gradNorms &&
         sameScaling(expected, actual) &&
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

// A verified plan and what running it gives.
struct Subject {
  spec::ModelSpec model;
  plan::Plan plan;
  std::string name;
  program::Program program;
  RunResult expected;
};

Subject subjectOf(const spec::ModelSpec& model, const Choices& choices,
                  const spec::TrainingSpec& training) {
  Subject subject{model, planFor(choices, model, training), describe(choices), {}, {}};
  auto expansion = expand::expand(model, subject.plan);
  auto expected = replay(model, subject.plan, nullptr);
  EXPECT_TRUE(expansion.has_value() && expected.has_value()) << subject.name;
  if (expansion) subject.program = std::move(expansion->program);
  if (expected) subject.expected = std::move(*expected);
  return subject;
}

void judge(const Subject& subject, const program::Program& mutant, const std::string& description,
           Counts& count) {
  ++count.changed;
  if (!program::verifyProgram(mutant).ok()) {
    ++count.caught;
    return;
  }
  const auto actual = replay(subject.model, subject.plan, [&](program::Program& p) { p = mutant; });
  if (actual && sameResult(subject.expected, *actual)) {
    ++count.harmless;
    return;
  }
  ++count.holes;
  fmt::print("let pass: {}: {}{}\n", subject.name, description,
             actual ? "" : ": " + actual.error().message());
}

void tryMutants(const spec::ModelSpec& model, const Choices& choices, CountsByKind& counts) {
  const Subject subject = subjectOf(model, choices, tinyTraining(spec::Precision::kFp32));
  std::mt19937_64 rng(7);
  for (int k = 0; k < kNumMutationKinds; ++k)
    for (int i = 0; i < kMutantsPerKind; ++i) {
      program::Program mutant = subject.program;
      const auto mutation =
          trireme::testing::mutate(mutant, static_cast<MutationKind>(k), i % 2 == 0, rng);
      if (mutation.description.empty()) continue;
      judge(subject, mutant, mutation.description, counts[static_cast<size_t>(k)]);
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

// In fp16 the scale of the loss decides whether a step is taken. Two steps of which the second uses
// another scale than the first, for its window is one step. One instruction in hundreds: of the
// mutants that are drawn, those are judged that change it or what stands beside it.
TEST(Mutants, OfTheLossScaleAreCaughtOrHarmless) {
  if (TRIREME_SANITIZED)
    GTEST_SKIP() << "a mutant that is let pass may break any rule, a sanitizer's too";
  spec::TrainingSpec training = tinyTraining(spec::Precision::kFp16);
  training.lossScaleWindow = 1;
  Choices choices{.tp = 2, .dp = 2, .microbatchSize = 2};
  choices.shardOptimizer = true;
  const Subject subject = subjectOf(tinyGpt(2), choices, training);
  ASSERT_EQ(subject.expected.scaled.size(), 2u);
  ASSERT_NE(subject.expected.scaled[0].lossScale, subject.expected.scaled[1].lossScale);
  const std::string name(program::instructionName(program::InstructionKind::kUpdateLossScale));
  constexpr int kDrawn = 4000, kJudged = 8;  // of each kind
  std::mt19937_64 rng(7);
  for (const MutationKind kind :
       {MutationKind::kDropInstruction, MutationKind::kDuplicateInstruction,
        MutationKind::kSwapInstructions, MutationKind::kChangeStream}) {
    Counts counts;
    for (int i = 0; i < kDrawn && counts.changed < kJudged; ++i) {
      program::Program mutant = subject.program;
      const auto mutation = trireme::testing::mutate(mutant, kind, i % 2 == 0, rng);
      if (mutation.description.find(name) == std::string::npos) continue;
      judge(subject, mutant, mutation.description, counts);
    }
    fmt::print("{:<24} {:>8} {:>8} {:>8} {:>8}\n", trireme::testing::mutationName(kind),
               counts.changed, counts.caught, counts.harmless, counts.holes);
    EXPECT_GT(counts.changed, 0) << trireme::testing::mutationName(kind);
    EXPECT_EQ(counts.holes, 0) << trireme::testing::mutationName(kind);
  }
}

}  // namespace
}  // namespace trireme::equivalence
