#include "planner/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "ir/base/format.h"
#include "ir/spec/load.h"
#include "planner/best_cut.h"
#include "planner/cuts.h"
#include "planner/frontier.h"
#include "planner/misfits.h"
#include "planner/own_cuts.h"
#include "planner/own_memory.h"
#include "planner/pins.h"
#include "planner/played_cut.h"
#include "planner/relax.h"
#include "planner/relaxed_search.h"
#include "planner/report.h"

namespace trireme::planner {
namespace {

struct Costed {
  plan::Plan plan;
  cost::Estimate estimate;
};

bool better(const Costed& a, const Costed& b) {
  if (a.estimate.step != b.estimate.step) return a.estimate.step < b.estimate.step;
  return simplerThan(a.plan, b.plan);
}

// Moves of layers may make a plan so much faster than its first cuts: it is opened as early.
double movedFrom(const plan::Plan& plan) {
  return plan::splitsBackward(plan.schedule) ? 0.97 : 0.998;
}
// Of a stack with a description, beyond the bound of the cuts of the space.
Seconds reachOf(const plan::Plan& plan, Seconds bound) {
  constexpr double kBeyond = 0.99;
  return plan.virtualStages > 1 ? bound * kBeyond : bound;
}

constexpr int64_t kStepsToShow = 64;  // progress is of the first ones and then of every so many

// All that BlockCosts depend on, besides the query.
// The last: how ranks lie over the tiers, which decides over the links of tp and cp ranks.
using ProbeKey = std::tuple<int64_t, int64_t, int64_t, plan::Recompute, bool, bool, bool, bool,
                            std::vector<int64_t>>;

constexpr NodeKind kNodeKinds[] = {NodeKind::kGroup,       NodeKind::kLikenedGroup,
                                   NodeKind::kProbedGroup, NodeKind::kArrangement,
                                   NodeKind::kUncut,       NodeKind::kCandidate};

const char* boundRule(NodeKind kind) {
  return kind <= NodeKind::kProbedGroup ? "group bound" : "bound";
}

class Search {
 public:
  Search(const Query& query, const SearchScope& scope, const CostFunctions& costs,
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
  // When no more plans are looked for.
  Status noteLarge();
  bool found() const { return !best_.empty(); }
  PlanResult takeResult();
  std::optional<Seconds> bestStep() const;
  std::vector<Rejection>& rejections() { return rejections_; }
  // Where nothing fits, of the plans on as many devices as have a layout.
  Result<plan::Plan> findLeanest() { return misfits_.findLeanest(mostGpus_); }

 private:
  const Work& workOf(const Group& group);
  Status open(const Node& node);
  Status openFewer(const Group& shape, int64_t gpus);
  Status liken(const Node& node);
  Result<Bytes> unprobedMemory(const Group& group);
  Status probe(const Node& node);
  void expandGroup(const Node& node);
  void expandDescribed(const Node& node);
  void openArrangement(const Node& node, plan::Plan plan);
  void splitArrangement(const Node& node);
  Status cut(const Node& node);
  void cutOwn(const Node& node);
  Status costCut(const Node& node, plan::Plan plan, Ranges layers);
  Status costCandidate(const Node& node);
  void noteMemory(const plan::Plan& plan, Bytes memory);
  void noteUncut(plan::Plan plan, const SharedBlocks& blocks);
  void prune(std::string_view rule) { ++pruned_[rule]; }
  // The slowest plan that the answer still shows: nothing slower is of interest.
  std::optional<Seconds> cutoff() const;
  // And of the node's degrees, nothing slower than what was found.
  std::optional<Seconds> limitOf(const Node& node) const;
  bool isSettled(const Node& node) const;
  // Whether the answer may say that a plan of those degrees needs at least `least`.
  bool isNews(const Degrees& degrees, Bytes least) const;
  bool isUseless(const Group& group) const;
  bool isDone() const { return scope_.anyPlan && found(); }
  void pruneSlow(const Node& node, int64_t count, std::string_view rule = "bound");
  // Whether plans of those degrees fit, or may: not every one of them was seen.
  bool mayFit(const Degrees& degrees) const;
  std::vector<Costed> ranked() const;

  const Query& query_;
  const SearchScope& scope_;
  const CostFunctions& costs_;
  const SearchProgress& progress_;
  Frontier frontier_;
  std::map<Degrees, Costed> best_;  // fastest plan that fits
  std::set<Degrees> slow_;          // with plans that may fit, but are too slow
  struct Large {
    Bytes least;
    Node node;
  };
  std::vector<Large> large_;  // groups that need too much memory: at least so much
  std::vector<Rejection> rejections_;
  std::map<std::string_view, int64_t> pruned_;
  std::map<ProbeKey, Work> work_;  // leastWork() of what it depends on
  SlotTable slots_;
  Misfits misfits_;
  // No cut of virtual stages that was not played takes less.
  Seconds uncosted_{std::numeric_limits<double>::infinity()};
  Certificate certificate_;
  int64_t numGroupsOpened_ = 0;
  int64_t numSteps_ = 0;
  int64_t mostGpus_ = 0;        // of the first space
  int64_t numGroupsShown_ = 0;  // of the first space, so that progress does not go back
};

const Work& Search::workOf(const Group& g) {
  const ProbeKey key{g.tp,  g.cp, g.microbatchSize, g.recompute, g.sequenceParallel, false, false,
                     false, {}};
  const auto [place, isNew] = work_.try_emplace(key);
  if (isNew) place->second = leastWork(query_, g);
  return place->second;
}

void Search::openSpace(int64_t gpus) {
  mostGpus_ = gpus;
  for (const Group& group : groupsFor(query_, gpus, rejections_)) {
    if (!hasPlan(query_, group)) {
      firstPlan(query_, group, rejections_);  // says why
      continue;
    }
    frontier_.push(
        {groupBound(query_, group, workOf(group)), NodeKind::kGroup, group, nullptr, nullptr});
    ++certificate_.numGroups;
  }
  numGroupsShown_ = certificate_.numGroups;
}

Status Search::openFewer(int64_t gpus) {
  if (isDone() || gpus - 1 <= scope_.moreThan) return {};
  for (const Group& shape : shapesFor(query_, gpus - 1))
    TRIREME_RETURN_IF_ERROR(openFewer(shape, gpus));
  return {};
}

// Bounds that take a moment go before those that need blocks, which depend on where all the ranks
// lie. Programs of Trireme's own are probed when their turn comes: it takes an expansion.
Status Search::openFewer(const Group& shape, int64_t gpus) {
  const std::optional<Seconds> limit = cutoff();
  const int64_t mostRanks = (gpus - 1) / (shape.tp * shape.cp);
  const auto isSlow = [&](Seconds bound) { return limit && bound > *limit; };
  const Work& least = workOf(shape);
  if (isSlow(shapeBound(query_, shape, least, mostRanks))) {
    prune("fewer devices");
    return {};
  }
  std::map<std::vector<int64_t>, SharedBlocks> known;  // by innerBlocks()
  int64_t numPruned = 0;
  for (const int64_t dp : replicasOf(query_, shape, mostRanks))
    for (const int64_t pp : stagesOf(query_, mostRanks / dp)) {
      Group group = shape;
      group.dp = dp;
      group.pp = pp;
      if (!scope_.isAnswer && isUseless(group)) continue;
      Node node{groupBound(query_, group, least), NodeKind::kGroup, group, nullptr, nullptr};
      if (!isSlow(node.bound) && !query_.stack.ownPrograms) {
        SharedBlocks& blocks =
            known[innerBlocks(query_, {group.tp * group.cp * group.pp * group.dp, group.tp})];
        if (blocks == nullptr) {
          TRIREME_ASSIGN_OR_RETURN(blocks, costs_.blocks(planOf(query_, group)));
        }
        node.blocks = blocks;
        node.kind = NodeKind::kProbedGroup;
        node.bound = groupBound(query_, group, probedWork(query_, *blocks));
      }
      if (isSlow(node.bound) || (node.blocks && leastMemory(query_, group, *node.blocks) >
                                                    query_.cluster.device.memory)) {
        ++numPruned;
      } else if (hasPlan(query_, group)) {
        ++certificate_.numGroups;
        frontier_.push(std::move(node));
      }
    }
  if (numPruned > 0) pruned_["fewer devices"] += numPruned;
  return {};
}

std::optional<Seconds> Search::bestStep() const {
  std::optional<Seconds> step;
  for (const auto& [degrees, costed] : best_)
    if (!step || costed.estimate.step < *step) step = costed.estimate.step;
  return step;
}

std::vector<Costed> Search::ranked() const {
  std::vector<Costed> all;
  for (const auto& [degrees, costed] : best_) all.push_back(costed);
  std::sort(all.begin(), all.end(), better);
  return all;
}

std::optional<Seconds> Search::cutoff() const {
  const auto wanted = static_cast<size_t>(std::max(query_.topK, 1));
  if (best_.size() < wanted) return query_.slowest;
  std::vector<Seconds> times;
  for (const auto& [degrees, costed] : best_) times.push_back(costed.estimate.step);
  std::nth_element(times.begin(), times.begin() + static_cast<long>(wanted - 1), times.end());
  return query_.slowest ? std::min(*query_.slowest, times[wanted - 1]) : times[wanted - 1];
}

std::optional<Seconds> Search::limitOf(const Node& node) const {
  const std::optional<Seconds> limit = cutoff();
  const auto found = best_.find(degreesOf(node.group));
  if (found == best_.end()) return limit;
  const Seconds step = found->second.estimate.step;
  return limit ? std::min(*limit, step) : step;
}

// Whether the plans fit is not known.
void Search::pruneSlow(const Node& node, int64_t count, std::string_view rule) {
  pruned_[rule] += count;
  slow_.insert(degreesOf(node.group));
}

// Another plan of the same degrees is already faster than anything below this node.
bool Search::isSettled(const Node& node) const {
  const auto found = best_.find(degreesOf(node.group));
  return found != best_.end() && node.bound > found->second.estimate.step;
}

Status Search::run() {
  while (!frontier_.empty() && !isDone()) {
    const std::optional<Seconds> limit = cutoff();
    if (limit && frontier_.lowestBound() > *limit) break;
    if (query_.maxCosted > 0 && certificate_.numCosted >= query_.maxCosted && found()) {
      certificate_.closed = false;
      break;
    }
    if (progress_ && (numSteps_ < kStepsToShow || numSteps_ % kStepsToShow == 0))
      progress_({numGroupsShown_, std::min(numGroupsOpened_, numGroupsShown_),
                 certificate_.numBounded, certificate_.numCosted});
    ++numSteps_;
    const Node node = frontier_.pop();
    if (isSettled(node))
      prune(boundRule(node.kind));
    else
      TRIREME_RETURN_IF_ERROR(open(node));
  }
  return {};
}

Status Search::open(const Node& node) {
  switch (node.kind) {
    case NodeKind::kGroup:
      ++numGroupsOpened_;
      return liken(node);
    case NodeKind::kLikenedGroup:
      return probe(node);
    case NodeKind::kProbedGroup:
      expandGroup(node);
      return {};
    case NodeKind::kArrangement:
      splitArrangement(node);
      return {};
    case NodeKind::kUncut:
      return cut(node);
    case NodeKind::kCandidate:
      return costCandidate(node);
  }
  return {};
}

bool Search::isNews(const Degrees& degrees, Bytes least) const {
  if (!scope_.isAnswer) return false;
  // Of the degrees on all devices the answer says what the leanest plan needs, of others only if
  // nothing fits.
  const auto [tp, pp, cp, dp] = degrees;
  if (tp * pp * cp * dp == mostGpus_ && misfits_.isNews(degrees, least)) return true;
  return !found() && misfits_.mayBeLean(least);
}

// No plan of it can be the answer, or a part of it, as is known without an expansion.
bool Search::isUseless(const Group& group) const {
  if (group.tp * group.pp * group.cp * group.dp <= scope_.moreThan) return true;
  if (!query_.stack.ownPrograms) return false;
  const Bytes least = planner::unprobedMemory(query_, group);
  return least > query_.cluster.device.memory && !isNews(degreesOf(group), least);
}

// At least, without an expansion for the group: with many samples in a microbatch most need too
// much.
Result<Bytes> Search::unprobedMemory(const Group& group) {
  const Bytes least = planner::unprobedMemory(query_, group);
  if (least > query_.cluster.device.memory || group.microbatchSize == 1) return least;
  TRIREME_ASSIGN_OR_RETURN(const SharedBlocks blocks,
                           costs_.blocks(planOf(query_, sampleOf(query_, group))));
  return std::max(least, leastMemoryBySample(query_, group, *blocks));
}

// Of groups that need too much memory, those whose need the answer says, the leanest first.
Status Search::noteLarge() {
  if (query_.slowest && !found()) return {};  // which says nothing about memory
  std::stable_sort(large_.begin(), large_.end(),
                   [](const Large& a, const Large& b) { return a.least < b.least; });
  for (Large& large : large_) {
    Node& node = large.node;
    const Degrees degrees = degreesOf(node.group);
    if ((found() && mayFit(degrees)) || !isNews(degrees, large.least)) {
      prune("group memory");
      continue;
    }
    TRIREME_ASSIGN_OR_RETURN(node.blocks, costs_.blocks(planOf(query_, node.group)));
    expandGroup(node);
  }
  return {};
}

// Costs of real layers take an expansion of programs of Trireme's own; most groups are too slow
// even with those of a plainer one.
Status Search::liken(const Node& node) {
  if (isUseless(node.group)) {
    prune("group memory");
    return {};
  }
  if (!query_.stack.ownPrograms) return probe(node);
  TRIREME_ASSIGN_OR_RETURN(const Bytes least, unprobedMemory(node.group));
  if (least > query_.cluster.device.memory) {
    large_.push_back({least, node});
    return {};
  }
  const std::optional<Group> plain = plainerThan(query_, node.group);
  if (!plain) return probe(node);
  TRIREME_ASSIGN_OR_RETURN(const SharedBlocks blocks, costs_.blocks(planOf(query_, *plain)));
  Node likened = node;
  likened.kind = NodeKind::kLikenedGroup;
  likened.bound = std::max(node.bound, groupBound(query_, node.group, probedWork(query_, *blocks)));
  frontier_.push(std::move(likened));
  return {};
}

Status Search::probe(const Node& node) {
  Node probed = node;
  probed.kind = NodeKind::kProbedGroup;
  TRIREME_ASSIGN_OR_RETURN(probed.blocks, costs_.blocks(planOf(query_, node.group)));
  probed.bound =
      std::max(node.bound, groupBound(query_, node.group, probedWork(query_, *probed.blocks)));
  frontier_.push(std::move(probed));
  return {};
}

void Search::expandDescribed(const Node& node) {
  if (leastMemory(query_, node.group, *node.blocks) > query_.cluster.device.memory) {
    prune("group memory");
    if (const auto plan = firstPlan(query_, node.group, rejections_)) noteUncut(*plan, node.blocks);
    return;
  }
  forEachPlan(query_, node.group, [&](const plan::Plan& plan) { openArrangement(node, plan); });
}

void Search::openArrangement(const Node& node, plan::Plan plan) {
  ++certificate_.numBounded;
  if (plan.virtualStages > 1) certificate_.ofEvenChunks = true;
  if (!mayHoldLayers(query_, plan, *node.blocks)) return noteUncut(std::move(plan), node.blocks);
  if (query_.slowest && reachOf(plan, quickBound(query_, plan, *node.blocks)) > *query_.slowest)
    return pruneSlow(node, 1);
  CutSearch cuts(query_, plan, *node.blocks, slots_);
  if (query_.slowest) {
    const bool isPart = plan.recompute == plan::Recompute::kFull && choosesRecomputed(query_);
    if (isPart) cuts.recomputeLayers(1);  // is fastest
    if (reachOf(plan, cuts.roomyBound()) > *query_.slowest) return pruneSlow(node, 1);
    if (isPart) cuts.recomputeLayers(plan.recomputeLayers);
  }
  if (!cuts.mayFit()) return noteUncut(std::move(plan), node.blocks);
  if (plan.recompute == plan::Recompute::kFull && choosesRecomputed(query_)) {
    // The fewest layers of a chunk with which a cut may fit: more need less memory.
    int64_t tooFew = 0, enough = query_.model.numLayers;
    while (enough - tooFew > 1) {
      const int64_t middle = (tooFew + enough) / 2;
      cuts.recomputeLayers(middle);
      (cuts.mayFit() ? enough : tooFew) = middle;
    }
    cuts.recomputeLayers(plan.recomputeLayers = enough);
  }
  const Seconds bound = std::max(node.bound, reachOf(plan, cuts.roomyBound()));
  frontier_.push({bound, NodeKind::kArrangement, node.group, node.blocks,
                  std::make_shared<const plan::Plan>(std::move(plan))});
}

// Memory keeps cuts with few recomputed layers from being fast, and time those with many, so that
// every number gets its own bound. Of more than the longest chunk has all are recomputed.
void Search::splitArrangement(const Node& node) {
  plan::Plan plan = *node.plan;
  CutSearch cuts(query_, plan, *node.blocks, slots_);
  const std::optional<Seconds> limit = limitOf(node);
  const auto isSlow = [&](Seconds bound) { return limit && bound > *limit; };
  int64_t last = plan.recomputeLayers;
  if (last > 0 && choosesRecomputed(query_)) {
    cuts.recomputeLayers(query_.model.numLayers);
    last = std::max(last, cuts.longestChunk());
  }
  certificate_.numBounded += last - plan.recomputeLayers;
  for (; plan.recomputeLayers <= last; ++plan.recomputeLayers) {
    if (last > 0) cuts.recomputeLayers(plan.recomputeLayers);
    if (isSlow(reachOf(plan, cuts.roomyBound()))) {
      pruneSlow(node, last + 1 - plan.recomputeLayers);
      return;
    }
    const Seconds bound = reachOf(plan, cuts.bound());
    if (isSlow(bound))
      pruneSlow(node, 1);
    else
      frontier_.push({std::max(node.bound, bound), NodeKind::kUncut, node.group, node.blocks,
                      std::make_shared<const plan::Plan>(plan)});
  }
}

// At once, not when its bound is the lowest: what it takes limits the cuts of all arrangements
// whose bounds, which know no memory, are lower.
Status Search::costCut(const Node& node, plan::Plan plan, Ranges layers) {
  plan.layers = std::move(layers);
  simplifyRecomputed(plan);
  const Seconds bound = std::max(node.bound, boundOf(query_, plan, *node.blocks).time);
  if (const auto limit = cutoff(); limit && bound > *limit) {
    pruneSlow(node, 1);
    return {};
  }
  return costCandidate({bound, NodeKind::kCandidate, node.group, nullptr,
                        std::make_shared<const plan::Plan>(std::move(plan))});
}

// What is slower by the schedule that is played comes back by that.
void Search::cutOwn(const Node& node) {
  plan::Plan plan = *node.plan;
  const std::vector<Ranges> cuts = cutsFor(query_, plan, *node.blocks);
  for (BoundedCut& cut : ownCuts(query_, plan, *node.blocks, cuts)) {
    plan.layers = std::move(cut.layers);
    frontier_.push({std::max(node.bound, cut.bound), NodeKind::kCandidate, node.group, nullptr,
                    std::make_shared<const plan::Plan>(plan)});
  }
}

Status Search::cut(const Node& node) {
  const plan::Plan& plan = *node.plan;
  if (query_.stack.ownPrograms) {
    cutOwn(node);
    return {};
  }
  const std::optional<Seconds> limit = limitOf(node);
  CutSearch cuts(query_, plan, *node.blocks, slots_);
  PlayedCut played;
  if (CutSearch::isPlayed(plan)) {
    played = fastestPlayed(query_, plan, *node.blocks, cuts, limit);
    if (!played.cut || played.bound < played.cut->step)
      uncosted_ = std::min(uncosted_, played.bound);
  } else {
    played.cut = cuts.best(limit);
  }
  if (!played.cut) {
    pruneSlow(node, 1, "cut");
    return {};
  }
  return costCut(node, plan, std::move(played.cut->layers));
}

void Search::expandGroup(const Node& node) {
  if (node.blocks->described && query_.pins.layers.empty()) return expandDescribed(node);
  const Group& group = node.group;
  // Where nothing fits, the plans that keep least alive say by how much.
  const bool isHopeless = leastMemory(query_, group, *node.blocks) > query_.cluster.device.memory;
  int64_t fewest = std::numeric_limits<int64_t>::max();
  if (isHopeless) {
    prune("group memory");
    if (!scope_.isAnswer) return;
    forEachPlan(query_, group, [&](const plan::Plan& arrangement) {
      fewest = std::min(fewest, arrangement.virtualStages);
    });
  }
  CutFloor floor(query_, *node.blocks);
  forEachPlan(query_, group, [&](const plan::Plan& arrangement) {
    if (isHopeless && arrangement.virtualStages > fewest) return;
    const Bytes least = node.blocks->described ? leastMemory(query_, arrangement, *node.blocks)
                                               : floor.of(arrangement);
    if (least > query_.cluster.device.memory &&
        !isNews(degreesOf(arrangement), least)) {  // and no cut of it fits
      ++certificate_.numBounded;
      prune("memory");
      return;
    }
    plan::Plan plan = arrangement;
    std::optional<Seconds> fastest;
    for (auto& layers : cutsFor(query_, arrangement, *node.blocks)) {
      plan.layers = std::move(layers);
      simplifyRecomputed(plan);
      ++certificate_.numBounded;
      const PlanBound bound = boundOf(query_, plan, *node.blocks);
      if (bound.memory > query_.cluster.device.memory) {
        noteMemory(plan, bound.memory);
        continue;
      }
      fastest = fastest ? std::min(*fastest, bound.time) : bound.time;
    }
    const bool isCut = !query_.pins.layers.empty();
    if (plan.pp > 1 && plan.pp * plan.virtualStages < query_.model.numLayers && !isCut)
      certificate_.ofTriedCuts = true;
    if (!fastest) return;
    frontier_.push({isCut ? *fastest : *fastest * movedFrom(plan),
                    isCut ? NodeKind::kCandidate : NodeKind::kUncut, node.group,
                    isCut ? nullptr : node.blocks,
                    std::make_shared<const plan::Plan>(isCut ? plan : arrangement)});
  });
}

Status Search::costCandidate(const Node& node) {
  Costed costed{*node.plan, {}};
  TRIREME_ASSIGN_OR_RETURN(costed.estimate, costs_.estimate(*node.plan));
  ++certificate_.numCosted;
  if (!costed.estimate.fits()) {
    noteMemory(costed.plan, costed.estimate.memory.total());
    return {};
  }
  const auto [place, isNew] = best_.try_emplace(degreesOf(node.group), costed);
  if (!isNew && better(costed, place->second)) place->second = std::move(costed);
  return {};
}

void Search::noteMemory(const plan::Plan& plan, Bytes memory) {
  prune("memory");
  if (scope_.isAnswer) misfits_.note(plan, memory);
}

void Search::noteUncut(plan::Plan plan, const SharedBlocks& blocks) {
  prune("memory");
  if (scope_.isAnswer && !best_.contains(degreesOf(plan)))
    misfits_.noteUncut(std::move(plan), blocks);
}

bool Search::mayFit(const Degrees& degrees) const {
  return best_.contains(degrees) || frontier_.isOpen(degrees) || slow_.contains(degrees);
}

RunnerUp makeRunnerUp(const Costed& other, const Costed& winner) {
  RunnerUp runner{
      other.plan, other.estimate, other.estimate.step - winner.estimate.step, "tie", {}};
  const auto mine = breakdownParts(other.estimate.breakdown);
  const auto best = breakdownParts(winner.estimate.breakdown);
  for (size_t i = 0; i < mine.size(); ++i) {
    const Seconds difference = mine[i].time - best[i].time;
    if (runner.slower.count() <= 0 || difference <= runner.lostByAmount) continue;
    runner.lostBy = mine[i].name;
    runner.lostByAmount = difference;
  }
  return runner;
}

PlanResult Search::takeResult() {
  const std::vector<Costed> all = ranked();
  const Costed& winner = all.front();
  PlanResult result;
  result.plan = winner.plan;
  result.estimate = winner.estimate;
  const auto shown = std::min(all.size(), static_cast<size_t>(std::max(query_.topK, 1)));
  for (size_t i = 1; i < shown; ++i) result.runnersUp.push_back(makeRunnerUp(all[i], winner));
  result.rejections = std::move(rejections_);
  for (Rejection& rejection :
       misfits_.rejections(mostGpus_, [&](const Degrees& degrees) { return mayFit(degrees); }))
    result.rejections.push_back(std::move(rejection));

  certificate_.bound = winner.estimate.step;
  if (!frontier_.empty())
    certificate_.bound = std::min(certificate_.bound, frontier_.lowestBound());
  certificate_.bound = std::min(certificate_.bound, uncosted_);
  certificate_.gap = 1 - certificate_.bound / winner.estimate.step;
  for (const NodeKind kind : kNodeKinds)
    if (const int64_t open = frontier_.numOpen(kind)) pruned_[boundRule(kind)] += open;
  for (const auto& [rule, count] : pruned_)
    certificate_.pruned.push_back({std::string(rule), count});
  result.certificate = std::move(certificate_);
  return result;
}

}  // namespace

Status checkBatch(const spec::TrainingSpec& training) {
  const int64_t batch = training.globalBatchSize, sequence = training.sequenceLength;
  if (batch <= kMostSamples) return {};
  return invalidArgument(fmt::format(
      "batch {}: the planner takes up to {} samples per step; a batch counts samples (sequences), "
      "not tokens: {} tokens in sequences of {} are {} samples",
      batch, kMostSamples, batch, sequence, std::max<int64_t>(batch / sequence, 1)));
}

namespace {

Status checkQuery(const Query& query) {
  TRIREME_RETURN_IF_ERROR(spec::verifyModel(query.model));
  if (query.model.numLayers > kMostLayers)
    return invalidArgument(
        fmt::format("model '{}' has {} layers, the planner takes up to {}; a plan for more has to "
                    "be written by hand",
                    query.model.name, query.model.numLayers, kMostLayers));
  TRIREME_RETURN_IF_ERROR(spec::verifyTraining(query.training, query.model));
  TRIREME_RETURN_IF_ERROR(checkBatch(query.training));
  TRIREME_RETURN_IF_ERROR(spec::checkPrecision(query.stack, query.training));
  TRIREME_RETURN_IF_ERROR(cost::checkCluster(query.cluster, query.training));
  const int64_t gpus = query.pins.gpus.value_or(query.cluster.numDevices);
  if (gpus < 1 || gpus > query.cluster.numDevices)
    return invalidArgument(fmt::format("{} devices are asked for, cluster {} has {}", gpus,
                                       query.cluster.name, query.cluster.numDevices));
  return {};
}

// The pins may be obeyed one by one, but not together with as many devices.
Status noLayout(int64_t devices, const std::vector<Rejection>& rejections) {
  std::vector<std::string> lines;
  std::set<std::pair<std::string, std::string>> said;  // The same for many layouts says no more.
  for (const Rejection& r : rejections)
    if (said.emplace(r.rule, r.subject).second)
      lines.push_back(
          fmt::format("({}) {} needs {}, there is {}", r.rule, r.subject, r.needed, r.available));
  constexpr size_t kMostLines = 6;
  if (lines.size() > kMostLines) lines.resize(kMostLines);
  if (lines.empty()) lines.emplace_back("tp x pp x dp is no such number");
  return infeasible(fmt::format("no layout of {} device{} obeys the pinned choices: {}", devices,
                                devices == 1 ? "" : "s or fewer", fmt::join(lines, "; ")));
}

}  // namespace

CostFunctions modelCosts(const Query& query) {
  return {[&query](const plan::Plan& plan) {
            return cost::estimate(query.model, plan, query.cluster, query.stack);
          },
          [&query, probed = std::map<ProbeKey, SharedBlocks>()](
              const plan::Plan& plan) mutable -> Result<SharedBlocks> {
            const auto keyOf = [&](plan::Recompute recompute) {
              return ProbeKey{plan.tp,
                              plan.cp,
                              plan.microbatchSize,
                              recompute,
                              plan.sequenceParallel,
                              plan.overlapReductions && plan.tp > 1,
                              query.stack.ownPrograms && plan.pp == 1,
                              query.stack.ownPrograms && plan::splitsBackward(plan.schedule),
                              innerBlocks(query, cost::ranksOf(plan))};
            };
            const ProbeKey key = keyOf(plan.recompute);
            if (const auto found = probed.find(key); found != probed.end()) return found->second;
            const BlockCosts* similar = nullptr;  // but for what is recomputed
            for (const plan::Recompute other :
                 {plan::Recompute::kNone, plan::Recompute::kSelective, plan::Recompute::kFull})
              if (const auto found = probed.find(keyOf(other)); found != probed.end())
                similar = found->second.get();
            TRIREME_ASSIGN_OR_RETURN(BlockCosts blocks, probeBlocks(query, plan, similar));
            return probed.emplace(key, std::make_shared<const BlockCosts>(std::move(blocks)))
                .first->second;
          }};
}

Result<PlanResult> searchPlan(const Query& query, const CostFunctions& costs,
                              const SearchProgress& progress) {
  return searchWithin(query, {}, costs, progress);
}

Result<PlanResult> searchWithin(const Query& asked, const SearchScope& scope,
                                const CostFunctions& costs, const SearchProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  TRIREME_RETURN_IF_ERROR(checkQuery(asked));
  const int64_t available = asked.pins.gpus.value_or(asked.cluster.numDevices);
  Query query = asked;
  query.fingerprint = plan::fingerprintOf(asked.model);
  TRIREME_ASSIGN_OR_RETURN(query.pins, resolvePins(asked.pins));
  TRIREME_RETURN_IF_ERROR(checkPins(query, available));
  std::vector<Rejection> refused;
  for (int64_t gpus = available; gpus > scope.moreThan; gpus = largestCount(query, gpus - 1)) {
    Search search(query, scope, costs, progress);
    search.openSpace(gpus);
    if (!search.hasSpace()) {
      if (refused.empty()) refused = std::move(search.rejections());
      continue;
    }
    TRIREME_RETURN_IF_ERROR(search.run());
    const std::optional<Seconds> stepOfMost = search.bestStep();
    TRIREME_RETURN_IF_ERROR(search.openFewer(gpus));
    TRIREME_RETURN_IF_ERROR(search.run());
    TRIREME_RETURN_IF_ERROR(search.noteLarge());
    if (!search.found() && query.slowest)
      return Error(infeasible("no plan is as fast as asked for"));
    if (!search.found() && !scope.isAnswer) return Error(infeasible("no plan fits in memory"));
    if (!search.found()) {
      TRIREME_ASSIGN_OR_RETURN(const plan::Plan leanest, search.findLeanest());
      return Error(missesMemory(query, leanest, costs));
    }
    PlanResult result = search.takeResult();
    result.gpusUsed = result.plan.numRanks();
    result.gpusAvailable = available;
    result.gpusWithLayout = gpus;
    result.stepOfMost = stepOfMost;
    if (!refused.empty())
      result.rejections.insert(result.rejections.begin(), refused.begin(), refused.end());
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }
  return Error(noLayout(available, refused));
}

Result<PlanResult> searchPlan(const Query& query, const SearchProgress& progress) {
  Result<PlanResult> result = searchPlan(query, modelCosts(query), progress);
  if (result.has_value() || result.error().code() != StatusCode::kInfeasible) return result;
  return Error(withRelaxations(query, result.error(), progress));
}

}  // namespace trireme::planner
