// How many single mistakes the verifier finds. What it lets pass is printed by kind: replaying such
// programs on the runtime tells the harmless (another legal order, a wait that nobody needs) from
// the holes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "ir/program/text.h"
#include "ir/program/verify.h"
#include "tests/support/mutate.h"
#include "tests/support/program_builder.h"

namespace trireme::program {
namespace {

using trireme::testing::kNumMutationKinds;
using trireme::testing::Mutation;
using trireme::testing::MutationKind;
using trireme::testing::mutationName;

struct Count {
  int changed = 0, caught = 0;
};
using Counts = std::array<Count, kNumMutationKinds>;

Counts tryMutations(const Program& program, int perKind, uint64_t seed) {
  Counts counts;
  std::mt19937_64 rng(seed);
  for (int k = 0; k < kNumMutationKinds; ++k)
    for (int i = 0; i < perKind; ++i) {
      Program mutant = program;
      const Mutation mutation =
          trireme::testing::mutate(mutant, static_cast<MutationKind>(k), i % 2 == 0, rng);
      if (mutation.description.empty()) continue;
      ++counts[static_cast<size_t>(k)].changed;
      counts[static_cast<size_t>(k)].caught += !verifyProgram(mutant).ok();
    }
  return counts;
}

// Interleaved, so that slots, chunks and tags can all be mixed up, with every group in use.
Program subject() { return trireme::testing::buildPipeline({2, 2, 2, 2, 2, 6, true}); }

TEST(Mutation, IsFound) {
  ASSERT_TRUE(verifyProgram(subject()).ok());
  const Counts counts = tryMutations(subject(), 60, 1);
  Count all;
  for (int k = 0; k < kNumMutationKinds; ++k) {
    const Count& c = counts[static_cast<size_t>(k)];
    fmt::print("{:<24} {:>4} mutants, {:>4} caught\n", mutationName(static_cast<MutationKind>(k)),
               c.changed, c.caught);
    all.changed += c.changed;
    all.caught += c.caught;
  }
  fmt::print("{:<24} {:>4} mutants, {:>4} caught\n", "all", all.changed, all.caught);
  EXPECT_GT(all.caught, all.changed * 8 / 10);
}

// These leave no harmless variant: every single one must be found.
TEST(Mutation, OfTagsTasksAndSizesIsAlwaysFound) {
  const Counts counts = tryMutations(subject(), 100, 2);
  for (MutationKind kind :
       {MutationKind::kChangePeer, MutationKind::kChangeVirtualStage, MutationKind::kChangeGroup,
        MutationKind::kChangeSegment, MutationKind::kGrowBuffer, MutationKind::kShrinkArena,
        MutationKind::kDropTask, MutationKind::kDuplicateTask, MutationKind::kChangeMicrobatch,
        MutationKind::kChangeSlot, MutationKind::kChangeChunk, MutationKind::kChangeBody,
        MutationKind::kFlipDirection}) {
    const Count& c = counts[static_cast<size_t>(kind)];
    EXPECT_GT(c.changed, 0) << mutationName(kind);
    EXPECT_EQ(c.caught, c.changed) << mutationName(kind);
  }
}

}  // namespace
}  // namespace trireme::program
