// Piper's problem with a given time: is there a partition whose stages all take at most so long?
// Internal to planner/partition.
#pragma once
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "planner/partition/piper_costs.h"

namespace trireme::planner {

// No limit; the time of what has no placement.
inline constexpr double kForever = std::numeric_limits<double>::infinity();

struct PlacedStage {
  size_t shape = 0;  // index into PiperCosts::shapes()
  int64_t d = 0;
  int64_t inFlight = 0;  // microbatches
};

class PiperPlacement {
 public:
  // With `capacity` bytes per device, whatever the problem says.
  PiperPlacement(const PiperProblem& problem, const DownSets& sets, const PiperCosts& costs,
                 double capacity);

  // Stages of at most `most` seconds each, in the order of the data; empty: there are none. May be
  // called again and again; it remembers what stages cost. kResourceExhausted: a knapsack is too
  // hard.
  //
  // From the end of the model to its beginning. Of every down-set it keeps the labels that no other
  // label beats in both numbers. That is enough: whatever can be placed before stages with many
  // devices and replicas behind it can be placed before fewer, with less memory.
  Result<std::vector<PlacedStage>> within(double most);

  // Devices that within() used last.
  int64_t devicesUsed() const { return devicesUsed_; }

 private:
  // Stages behind a down-set, as far as those before it care, and how they came about.
  struct Label {
    int64_t devices = 0;
    int64_t sumD = 0;
    size_t shape = 0;   // of the first of them
    int64_t d = 0;      // its replicas; 0: there are no stages
    size_t before = 0;  // index of the label that it was put before
  };
  struct Bounds {  // of time x d
    double lower = 0, upper = 0;
  };

  static void admit(std::vector<Label>& labels, const Label& label);
  Status extend(size_t set, size_t shapeIndex, double most);
  Result<bool> isWithin(size_t shapeIndex, size_t divisor, int64_t inFlight, double most);
  std::vector<PlacedStage> path();

  const PiperProblem& problem_;
  const DownSets& sets_;
  const PiperCosts& costs_;
  const double capacity_;
  std::vector<int64_t> divisors_;           // of the microbatches
  std::vector<std::vector<Label>> labels_;  // of every down-set
  std::unordered_map<uint64_t, Bounds> known_;
  int64_t devicesUsed_ = 0;
};

}  // namespace trireme::planner
