// Microbatches in flight, by counting instead of generating the schedule.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/plan/plan.h"

namespace trireme::cost {

// Largest number of activations of each chunk alive at once on pipeline rank `rank`; equal to
// schedule::peakLive of the generated schedule. p stages, v chunks, m microbatches.
//
//   GPipe         m
//   1F1B          min(m, p - r)
//   zero bubble   H1 min(m, p), H2 min(m, 2 p - 1): until W is done
//   interleaved   forwards run in groups of p per chunk: of the first k, chunk c has
//                 n_c(k) = (k div pv) p + clamp(k mod pv - c p, 0, p);
//                 backwards run the chunks in reverse. After a warm-up of w forwards one forward
//                 and one backward alternate, so the peak is max_i n_c(w + i + 1) - n_{v-1-c}(i);
//                 both counts gain p every pv steps, so one period of i is enough, and in it the
//                 ends of runs. O(v).
//
// Requires a legal combination: v > 1 only if interleaved, and then m % p == 0.
std::vector<int64_t> peakSlots(plan::ScheduleKind kind, int64_t stages, int64_t virtualStages,
                               int64_t numMicrobatches, int64_t rank);

// Most that activations take at once, where one of chunk c takes weights[c], at least 0: the
// largest over the step of the sum over chunks of alive x weight. Chunks have their peaks at
// different times, so this may be less than the sum of peakSlots x weight. With equal weights,
// interleaved, 2 (p - r - 1) + (v - 1) p + 1 of them (Narayanan et al. 2021, warm-up and one), on
// the first rank 1 + (p - 1) / (p v) times what 1F1B keeps (Korthikanti et al. 2022). O(v).
//
// aliveAtPeak: how many of each chunk are alive then.
std::vector<int64_t> aliveAtPeak(plan::ScheduleKind kind, int64_t stages, int64_t virtualStages,
                                 int64_t numMicrobatches, int64_t rank,
                                 const std::vector<double>& weights);
double peakTogether(plan::ScheduleKind kind, int64_t stages, int64_t virtualStages,
                    int64_t numMicrobatches, int64_t rank, const std::vector<double>& weights);

// The same for a split backward, where of a microbatch `kept` stays until B and `forWeights` from
// then until W: with w forwards ahead and W d behind (pipeline.h), min(m, w + d) are alive at once,
// and of them wait for their W
//   as few as can, those beyond min(m, w), where they take less than the others
//   as many as can, min(m, d + 1), where they take more
double peakOfSplit(plan::ScheduleKind kind, int64_t stages, int64_t numMicrobatches, int64_t rank,
                   double kept, double forWeights);

// peakTogether() where the last `chunks` of a rank take 1 and the others nothing, in closed form:
//   of the first k forwards, F(k) = (k div pv) n p + clamp(k mod pv - (v - n) p, 0, n p) are of the
//   last n chunks; of the first k backwards, which come to these chunks first, B(k) =
//   (k div pv) n p + min(k mod pv, n p). In a period F(w + i + 1) - B(i) never rises while such
//   backwards run, i <= n p, and never falls afterwards: its most is at one of the ends. O(1).
int64_t peakOfLast(plan::ScheduleKind kind, int64_t stages, int64_t virtualStages,
                   int64_t numMicrobatches, int64_t rank, int64_t chunks);

}  // namespace trireme::cost
