// A schedule is a value: the total order of forward and backward tasks on every pipeline rank. A
// backward is one task, or two: B makes the gradients of activations, which the rank before waits
// for, and W those of weights, for which nobody waits.
// Communication is not part of it; ir/expand inserts it. Nothing downstream re-derives an order.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/plan/plan.h"
#include "ir/program/program.h"

namespace trireme::schedule {

struct Task {
  program::Direction direction = program::Direction::kForward;
  int32_t chunk = 0;  // virtual stage = chunk * stages + rank
  int32_t microbatch = 0;
  bool operator==(const Task&) const = default;
};

struct Schedule {
  int32_t stages = 1;
  int32_t virtualStages = 1;
  int32_t numMicrobatches = 1;
  bool splitsBackward = false;           // into B and W
  std::vector<std::vector<Task>> order;  // [pipeline rank]
};

// F(0)..F(m-1), then B(0)..B(m-1). Huang et al., GPipe, 2019. FIFO backward: gradients accumulate
// in the order of a serial run.
Schedule gpipe(int32_t stages, int32_t numMicrobatches);
// Warm-up of min(p - 1 - r, m) forwards, then one forward, one backward. Narayanan et al., SC 2021.
Schedule oneForwardOneBackward(int32_t stages, int32_t numMicrobatches);
// Interleaved 1F1B, Narayanan et al., SC 2021. Requires numMicrobatches % stages == 0.
Schedule interleaved(int32_t stages, int32_t virtualStages, int32_t numMicrobatches);

// Zero bubble, Qi et al., ICLR 2024, by hand (their figures 2 and 3): 1F1B with the backward split,
// W d microbatches behind B, and w forwards before the first B, so that at most w + d are in
// flight:
//   H1   w = p - r         d = r     as many as 1F1B has on the first rank
//   H2   w = 2 (p - r) - 1 d = 2 r   about twice as many
struct Lead {
  int64_t forwards = 1, backwards = 0;  // w, d
};
Lead leadOf(plan::ScheduleKind kind, int64_t stages, int64_t rank);
Schedule zeroBubbleH1(int32_t stages, int32_t numMicrobatches);
Schedule zeroBubbleH2(int32_t stages, int32_t numMicrobatches);

Schedule scheduleFor(plan::ScheduleKind kind, int32_t stages, int32_t virtualStages,
                     int32_t numMicrobatches);
// The schedule that a verified plan asks for.
Schedule scheduleFor(const plan::Plan& plan);

// (S1) every (chunk, microbatch) has exactly one F and one B per rank, and one W if the backward is
//      split, and no other task is there
// (S2) the dependencies have a legal global order (no rank waits for itself through others)
// (S3) B comes after F of the same (chunk, microbatch) on its rank, and W after B
Status verifySchedule(const Schedule& schedule);

// Largest number of activations of `chunk` alive at once on `rank`: from F until its B is
// done, or its W if there is one.
int32_t peakLive(const Schedule& schedule, int32_t rank, int32_t chunk);
// The same over all chunks of the rank together.
int32_t peakLiveTotal(const Schedule& schedule, int32_t rank);

// The task's slot: the lowest free number of its chunk when its forward starts.
// slots[rank][i] belongs to order[rank][i].
std::vector<std::vector<int32_t>> assignSlots(const Schedule& schedule);

// "B1.0": direction (F, B, W), chunk, microbatch.
std::string printTask(const Task& task);
// "F0.0 F0.1 B1.0 ...": one line per rank, the golden form.
std::string printSchedule(const Schedule& schedule);

}  // namespace trireme::schedule
