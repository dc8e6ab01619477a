// How arrangements, and plans with layers, come out of a group.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "planner/cuts/all_cuts.h"
#include "planner/cuts/cuts.h"
#include "planner/cuts/own_cuts.h"
#include "planner/cuts/played_cut.h"
#include "planner/rounding.h"
#include "planner/search/branch_and_bound.h"
#include "planner/space/own_memory.h"

namespace trireme::planner {
namespace {

// Moves of layers may make a plan so much faster than its first cuts: it is opened as early.
double movedFrom(const plan::Plan& plan) {
  return plan::splitsBackward(plan.schedule) ? 0.97 : 0.998;
}

constexpr double kBeyondOfRunners = 1.005;

bool isOfGroup(const plan::Plan& plan, const Group& group) {
  return degreesOf(plan) == degreesOf(group) && plan.microbatchSize == group.microbatchSize &&
         plan.recompute == group.recompute;
}

// Some layers of every chunk, of which the search chooses how many.
bool recomputesSome(const Query& query, const plan::Plan& plan) {
  return plan.recompute == plan::Recompute::kFull && choosesRecomputed(query);
}

// Cuts that are costed for one that lacks memory which its bounds did not see.
constexpr int kMostRefits = 6;
// What a look at a plan takes that may have a faster uneven cut, in passes of chunks.
constexpr int64_t kPassesOfLook = 200;
// Plans of which all cuts are tried where no other plan fits: a moment's worth.
constexpr size_t kMostWhereNothingFits = 10;
// Plans that take so much more than the fastest may win by moves of layers; so many are tried.
constexpr double kPolished = 1.01;
constexpr size_t kMostPolished = 16;

}  // namespace

void BranchAndBound::expandDescribed(const Node& node) {
  if (leastMemory(query_, node.group, *node.blocks, reserveOf(node.group)) >
      query_.cluster.device.memory) {
    prune("group memory");
    if (const auto plan = firstPlan(query_, node.group, rejections_)) noteUncut(*plan, node.blocks);
    return;
  }
  if (node.group.pp > 1) expanded_.push_back(node);
  QuickBound quick(query_, *node.blocks);
  forEachPlan(query_, node.group,
              [&](const plan::Plan& plan) { openArrangement(node, plan, quick); });
}

// The fewest layers of a chunk with which an even cut may fit: more need less memory.
int64_t BranchAndBound::fewestRecomputed(const plan::Plan& plan, CutSearch& cuts) const {
  const int64_t all = query_.model.numLayers, virtualStages = plan.pp * plan.virtualStages;
  int64_t tooFew = 0, enough = all;
  // Those of an even cut's longest chunk as a rule are enough.
  for (int64_t next = (all + virtualStages - 1) / virtualStages; enough - tooFew > 1;) {
    cuts.recomputeLayers(next);
    (cuts.mayFit() ? enough : tooFew) = next;
    next = (tooFew + enough) / 2;
  }
  return enough;
}

void BranchAndBound::openArrangement(const Node& node, const plan::Plan& plan, QuickBound& quick) {
  ++certificate_.numBounded;
  if (plan.virtualStages > 1) certificate_.ofEvenChunks = true;
  if (!mayHoldLayers(query_, plan, *node.blocks)) return noteUncut(plan, node.blocks);
  const Seconds bound = std::max(node.bound, reachOf(plan, quick.of(plan)));
  if (query_.slowest && bound > *query_.slowest) return pruneSlow(node, 1);
  const Node arrangement{bound, NodeKind::kArrangement, node.group, node.blocks,
                         std::make_shared<const plan::Plan>(plan)};
  // Most are too slow, and what they need does not matter where others of their degrees fit.
  if (fitting_.contains(degreesOf(node.group)))
    frontier_.push(arrangement);
  else
    boundArrangement(arrangement);
}

// By what its cuts need and take.
void BranchAndBound::boundArrangement(const Node& node) {
  plan::Plan plan = *node.plan;
  const bool isPart = recomputesSome(query_, plan);
  CutSearch cuts(query_, plan, *node.blocks, slots_);
  if (query_.slowest) {
    if (isPart) cuts.recomputeLayers(1);  // is fastest
    if (reachOf(plan, cuts.roomyBound()) > *query_.slowest) return pruneSlow(node, 1);
    if (isPart) cuts.recomputeLayers(plan.recomputeLayers);
  }
  if (!cuts.mayFit()) return noteUncut(std::move(plan), node.blocks);
  fitting_.insert(degreesOf(node.group));
  if (isPart) cuts.recomputeLayers(plan.recomputeLayers = fewestRecomputed(plan, cuts));
  const Seconds bound = std::max(node.bound, reachOf(plan, cuts.roomyBound()));
  frontier_.push({bound, NodeKind::kBoundedArrangement, node.group, node.blocks,
                  std::make_shared<const plan::Plan>(std::move(plan))});
}

// Of a split backward, whose bounds rule out few plans: one that recomputes nothing takes no longer
// with the same cut, and every cut within the limit fits it as well. (In a step a stage does the
// passes of its layers for every microbatch, and an end of the model may have none.)
Result<bool> BranchAndBound::recomputesInVain(const Node& node) {
  const Pins& pins = query_.pins;
  if (!plan::splitsBackward(node.plan->schedule) || pins.recompute || pins.recomputeLayers ||
      node.plan->recompute == plan::Recompute::kNone)
    return false;
  const std::optional<Seconds> limit = limitOf(node);
  if (!limit) return false;
  plan::Plan plan = *node.plan;
  plan.recompute = plan::Recompute::kNone;
  plan.recomputeLayers = 0;
  TRIREME_ASSIGN_OR_RETURN(const SharedBlocks blocks, costs_.blocks(plan));
  const Seconds layer = blocks->layer.total() * static_cast<double>(plan.numMicrobatches());
  if (layer <= Seconds(0)) return false;
  const auto within = static_cast<int64_t>(std::min(*limit / layer, 1e9)) + 1;
  const int64_t most = std::min(within, query_.model.numLayers);
  CutSearch cuts(query_, plan, *blocks, slots_);
  if (!cuts.mayFit()) return false;
  const std::vector<int64_t> held = cuts.mostLayers();
  return std::all_of(held.begin(), held.end(), [&](int64_t layers) { return layers >= most; });
}

// Memory keeps cuts with few recomputed layers from being fast, and time those with many, so that
// every number gets its own bound. Of more than the longest chunk has all are recomputed.
void BranchAndBound::splitArrangement(const Node& node) {
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
Status BranchAndBound::costCut(const Node& node, plan::Plan plan, Ranges layers) {
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
void BranchAndBound::cutOwn(const Node& node) {
  plan::Plan plan = *node.plan;
  const std::vector<Ranges> cuts = cutsFor(query_, plan, *node.blocks);
  for (BoundedCut& cut : ownCuts(query_, plan, *node.blocks, *costs_.player, cuts)) {
    plan.layers = std::move(cut.layers);
    frontier_.push({cut.bound, NodeKind::kCandidate, node.group, node.blocks,
                    std::make_shared<const plan::Plan>(plan)});
  }
}

// Bounds of memory take cuts for ones that fit that lack a little. Every estimate of such a cut
// shows how much its ranks need beyond their bounds, and the next cut has room for that.
Status BranchAndBound::refit(const Node& node, CostedPlan missed) {
  if (missed.plan.pp == 1) return {};
  std::vector<Bytes> beyond(static_cast<size_t>(missed.plan.pp));
  for (int tries = 0; tries < kMostRefits; ++tries) {
    const std::vector<Bytes> now =
        beyondBounds(query_, missed.plan, *node.blocks, missed.estimate.memoryOfStages);
    for (size_t rank = 0; rank < beyond.size(); ++rank)
      beyond[rank] = std::max(beyond[rank], now[rank]);
    std::optional<BoundedCut> cut =
        refitted(query_, missed.plan, *node.blocks, *costs_.player, beyond);
    if (!cut) return {};
    if (const auto limit = limitOf(node); limit && cut->bound > *limit) {
      pruneSlow(node, 1);
      return {};
    }
    missed.plan.layers = std::move(cut->layers);
    TRIREME_ASSIGN_OR_RETURN(missed.estimate, costs_.estimate(missed.plan));
    ++certificate_.numCosted;
    if (missed.estimate.fits()) {
      keep(std::move(missed));
      return {};
    }
    noteMemory(missed.plan, missed.estimate.memory.total());
  }
  return {};
}

Status BranchAndBound::cut(const Node& node) {
  const plan::Plan& plan = *node.plan;
  if (query_.stack.ownPrograms) {
    cutOwn(node);
    return {};
  }
  const std::optional<Seconds> limit = limitOf(node);
  CutSearch cuts(query_, plan, *node.blocks, slots_);
  PlayedCut played;
  if (CutSearch::isPlayed(plan)) {
    // Of a plan that cannot win even by moves beyond the space: as a runner-up it is seldom so much
    // faster by them.
    if (limit && plan.virtualStages > 1 && node.bound > ofInterest() &&
        !cuts.lowest(*limit * kBeyondOfRunners)) {
      pruneSlow(node, 1, "cut");
      return {};
    }
    played = fastestPlayed(query_, plan, *node.blocks, cuts, *costs_.player, limit);
    if (played.slower && plan.virtualStages > 1) {
      plan::Plan slower = plan;
      slower.layers = std::move(played.slower->layers);
      slower_.emplace_back(played.slower->step, std::move(slower));
    }
    if (!played.cut || played.bound < played.cut->step)
      unproved_.push_back({played.bound, node.group, node.plan, node.blocks});
  } else {
    played.cut = cuts.best(limit);
  }
  if (!played.cut) {
    pruneSlow(node, 1, "cut");
    return {};
  }
  return costCut(node, plan, std::move(played.cut->layers));
}

// What takes as long or longer is of no interest to whom wants the fastest alone.
Seconds BranchAndBound::ofInterest() const {
  return std::min(bestStep().value_or(kNoCut), query_.slowest.value_or(kNoCut));
}

// Of own programs' plans, whose cuts are not all tried, those of which some may be faster than what
// was found.
void BranchAndBound::noteUntried(const Node& node, const plan::Plan& plan, Seconds bound) {
  if (query_.slowest && bound >= *query_.slowest) leaveUncosted(bound);
  if (bound < ofInterest())
    untried_.push_back({bound, node.group, std::make_shared<const plan::Plan>(plan), node.blocks});
}

// Of stacks with a description, whose work is limited, the answer's group first: what differs from
// it in virtual stages alone is likeliest to be faster. Then those that may be fastest, for what is
// found limits what follows. Where nothing fits so far, one of the first may.
Status BranchAndBound::tryAllCuts() {
  TRIREME_RETURN_IF_ERROR(proveCuts());
  if (found() ? scope_.anyPlan : !scope_.isAnswer) return {};
  noteUneven();
  const std::vector<CostedPlan> known =
      query_.stack.ownPrograms ? std::vector<CostedPlan>() : ranked();
  const auto isNear = [&](const Untried& untried) {
    return !known.empty() && isOfGroup(known.front().plan, untried.group);
  };
  std::stable_sort(untried_.begin(), untried_.end(), [&](const Untried& a, const Untried& b) {
    return std::pair(!isNear(a), a.bound) < std::pair(!isNear(b), b.bound);
  });
  size_t numTried = 0;
  for (const Untried& untried : untried_) {
    if (untried.bound >= ofInterest() || (!found() && ++numTried > kMostWhereNothingFits)) break;
    TRIREME_RETURN_IF_ERROR(tryAllCuts(untried));
  }
  return found() && !query_.stack.ownPrograms ? polish() : Status();
}

// The fastest plans, and those that were slower by their first cuts: moves may make one win.
Status BranchAndBound::polish() {
  if (!query_.pins.layers.empty()) return {};
  std::vector<std::pair<Seconds, plan::Plan>> plans = std::move(slower_);
  for (const CostedPlan& costed : ranked()) plans.emplace_back(costed.estimate.step, costed.plan);
  std::stable_sort(plans.begin(), plans.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  size_t numTried = 0;
  for (const auto& [step, plan] : plans) {
    if (step > ofInterest() * kPolished || numTried == kMostPolished) break;
    if (plan.virtualStages == 1) continue;
    ++numTried;
    TRIREME_ASSIGN_OR_RETURN(const SharedBlocks blocks, costs_.blocks(plan));
    const auto cut = polished(query_, plan, *blocks, *costs_.player);
    if (!cut || cut->step >= std::min(step, ofInterest()) * (1 - kTie)) continue;
    plan::Plan faster = plan;
    faster.layers = cut->layers;
    simplifyRecomputed(faster);
    TRIREME_RETURN_IF_ERROR(costCandidate({cut->step,
                                           NodeKind::kCandidate,
                                           {},
                                           nullptr,
                                           std::make_shared<const plan::Plan>(std::move(faster))}));
  }
  return {};
}

Status BranchAndBound::proveCuts() {
  std::stable_sort(unproved_.begin(), unproved_.end(),
                   [](const Untried& a, const Untried& b) { return a.bound < b.bound; });
  for (const Untried& unproved : unproved_) {
    std::optional<Seconds> others;
    const bool matters = unproved.bound < std::min(ofInterest(), uncosted_);
    if (matters && !scope_.anyPlan && found()) {
      TRIREME_ASSIGN_OR_RETURN(others, tryExactly(unproved, Spread::kEven));
    }
    leaveUncosted(others.value_or(unproved.bound));
  }
  return {};
}

void BranchAndBound::leaveUncosted(Seconds bound) {
  uncosted_ = std::min(uncosted_, bound);
  uncostedEven_ = std::min(uncostedEven_, bound);
}

Result<std::optional<Seconds>> BranchAndBound::tryExactly(const Untried& untried, Spread spread) {
  const plan::Plan& plan = *untried.plan;
  const bool isOwn = query_.stack.ownPrograms;
  CutFloor floor(query_, *untried.blocks);
  int64_t& passes = passesOfExact_[static_cast<size_t>(spread)];
  // Of the work that is left for all plans no more than this one may take.
  int64_t left = isOwn && spread == Spread::kEven ? std::min(passes, kMostPassesOfEven) : passes;
  passes -= left;
  const ExactCuts exact =
      isOwn ? exactOwnCuts(query_, plan, *untried.blocks, *costs_.player, spread,
                           AllCuts(query_, plan, *untried.blocks, floor).once(), ofInterest(), left)
            : exactPlayed(query_, plan, *untried.blocks, *costs_.player, ofInterest(), left);
  passes += left;
  for (const CutSearch::Cut& cut : exact.fastest) {
    if (cut.step >= ofInterest()) break;
    plan::Plan faster = plan;
    faster.layers = cut.layers;
    simplifyRecomputed(faster);
    TRIREME_RETURN_IF_ERROR(costCandidate({cut.step, NodeKind::kCandidate, untried.group,
                                           isOwn ? untried.blocks : nullptr,
                                           std::make_shared<const plan::Plan>(std::move(faster))}));
  }
  if (exact.others == Seconds(0)) return std::optional<Seconds>();
  const Seconds others = std::max(untried.bound, exact.others);
  // The answer may be of the cuts that were found, but for rounding.
  return std::optional(others < ofInterest() * kRounding ? others : kNoCut);
}

// Of stacks with a description, interleaved plans that may have a faster cut beyond the space.
void BranchAndBound::noteUneven() {
  for (const Node& node : expanded_) {
    if (node.bound >= ofInterest()) continue;
    QuickBound quick(query_, *node.blocks);
    forEachPlan(query_, node.group, [&](const plan::Plan& plan) {
      if (plan.virtualStages == 1) return;
      const Seconds bound = std::max(node.bound, quick.of(plan));
      if (bound < ofInterest() && mayHoldUnevenly(query_, plan, *node.blocks))
        untried_.push_back(
            {bound, node.group, std::make_shared<const plan::Plan>(plan), node.blocks});
    });
  }
}

// Where memory is tight. Where some layers are recomputed, of fewer and fewer of them, as long as a
// cut may fit.
Status BranchAndBound::tryUneven(const Untried& untried) {
  plan::Plan plan = *untried.plan;
  unevenWork_.relaxed -= kPassesOfLook;
  CutSearch cuts(query_, plan, *untried.blocks, slots_);
  const bool isPart = recomputesSome(query_, plan);
  if (!isPart && !cuts.isTight()) return {};
  std::optional<plan::Plan> best;
  Seconds enough = ofInterest();
  // False: with so many no cut fits.
  const auto tryWith = [&](int64_t recomputed) {
    plan.recomputeLayers = recomputed;
    cuts.recomputeLayers(recomputed);
    if (cuts.roomyBound() >= enough) return true;
    const UnevenCut uneven =
        unevenCut(query_, plan, *untried.blocks, slots_, *costs_.player, enough, unevenWork_);
    if (uneven.cut) {
      enough = uneven.cut->step;
      best = plan;
      best->layers = uneven.cut->layers;
      simplifyRecomputed(*best);
    }
    return uneven.mayFit;
  };
  if (!isPart) {
    tryWith(plan.recomputeLayers);
  } else {
    int64_t tooFew = 0, most = fewestRecomputed(plan, cuts);
    bool mayFit = tryWith(most);
    while (mayFit && most - tooFew > 1 && unevenWork_.relaxed > 0) {
      const int64_t middle = (tooFew + most) / 2;
      (tryWith(middle) ? most : tooFew) = middle;
    }
  }
  if (!best) return {};
  return costCandidate({enough, NodeKind::kCandidate, untried.group, nullptr,
                        std::make_shared<const plan::Plan>(std::move(*best))});
}

Status BranchAndBound::tryAllCuts(const Untried& untried) {
  if (!query_.stack.ownPrograms) return unevenWork_.relaxed > 0 ? tryUneven(untried) : Status();
  const plan::Plan& plan = *untried.plan;
  CutFloor floor(query_, *untried.blocks);
  const AllCuts cheap(query_, plan, *untried.blocks, floor);
  const auto mayRelax = [&] { return hasManyCuts(plan) && passesOfAll_ > 0; };
  Seconds bound = untried.bound;
  // Takes a moment, and tells of most plans that no cut is fast enough.
  if (mayRelax()) {
    bound = std::max(
        bound, boundOfOwnCuts(query_, plan, *untried.blocks, cheap, ofInterest(), passesOfAll_));
    if (bound >= ofInterest()) {
      leaveUncosted(bound);
      return {};
    }
  }
  // Where less is proved already it would change nothing.
  std::optional<Seconds> ofEven;
  if (found() && bound < std::min(uncosted_, ofInterest())) {
    TRIREME_ASSIGN_OR_RETURN(const auto ofAll, tryExactly(untried, Spread::kAny));
    if (ofAll) {
      leaveUncosted(*ofAll);
      return {};
    }
  }
  if (found() && plan.virtualStages > 1 && bound < uncostedEven_) {
    TRIREME_ASSIGN_OR_RETURN(ofEven, tryExactly(untried, Spread::kEven));
  }
  if (mayRelax()) {
    AllOwnCuts all = allOwnCuts(query_, plan, *untried.blocks, *costs_.player, cheap, ofInterest(),
                                passesOfAll_);
    bound = std::max(bound, all.bound);
    if (all.cut) {
      plan::Plan cut = plan;
      cut.layers = std::move(all.cut->layers);
      simplifyRecomputed(cut);
      TRIREME_RETURN_IF_ERROR(
          costCandidate({all.cut->bound, NodeKind::kCandidate, untried.group, untried.blocks,
                         std::make_shared<const plan::Plan>(std::move(cut))}));
    }
  }
  uncosted_ = std::min(uncosted_, bound);
  uncostedEven_ = std::min(uncostedEven_, std::max(bound, ofEven.value_or(bound)));
  return {};
}

void BranchAndBound::expandGroup(const Node& node) {
  if (node.blocks->described && query_.pins.layers.empty()) return expandDescribed(node);
  const Group& group = node.group;
  // Where nothing fits, the plans that keep least alive say by how much.
  const bool isHopeless =
      leastMemory(query_, group, *node.blocks, reserveOf(group)) > query_.cluster.device.memory;
  int64_t fewest = std::numeric_limits<int64_t>::max();
  if (isHopeless) {
    prune("group memory");
    if (!scope_.isAnswer) return;
    forEachPlan(query_, group, [&](const plan::Plan& arrangement) {
      fewest = std::min(fewest, arrangement.virtualStages);
    });
  }
  const bool isCut = !query_.pins.layers.empty();
  const std::optional<Seconds> limit = limitOf(node);
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
    const bool hasCuts = !isCut && !node.blocks->described && arrangement.pp > 1;
    const Seconds ofAllCuts =
        hasCuts ? AllCuts(query_, arrangement, *node.blocks, floor).bound(limit.value_or(kNoCut))
                : Seconds();
    if (limit && ofAllCuts > *limit && ofAllCuts != kNoCut) {
      ++certificate_.numBounded;
      pruneSlow(node, 1);
      leaveUncosted(ofAllCuts);
      return;
    }
    const bool mayFit = least <= query_.cluster.device.memory;
    if (mayFit && hasCuts && arrangement.pp * arrangement.virtualStages < query_.model.numLayers)
      noteUntried(node, arrangement, std::max(node.bound, ofAllCuts));
    // Most are too slow whatever their cut, and what they need does not matter.
    if (mayFit && hasCuts && !isHopeless && ofAllCuts != kNoCut) {
      ++certificate_.numBounded;
      frontier_.push({std::max(node.bound, ofAllCuts), NodeKind::kArrangement, group, node.blocks,
                      std::make_shared<const plan::Plan>(arrangement)});
    } else if (isCut && recomputesSome(query_, arrangement)) {
      boundPinnedCut(node, arrangement);
    } else {
      boundCuts(node, arrangement);
    }
  });
}

// With every number of recomputed layers.
void BranchAndBound::boundPinnedCut(const Node& node, const plan::Plan& arrangement) {
  const std::vector<int64_t>& layers = query_.pins.layers;
  plan::Plan plan = arrangement;
  for (int64_t n = 1; n <= *std::max_element(layers.begin(), layers.end()); ++n) {
    plan.recomputeLayers = n;
    boundCuts(node, plan);
  }
}

// By the cuts that are tried first.
void BranchAndBound::boundCuts(const Node& node, const plan::Plan& arrangement) {
  const bool isCut = !query_.pins.layers.empty();
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
  if (!fastest) return;
  frontier_.push({isCut ? *fastest : *fastest * movedFrom(plan),
                  isCut ? NodeKind::kCandidate : NodeKind::kUncut, node.group,
                  isCut ? nullptr : node.blocks,
                  std::make_shared<const plan::Plan>(isCut ? plan : arrangement)});
}

}  // namespace trireme::planner
