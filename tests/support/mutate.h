// Single random changes of a program: what a verifier must catch. Those that it lets pass are
// harmless, or holes: replaying them on the runtime tells.
#pragma once
#include <random>
#include <string>

#include "ir/program/program.h"

namespace trireme::testing {

enum class MutationKind {
  kDropInstruction,
  kDuplicateInstruction,
  kSwapInstructions,  // two neighbours, other than sends, receives and waits of different streams
  kMoveInstruction,   // from before a collective to behind it, or back
  kDropWait,
  kDropSignal,
  kChangeEvent,
  kChangeStream,
  kChangePeer,
  kChangeVirtualStage,
  kChangeGroup,
  kChangeSegment,
  kChangeOperand,  // another buffer of the same type
  kChangeRepeat,
  kChangeBucket,
  kGrowBuffer,
  kFreeEarly,  // another buffer gets the memory before the last use
  kMoveBuffer,
  kChangeStride,
  kShrinkArena,
  kDropTask,
  kDuplicateTask,
  kSwapTasks,
  kChangeMicrobatch,
  kChangeSlot,
  kChangeChunk,
  kChangeBody,
  kFlipDirection,
};
inline constexpr int kNumMutationKinds = static_cast<int>(MutationKind::kFlipDirection) + 1;

std::string_view mutationName(MutationKind kind);

struct Mutation {
  MutationKind kind = MutationKind::kDropInstruction;
  bool oneRank = false;  // the changed role belongs to one rank only
  std::string description;
};

// Changes `program` in one place, for all ranks of a role or for one rank. The program may come out
// as it was, if the place that was drawn leaves nothing to change: then the description is empty.
Mutation mutate(program::Program& program, std::mt19937_64& rng);
Mutation mutate(program::Program& program, MutationKind kind, bool oneRank, std::mt19937_64& rng);

}  // namespace trireme::testing
