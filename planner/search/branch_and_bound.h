// The branch and bound of one search, best first. What it looks at and why it ends is in search.h.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "planner/cuts/best_cut.h"
#include "planner/cuts/cut_bound.h"
#include "planner/cuts/own_cuts.h"
#include "planner/cuts/played_cut.h"
#include "planner/search/frontier.h"
#include "planner/search/misfits.h"
#include "planner/search/relaxed_search.h"
#include "planner/search/search.h"
#include "planner/space/own_memory.h"
#include "planner/space/space.h"

namespace trireme::planner {

class BranchAndBound {
 public:
  // The arguments must outlive it.
  BranchAndBound(const Query& query, const SearchScope& scope, const CostFunctions& costs,
                 const SearchProgress& progress)
      : query_(query),
        scope_(scope),
        costs_(costs),
        progress_(progress),
        misfits_(query, costs, slots_) {}

  // Empty if the space of `gpus` devices has no plan.
  void openSpace(int64_t gpus);
  // Groups of fewer devices that may be better than what was found.
  Status openFewer(int64_t gpus);
  bool hasSpace() const { return !frontier_.empty(); }
  Status run();
  // When no more plans are looked for: what those need that were put off for their memory.
  Status noteLarge();
  // After all runs: cuts that were not tried, and of own programs what they take at least.
  Status tryAllCuts();
  bool found() const { return !best_.empty(); }
  bool ofEvenChunks() const { return certificate_.ofEvenChunks; }
  Result<PlanResult> takeResult();
  // Of plans on exactly so many devices, or on any.
  std::optional<Seconds> bestStep(std::optional<int64_t> gpus = std::nullopt) const;
  std::vector<Rejection>& rejections() { return rejections_; }
  // Where nothing fits, of the plans on as many devices as have a layout.
  Result<plan::Plan> findLeanest() { return misfits_.findLeanest(mostGpus_); }

 private:
  // A plan of which cuts were not tried: of own programs, or uneven chunks of stacks with a
  // description.
  struct Untried {
    Seconds bound;  // of all cuts; of stacks with a description, but for chunks that are not even
    Group group;
    std::shared_ptr<const plan::Plan> plan;
    SharedBlocks blocks;
  };

  static bool better(const CostedPlan& a, const CostedPlan& b);
  void fillCertificate(Seconds step);

  // branch_and_bound_groups.cpp: the least work of a group is known at once, its times when it is
  // probed, of own programs after those of a plainer one.
  const Work& workOf(const Group& group);
  Status openFewer(const Group& shape, int64_t gpus);
  Status liken(const Node& node);
  Status probe(const Node& node);
  using BlocksByPlaces = std::map<std::vector<int64_t>, SharedBlocks>;  // innerBlocks()
  Status probe(Node& node, BlocksByPlaces& known);
  Result<Bytes> unprobedMemory(const Group& group);
  bool isUseless(const Group& group);
  Bytes reserveOf(const Group& group);
  // Whether the answer may say that a plan of those degrees needs at least `least`.
  bool isNews(const Degrees& degrees, Bytes least) const;

  // branch_and_bound_cuts.cpp: a probed group's arrangements, and their cuts. Of own programs, or
  // with pinned layers, some; of stacks with a description all, after the arrangement is split into
  // numbers of recomputed layers.
  void expandGroup(const Node& node);
  void boundCuts(const Node& node, const plan::Plan& arrangement);
  void boundPinnedCut(const Node& node, const plan::Plan& arrangement);
  void expandDescribed(const Node& node);
  void openArrangement(const Node& node, const plan::Plan& plan, QuickBound& quick);
  void boundArrangement(const Node& node);
  int64_t fewestRecomputed(const plan::Plan& plan, CutSearch& cuts) const;
  Result<bool> recomputesInVain(const Node& node);
  void splitArrangement(const Node& node);
  Status cut(const Node& node);
  void cutOwn(const Node& node);
  Status refit(const Node& node, CostedPlan missed);
  Seconds ofInterest() const;
  void noteUntried(const Node& node, const plan::Plan& plan, Seconds bound);
  Status polish();
  Status proveCuts();
  // Costs the fastest cuts. The others take at least what it returns: kNoCut if none is faster than
  // the answer, nothing if there are too many to look at.
  Result<std::optional<Seconds>> tryExactly(const Untried& untried, Spread spread);
  void leaveUncosted(Seconds bound);
  void noteUneven();
  Status tryAllCuts(const Untried& untried);
  Status tryUneven(const Untried& untried);
  Status costCut(const Node& node, plan::Plan plan, Ranges layers);

  // branch_and_bound.cpp
  Status open(const Node& node);
  Status costCandidate(const Node& node);
  void keep(CostedPlan costed);
  // The slowest plan that the answer still shows: nothing slower is of interest.
  std::optional<Seconds> cutoff() const;
  // And of the node's degrees, nothing slower than what was found.
  std::optional<Seconds> limitOf(const Node& node) const;
  bool isSettled(const Node& node) const;
  bool isDone() const { return scope_.anyPlan && found(); }
  // Whether plans of those degrees fit, or may: not every one of them was seen.
  bool mayFit(const Degrees& degrees) const;
  void noteMemory(const plan::Plan& plan, Bytes memory);
  void noteUncut(plan::Plan plan, const SharedBlocks& blocks);
  void prune(std::string_view rule) { ++pruned_[rule]; }
  void pruneSlow(const Node& node, int64_t count, std::string_view rule = "bound");
  std::vector<CostedPlan> ranked() const;

  int64_t effortOf(int64_t passes) const {
    return static_cast<int64_t>(scope_.effort * static_cast<double>(passes));
  }

  using WorkKey = std::tuple<int64_t, int64_t, int64_t, plan::Recompute, bool, bool, bool>;
  struct Large {
    Bytes least;
    Node node;
  };

  const Query& query_;
  const SearchScope& scope_;
  const CostFunctions& costs_;
  const SearchProgress& progress_;
  Frontier frontier_;
  std::map<Degrees, CostedPlan> best_;  // fastest plan that fits
  std::set<Degrees> slow_;              // with plans that may fit, but are too slow
  std::set<Degrees> fitting_;           // with arrangements of which a cut may fit
  std::vector<Large> large_;            // groups that need too much memory: at least so much
  std::vector<Rejection> rejections_;
  std::map<std::string_view, int64_t> pruned_;
  std::map<WorkKey, Work> work_;  // leastWork() of what it depends on
  std::map<std::tuple<Degrees, bool, bool, bool>, Bytes> reserves_;  // leastReserve() the same
  SlotTable slots_;
  Misfits misfits_;
  std::vector<Node> expanded_;  // groups with stages, of stacks with a description
  std::vector<Untried> untried_;
  std::vector<std::pair<Seconds, plan::Plan>> slower_;  // interleaved, than what was found
  std::vector<Untried> unproved_;  // of stacks with a description, cuts of the space
  int64_t passesOfAll_ = effortOf(kMostPassesOfAll);  // for what is left to be tried
  // By Spread.
  std::array<int64_t, 2> passesOfExact_{effortOf(kMostPassesOfExact), effortOf(kMostPassesOfExact)};
  UnevenWork unevenWork_;
  // No cut of virtual stages, or of own programs, that was not played takes less; nor does any
  // whose chunks are even.
  Seconds uncosted_{std::numeric_limits<double>::infinity()};
  Seconds uncostedEven_{std::numeric_limits<double>::infinity()};
  Certificate certificate_;
  int64_t numGroupsOpened_ = 0;
  int64_t numSteps_ = 0;
  int64_t mostGpus_ = 0;        // of the first space
  int64_t numGroupsShown_ = 0;  // of the first space, so that progress does not go back
};

}  // namespace trireme::planner
