// Piper's partitioning: layers -> stages, each with its own data degree, tensor degree and variant
// per layer, under memory.
//
// Tarnawski, Narayanan, Phanishayee, "Piper: Multidimensional Planner for DNN Parallelization",
// NeurIPS 2021. Their solver chooses variants by a heuristic; this one is exact.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/spec/profile.h"

namespace trireme::planner {

// Stages in the order of the data, each the difference of two down-sets (down_sets.h). A stage runs
// on d x t devices: d replicas of tensor degree t, every layer in one of its variants of that
// degree. d divides the microbatches N of a batch; the d of all stages add up to at most N, the
// d t to at most the devices. With B the bandwidth, and sums over the layers of the stage or over
// its edges from or to layers outside of it:
//
//   time   = ( sum time + sum 2 (transfer + sync) / B ) / d + sum 4 (d - 1) / d weights / N / B
//   memory = sum stored * ceil( (d of this and all later stages) / d ) + sum resident
//
// The slowest stage is made as fast as possible: in steady state it decides.
struct PiperProblem {
  spec::ProfileSpec profile;
  int64_t devices = 1;
  int64_t microbatches = 1;  // N
  BytesPerSecond bandwidth;
  std::optional<Bytes> memory;  // per device; absent: no limit

  // Whether the instance makes sense. kInvalidArgument: devices outside 1 .. 2^20, microbatches
  // outside 1 .. 2^30, bandwidth or memory not above 0; a memory limit and a variant whose memory
  // is not measured.
  Status check() const;

  // Whether `partition` is an answer and says the truth of itself: all rules above, and the times
  // and memories of its stages (to 1e-9 of them). kInvalidArgument, naming the first fault.
  Status verify(const struct PiperPartition& partition) const;
};

struct PiperStage {
  std::vector<int32_t> layers;    // each after those that it depends on
  std::vector<int32_t> variants;  // of each: an index into its variants
  int64_t dataDegree = 1, tensorDegree = 1;
  Seconds time;                 // per microbatch, of all replicas together
  std::optional<Bytes> memory;  // per device; absent if a variant's is not measured
};

struct PiperPartition {
  std::vector<PiperStage> stages;
  Seconds time;    // of the slowest stage
  Seconds bound;   // no partition is faster
  double gap = 0;  // (time - bound) / time: at most kPiperGap
  int64_t devicesUsed = 0;
  size_t numDownSets = 0;
  int64_t numRounds = 0;  // searches for a partition within a given time
};

inline constexpr double kPiperGap = 1e-12;

// "8x1-4x2": data degree x tensor degree of every stage.
std::string describe(const std::vector<PiperStage>& stages);

// Exact, to kPiperGap of the time. Searches for a partition whose stages all take at most T, for
// falling T: of every down-set that is still to be placed, the pairs (devices, d) of the stages
// behind it, of which neither is larger than another's in both. O(rounds x pairs of nested
// down-sets x tensor degrees x divisors of N x pairs), less what bounds cut off: a stage's least
// time and memory, and the devices that the rest needs at least to be done in T. Which variants a
// stage needs is a knapsack problem (variant_choice.h), solved when its bounds do not decide.
//
// kInvalidArgument: see check().
// kInfeasible: nothing fits; names the reason (no common tensor degree, devices or memory) and, for
//   memory, the least that would do and how much is missing.
// kResourceExhausted: too many down-sets or pairs of them, or a knapsack that is too hard.
// `progress` hears how much of the way from the first gap to the last is done.
Result<PiperPartition> partitionPiper(const PiperProblem& problem,
                                      const std::function<void(double)>& progress = {});

}  // namespace trireme::planner
