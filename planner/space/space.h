// The space that the search covers, in two steps: groups, and the candidates of a group.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cost_models/topology.h"
#include "planner/query.h"

namespace trireme::planner {

// Choices that fix what a layer costs. All further choices only arrange layers.
struct Group {
  int64_t tp = 1, pp = 1, cp = 1, dp = 1;
  int64_t microbatchSize = 1;
  plan::Recompute recompute = plan::Recompute::kNone;
  bool sequenceParallel = false;
  bool overlapReductions = false;
  bool splitsBackward = false;  // plan::splitsBackward() of its schedules
  bool fillsAlike = false;      // as many ranks on every host, where full ones leave a rest
};

// Every group that uses exactly `gpus` devices and that the pins, the stack's choices and the rules
// of verifyPlan allow: all factorisations tp * cp * pp * dp (not only powers of two), all divisors
// of the replica's batch as microbatch, three kinds of recomputation, sequence parallelism on and
// off, the backward whole or split, reductions that overlap or not (on hosts, where nothing can,
// only if pinned). For every factorisation that is left out or has no group, one Rejection with its
// rule.
std::vector<Group> groupsFor(const Query& query, int64_t gpus, std::vector<Rejection>& rejections);

// What a layer costs in a group depends neither on pp nor on dp. Every combination of the rest that
// groups of at most `gpus` devices have; its pp and dp are 1, and overlapping reductions may need
// more of one of them.
std::vector<Group> shapesFor(const Query& query, int64_t gpus);

// Numbers of replicas, ascending, that groups of the shape may have, each at most `most`; and of
// stages. Any of the ones with any of the others is a group, if it has a plan.
std::vector<int64_t> replicasOf(const Query& query, const Group& shape, int64_t most);
std::vector<int64_t> stagesOf(const Query& query, int64_t most);

// Whether reductions may overlap, where there are any. A host executes them when they are issued,
// so that there it gains nothing.
bool mayOverlap(const Query& query);

// Whether plans with full recomputation may recompute the first layers of every virtual stage
// alone: as many as are pinned, or the stack can, and nobody pinned full recomputation, which means
// of all of them.
bool mayRecomputeSome(const Query& query);
// The same, and how many is the search's choice.
bool choosesRecomputed(const Query& query);

// Of a plan whose layers are cut: as many recomputed as the longest virtual stage has are all.
void simplifyRecomputed(plan::Plan& plan);

// Virtual stages of all ranks that a plan may have, if it has several: each has a layer, but of
// stacks with a description those of the embedding and of the head.
int64_t mostChunks(const Query& query);

// The most virtual stages per rank that the search tries; a pin may ask for more. It bounds the
// work on models of hundreds of layers: bubbles shrink with 1 / v, while transfers grow with v.
inline constexpr int64_t kMostVirtualStages = 64;

// Calls `visit` with every legal plan of the group but for `layers`, which is empty: GPipe, 1F1B
// and interleaving with every number of virtual stages up to kMostVirtualStages, or the zero-bubble
// schedules if the group splits the backward; every kind of
// state sharding, over all of dp or, if the stack can, over each of its divisors; scatter-gather
// off and on; rankOrdersOf(). With one stage only 1F1B: the schedules do not differ but in memory.
void forEachPlan(const Query& query, const Group& group,
                 const std::function<void(const plan::Plan&)>& visit);

// As plans of the group lie on hosts.
cost::Ranks ranksOf(const Query& query, const Group& group);
// The first of these plans. None, with a Rejection that says by which rule, if the pins exclude
// all.
std::optional<plan::Plan> firstPlan(const Query& query, const Group& group,
                                    std::vector<Rejection>& rejections);

// What the group says of a plan.
plan::Plan planOf(const Query& query, const Group& group);

// Of Trireme's own programs, groups of which a bound holds for this one: the one that keeps
// everything, has the backward whole and overlaps what can be, as far as the pins let it be, takes
// no longer per layer (none if it is this one); microbatches of one sample need no more memory a
// sample.
std::optional<Group> plainerThan(const Query& query, const Group& group);
Group sampleOf(const Query& query, const Group& group);

// Whether there is one.
bool hasPlan(const Query& query, const Group& group);

// The largest number of devices up to `limit` that tp, pp, cp and dp can make under the rules that
// bind one of them alone, and their pins; 0 if there is none.
int64_t largestCount(const Query& query, int64_t limit);

// A total order for ties: fewer and smaller choices first.
bool simplerThan(const plan::Plan& a, const plan::Plan& b);

}  // namespace trireme::planner
