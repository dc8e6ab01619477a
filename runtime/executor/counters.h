// What a rank did in a step, counted: for reports, and for tests that know the closed forms.
#pragma once
#include <array>
#include <cstdint>

#include "ir/program/program.h"

namespace trireme::runtime {

// Payload: a send's or receive's message, or the full tensor of a collective (what an all-reduce
// holds on each rank, what an all-gather produces, what a reduce-scatter consumes).
struct CommCount {
  int64_t calls = 0;
  int64_t bytes = 0;
  bool operator==(const CommCount&) const = default;
};

struct RankCounters {
  static constexpr int kNumDirections = static_cast<int>(program::Direction::kWeights) + 1;
  // [instruction kind][group kind][direction of the task]. kSend and kRecv count under group kPp.
  // A collective over a group of one moves nothing and is not counted.
  std::array<std::array<std::array<CommCount, kNumDirections>, program::kNumGroupKinds>,
             program::kNumInstructionKinds>
      communication{};
  // Largest number of (chunk, slot) pairs between their forward and their backward, of all of it,
  // at one time.
  int32_t peakLiveSlots = 0;
  int64_t instructions = 0;

  const CommCount& at(program::InstructionKind kind, program::GroupKind group,
                      program::Direction direction) const {
    return communication[static_cast<size_t>(kind)][static_cast<size_t>(group)]
                        [static_cast<size_t>(direction)];
  }
  CommCount& at(program::InstructionKind kind, program::GroupKind group,
                program::Direction direction) {
    return communication[static_cast<size_t>(kind)][static_cast<size_t>(group)]
                        [static_cast<size_t>(direction)];
  }
};

}  // namespace trireme::runtime
