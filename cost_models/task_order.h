// The tasks of a schedule in an order in which they can be played one after the other.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/schedule/schedule.h"

namespace trireme::cost {

// Of the last stages of a schedule, [first, p): what each of their tasks waits for, numbered so
// that it comes before the task. What comes to them through the stages before, if any, takes the
// passes of its chunk there, as if those had no other work. Nothing here depends on how long tasks
// take.
struct TaskOrder {
  // How an input comes: one that is there from the start or is made on the same rank, from another
  // rank over the hop behind one of the stages (Pipeline::hops), and from there through the stages
  // before, forwards or backwards through one chunk.
  static constexpr uint32_t kAtHand = 0, kFirstHop = 1;
  uint32_t hopBehind(size_t rank) const { return kFirstHop + static_cast<uint32_t>(rank); }
  uint32_t throughForward(size_t chunk) const {
    return hopBehind(numRanks) + static_cast<uint32_t>(chunk);
  }
  uint32_t throughBackward(size_t chunk) const { return throughForward(chunks + chunk); }
  size_t numWays() const { return throughForward(2 * chunks); }

  // A task: its pass, and the steps whose ends it waits for: that of its rank before it, its
  // input's, and that of what leaves its slot free.
  struct Step {
    uint32_t pass, before, input, slot;
    uint32_t way;  // of the input
    uint32_t microbatch;
  };
  // After so many steps: the last one of each rank, and how often passes are still to come.
  struct Look {
    size_t step = 0;
    std::vector<uint32_t> last;
    std::vector<double> left;  // by pass
  };

  // By rank, counted from the first one, direction, chunk.
  static constexpr size_t kDirections = 3;
  struct Pass {
    size_t rank;
    program::Direction direction;
    size_t chunk;
  };
  size_t numPasses() const { return numRanks * kDirections * chunks; }
  size_t passAt(size_t rank, program::Direction direction, size_t chunk) const {
    const size_t side = direction == program::Direction::kForward    ? 0
                        : direction == program::Direction::kBackward ? 1
                                                                     : 2;
    return (rank * kDirections + side) * chunks + chunk;
  }
  Pass passOf(uint32_t pass) const;

  // What there is from the start, at no time and never: steps without a task, behind all others.
  uint32_t start() const { return static_cast<uint32_t>(steps.size()); }
  uint32_t never() const { return start() + 1; }
  size_t numEnds() const { return steps.size() + 2; }

  size_t numRanks = 0, chunks = 0;
  bool splitsBackward = false;
  std::vector<Step> steps;
  // Of every step what came over the link of its input before that: a link hands on one message
  // after the other. With slots alone.
  std::vector<uint32_t> sentAfter;
  std::vector<Look> looks;  // every so often; the last one after all steps
};

// `intoSlots`: an activation is sent when the slot that it goes into is free.
TaskOrder orderTasks(const schedule::Schedule& schedule, size_t first, bool intoSlots);

}  // namespace trireme::cost
