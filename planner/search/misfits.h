// The plans of a search that do not fit, and what the leanest of them need. Internal to
// planner/.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "planner/cuts/best_cut.h"
#include "planner/search/frontier.h"
#include "planner/search/search.h"

namespace trireme::planner {

class Misfits {
 public:
  // All three must outlive it.
  Misfits(const Query& query, const CostFunctions& costs, SlotTable& slots)
      : query_(query), costs_(costs), slots_(slots) {}

  // A plan whose layers are cut. Of Trireme's own programs `memory` may be a lower bound.
  void note(const plan::Plan& plan, Bytes memory);
  // A plan of a stack with a description that fits by no cut.
  void noteUncut(plan::Plan plan, const SharedBlocks& blocks);
  // Whether it would be news that a plan of those degrees needs at least `least`.
  bool isNews(const Degrees& degrees, Bytes least) const;
  // The same where of those degrees no one asks: whether it may be the leanest of all.
  bool mayBeLean(Bytes least) const;

  // Of all plans on `gpus` devices the one that needs least, where none of them fits. Requires that
  // those of Trireme's own programs, and those with pinned layers, were noted.
  Result<plan::Plan> findLeanest(int64_t gpus);
  // What the leanest plans of as many devices need, for degrees of which `mayFit` says no.
  Result<std::vector<Rejection>> rejections(int64_t gpus,
                                            const std::function<bool(const Degrees&)>& mayFit);

 private:
  struct Uncut {
    Bytes least;  // at least
    plan::Plan plan;
    SharedBlocks blocks;
  };
  Bytes cutLeanest(plan::Plan& plan, const BlockCosts& blocks);
  void noteLean(plan::Plan plan, Bytes memory);
  Status estimateLean();
  Status cutLean(int64_t gpus);
  Status cutLeanestOf(int64_t gpus, const std::function<bool(const Degrees&)>& isAsked);
  template <typename MayBeNews, typename Visit>
  Status forEachNews(int64_t gpus, const MayBeNews& mayBeNews, const Visit& visit);

  const Query& query_;
  const CostFunctions& costs_;
  SlotTable& slots_;
  std::map<Degrees, Bytes> least_;  // memory of the leanest plan that was cut
  std::map<Degrees, Uncut> uncut_;  // of those that were not cut, the least bound
  std::optional<plan::Plan> leanest_;
  Bytes leanestMemory_;
  std::multimap<double, plan::Plan> lean_;  // own programs: those with the least memory, by bounds
};

}  // namespace trireme::planner
