// Ranks in the blocks of one tier after the other: those of blockOf() in topology.h, and more.
#pragma once
#include <cstdint>
#include <optional>

#include "cost_models/topology.h"
#include "ir/spec/cluster_spec.h"

namespace trireme::cost {

// Blocks of which the first numLarger have `unit` ranks more than the others: whole hosts.
struct UnlikeBlocks {
  int64_t count = 0, numLarger = 0;
  int64_t least = 0, unit = 1;
  int64_t most() const { return least + unit; }
};

class Blocks {
 public:
  // The arguments must outlive it.
  Blocks(const Ranks& ranks, const spec::ClusterSpec& cluster)
      : ranks_(ranks), cluster_(cluster), host_(hasPartOfHosts() ? cluster.devicesPerHost() : 0) {}

  // Of the next tier, from the innermost on (blockOf() in topology.h).
  int64_t next();
  // Of that tier.
  const std::optional<UnlikeBlocks>& unlike() const { return unlike_; }

 private:
  bool hasPartOfHosts() const { return ranks_.perHost > 0 && ranks_.perHost < ranks_.all; }
  int64_t devicesOf(size_t tier) const;
  bool keepsTogether(int64_t even, int64_t whole) const;
  int64_t alikeInMore(int64_t devices, int64_t inner) const;
  std::optional<UnlikeBlocks> unlikeOf(int64_t devices, int64_t inner) const;

  const Ranks& ranks_;
  const spec::ClusterSpec& cluster_;
  const int64_t host_;  // devices, where every host has some ranks
  size_t tier_ = 0;
  int64_t block_ = 1, devicesBefore_ = 1;
  std::optional<UnlikeBlocks> unlike_;
};

}  // namespace trireme::cost
