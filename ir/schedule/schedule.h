// A schedule is a value: the total order of forward and backward tasks on every pipeline rank.
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
  std::vector<std::vector<Task>> order;  // [pipeline rank]
};

// F(0)..F(m-1), then B(0)..B(m-1). Huang et al., GPipe, 2019. FIFO backward: gradients accumulate
// in the order of a serial run.
Schedule gpipe(int32_t stages, int32_t numMicrobatches);
// Warm-up of min(p - 1 - r, m) forwards, then one forward, one backward. Narayanan et al., SC 2021.
Schedule oneForwardOneBackward(int32_t stages, int32_t numMicrobatches);
// Interleaved 1F1B, Narayanan et al., SC 2021. Requires numMicrobatches % stages == 0.
Schedule interleaved(int32_t stages, int32_t virtualStages, int32_t numMicrobatches);

Schedule scheduleFor(plan::ScheduleKind kind, int32_t stages, int32_t virtualStages,
                     int32_t numMicrobatches);
// The schedule that a verified plan asks for.
Schedule scheduleFor(const plan::Plan& plan);

// (S1) every (chunk, microbatch) has exactly one F and one B per rank, and no other task is there
// (S2) the dependencies have a legal global order (no rank waits for itself through others)
// (S3) B comes after F of the same (chunk, microbatch) on its rank
Status verifySchedule(const Schedule& schedule);

// Largest number of activations of `chunk` alive at once on `rank`: from F until its B is done.
int32_t peakLive(const Schedule& schedule, int32_t rank, int32_t chunk);
// The same over all chunks of the rank together.
int32_t peakLiveTotal(const Schedule& schedule, int32_t rank);

// The task's slot: the lowest free number of its chunk when its forward starts.
// slots[rank][i] belongs to order[rank][i].
std::vector<std::vector<int32_t>> assignSlots(const Schedule& schedule);

// "B1.0": direction, chunk, microbatch.
std::string printTask(const Task& task);
// "F0.0 F0.1 B1.0 ...": one line per rank, the golden form.
std::string printSchedule(const Schedule& schedule);

}  // namespace trireme::schedule
