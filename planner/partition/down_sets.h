// Where a graph of layers can be cut in two: its down-sets.
//
// A down-set holds, with a layer, everything that the layer depends on. Pipelines cut a model at
// down-sets, and a stage is the difference of two of them. PipeDream names a down-set by its
// maximal layers, an antichain. A chain of n layers has n + 1; every branch that runs beside
// another multiplies.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/base/status.h"
#include "ir/spec/profile.h"

namespace trireme::planner {

inline constexpr size_t kMaxDownSets = 10'000;

class DownSets {
 public:
  // All of them, smallest first; equally large ones in an order that depends on the profile alone.
  // The first is empty, the last holds every layer. O(number x layers).
  //
  // kResourceExhausted: there are more than `limit`.
  static Result<DownSets> of(const spec::ProfileSpec& profile, size_t limit = kMaxDownSets);

  size_t size() const { return sizes_.size(); }
  size_t full() const { return size() - 1; }
  bool contains(size_t set, int32_t layer) const {
    const auto i = static_cast<size_t>(layer);
    return (words_[set * wordsPerSet_ + i / 64] >> (i % 64) & 1) != 0;
  }
  bool isSubset(size_t small, size_t large) const;
  // The sets that are strictly inside `set`, smallest first.
  std::vector<int32_t> within(size_t set) const;
  // Layers of `large` and not of `small`, each after those that it depends on.
  std::vector<int32_t> difference(size_t small, size_t large) const;

 private:
  size_t wordsPerSet_ = 0;
  std::vector<int32_t> order_;  // of all layers
  bool isChain_ = false;        // every set is inside of every larger one
  std::vector<uint64_t> words_;
  std::vector<int32_t> sizes_;
};

// Bytes that go from the layers of every down-set to the others, per microbatch: a tensor counts
// once, however many layers read it. Indexed as `sets`.
std::vector<double> borderBytes(const spec::ProfileSpec& profile, const DownSets& sets);

}  // namespace trireme::planner
