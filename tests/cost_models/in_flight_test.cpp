#include "cost_models/in_flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

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
      expectAsGenerated(schedule::zeroBubbleH1(p, m), ScheduleKind::kZeroBubbleH1);
      expectAsGenerated(schedule::zeroBubbleH2(p, m), ScheduleKind::kZeroBubbleH2);
    }
  for (int32_t p = 2; p <= 6; ++p)
    for (int32_t v = 2; v <= 5; ++v)
      for (int32_t groups = 1; groups <= 6; ++groups)
        expectAsGenerated(schedule::interleaved(p, v, p * groups), ScheduleKind::kInterleaved);
}

// The largest sum along the generated order of a rank.
double playedTogether(const schedule::Schedule& generated, int32_t rank,
                      const std::vector<double>& weights) {
  double held = 0, most = 0;
  for (const schedule::Task& task : generated.order[static_cast<size_t>(rank)]) {
    const double weight = weights[static_cast<size_t>(task.chunk)];
    held += task.direction == program::Direction::kForward ? weight : -weight;
    most = std::max(most, held);
  }
  return most;
}

TEST(PeakTogether, AgreesWithTheGeneratedSchedules) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> layers(0, 3);
  for (int32_t p = 2; p <= 6; ++p)
    for (int32_t v = 2; v <= 5; ++v)
      for (int32_t groups = 1; groups <= 6; ++groups) {
        const schedule::Schedule generated = schedule::interleaved(p, v, p * groups);
        std::vector<double> weights;
        for (int32_t c = 0; c < v; ++c) weights.push_back(layers(random));
        for (int32_t rank = 0; rank < p; ++rank)
          EXPECT_EQ(peakTogether(ScheduleKind::kInterleaved, p, v, p * groups, rank, weights),
                    playedTogether(generated, rank, weights))
              << "p " << p << " v " << v << " m " << p * groups << " rank " << rank;
      }
}

// 2 x 3 + 2 x 4 = 14 forwards warm up, and one: 15, where the chunks' own peaks add up to more.
// 1F1B keeps 4 x 3 layers: 15 / 12 = 1 + 3 / 12.
TEST(PeakTogether, IsLessThanThePeaksOfTheChunks) {
  EXPECT_EQ(peakTogether(ScheduleKind::kInterleaved, 4, 3, 32, 0, {1, 1, 1}), 15);
  double sum = 0;
  for (const int64_t slots : peakSlots(ScheduleKind::kInterleaved, 4, 3, 32, 0))
    sum += static_cast<double>(slots);
  EXPECT_GT(sum, 15);
  EXPECT_EQ(peakTogether(ScheduleKind::k1F1B, 4, 1, 32, 1, {2}), 6);
  EXPECT_EQ(peakTogether(ScheduleKind::kGpipe, 4, 1, 32, 1, {2}), 64);
  EXPECT_EQ(peakTogether(ScheduleKind::kInterleaved, 4, 3, 4, 2, {1, 2, 4}), 28) << "all at once";
}

// What is alive when most is: by other weights it is no more than what is alive then.
TEST(AliveAtPeak, IsOfAMomentOfTheStep) {
  std::mt19937 random(4);
  std::uniform_real_distribution<double> layers(0, 3);
  for (int64_t p = 2; p <= 6; ++p)
    for (int64_t v = 2; v <= 5; ++v)
      for (int64_t groups = 1; groups <= 4; ++groups)
        for (int64_t rank = 0; rank < p; ++rank) {
          std::vector<double> here, there;
          for (int64_t c = 0; c < v; ++c) {
            here.push_back(layers(random));
            there.push_back(layers(random));
          }
          const auto alive = aliveAtPeak(ScheduleKind::kInterleaved, p, v, p * groups, rank, here);
          ASSERT_EQ(alive.size(), here.size());
          double sum = 0;
          for (size_t c = 0; c < there.size(); ++c) sum += static_cast<double>(alive[c]) * there[c];
          EXPECT_LE(sum,
                    peakTogether(ScheduleKind::kInterleaved, p, v, p * groups, rank, there) + 1e-9)
              << "p " << p << " v " << v << " m " << p * groups << " rank " << rank;
        }
}

TEST(PeakOfLast, IsThatOfWeightsOfNoneAndOne) {
  const auto expectAsWeights = [](ScheduleKind kind, int64_t p, int64_t v, int64_t m) {
    for (int64_t rank = 0; rank < p; ++rank)
      for (int64_t n = 0; n <= v; ++n) {
        std::vector<double> weights(static_cast<size_t>(v), 0);
        std::fill(weights.end() - n, weights.end(), 1);
        EXPECT_EQ(static_cast<double>(peakOfLast(kind, p, v, m, rank, n)),
                  peakTogether(kind, p, v, m, rank, weights))
            << plan::scheduleName(kind) << " p " << p << " v " << v << " m " << m << " rank "
            << rank << " last " << n;
      }
  };
  for (int64_t p = 1; p <= 9; ++p)
    for (int64_t m = 1; m <= 13; ++m) {
      expectAsWeights(ScheduleKind::kGpipe, p, 1, m);
      expectAsWeights(ScheduleKind::k1F1B, p, 1, m);
    }
  for (int64_t p = 2; p <= 9; ++p)
    for (int64_t v = 2; v <= 9; ++v)
      for (int64_t groups = 1; groups <= 6; ++groups)
        expectAsWeights(ScheduleKind::kInterleaved, p, v, p * groups);
  expectAsWeights(ScheduleKind::kInterleaved, 64, 31, 192);
}

}  // namespace
}  // namespace trireme::cost
