#include "cost_models/in_flight.h"

#include <gtest/gtest.h>

#include "ir/schedule/schedule.h"

namespace trireme::cost {
namespace {

using plan::ScheduleKind;

void expectAsGenerated(const schedule::Schedule& generated, ScheduleKind kind) {
  for (int32_t rank = 0; rank < generated.stages; ++rank) {
    const auto slots =
        peakSlots(kind, generated.stages, generated.virtualStages, generated.numMicrobatches, rank);
    for (int32_t chunk = 0; chunk < generated.virtualStages; ++chunk)
      EXPECT_EQ(slots[static_cast<size_t>(chunk)], schedule::peakLive(generated, rank, chunk))
          << plan::scheduleName(kind) << " p " << generated.stages << " v "
          << generated.virtualStages << " m " << generated.numMicrobatches << " rank " << rank
          << " chunk " << chunk;
  }
}

TEST(PeakSlots, AgreesWithTheGeneratedSchedules) {
  for (int32_t p = 1; p <= 6; ++p)
    for (int32_t m = 1; m <= 13; ++m) {
      expectAsGenerated(schedule::gpipe(p, m), ScheduleKind::kGpipe);
      expectAsGenerated(schedule::oneForwardOneBackward(p, m), ScheduleKind::k1F1B);
    }
  for (int32_t p = 2; p <= 6; ++p)
    for (int32_t v = 2; v <= 5; ++v)
      for (int32_t groups = 1; groups <= 6; ++groups)
        expectAsGenerated(schedule::interleaved(p, v, p * groups), ScheduleKind::kInterleaved);
}

}  // namespace
}  // namespace trireme::cost
