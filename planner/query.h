// What the planner is asked and what it answers. All of it is data: cli prints it (report.h).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost_models/estimate.h"
#include "ir/plan/plan.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/stack_profile.h"
#include "ir/spec/training_spec.h"

namespace trireme::planner {

// Choices that the user has made; the search makes the rest.
struct Pins {
  std::optional<int64_t> gpus;  // the most devices to use; absent: all of the cluster
  std::optional<int64_t> tp, pp, cp, dp;
  std::optional<int64_t> dpShard;  // replicas that share state among them; a divisor of dp
  std::optional<int64_t> microbatchSize;
  std::optional<int64_t> virtualStages;
  // Limits: the most of each.
  std::optional<int64_t> mostTp, mostPp, mostCp, mostDp, mostMicrobatchSize, mostVirtualStages;
  std::optional<plan::ScheduleKind> schedule;
  std::optional<plan::Recompute> recompute;
  // Full recomputation of the first so many layers of every virtual stage, of all if it has fewer;
  // without recompute pinned it is full.
  std::optional<int64_t> recomputeLayers;
  std::optional<plan::StateSharding> stateSharding;
  std::optional<bool> sequenceParallel;
  std::optional<bool> scatterGather;
  std::optional<bool> overlapReductions;
  std::optional<plan::RankOrder> rankOrder;
  // Layers of every virtual stage, in the order of the layers; they fix pp x virtualStages. Empty:
  // the search's choice.
  std::vector<int64_t> layers;
  bool operator==(const Pins&) const = default;
};

// A number of a plan that can be pinned and limited.
struct Degree {
  const char* name;
  std::optional<int64_t> Pins::* pin;
  std::optional<int64_t> Pins::* most;
  int64_t (*of)(const plan::Plan&);
};
inline constexpr Degree kDegrees[] = {
    {"tp", &Pins::tp, &Pins::mostTp, [](const plan::Plan& p) { return p.tp; }},
    {"pp", &Pins::pp, &Pins::mostPp, [](const plan::Plan& p) { return p.pp; }},
    {"cp", &Pins::cp, &Pins::mostCp, [](const plan::Plan& p) { return p.cp; }},
    {"dp", &Pins::dp, &Pins::mostDp, [](const plan::Plan& p) { return p.dp(); }},
    {"microbatch", &Pins::microbatchSize, &Pins::mostMicrobatchSize,
     [](const plan::Plan& p) { return p.microbatchSize; }},
    {"virtual stages", &Pins::virtualStages, &Pins::mostVirtualStages,
     [](const plan::Plan& p) { return p.virtualStages; }}};

struct Query {
  spec::ModelSpec model;
  // fingerprintOf(model), so that plans need not compute it one by one; 0: not known yet.
  uint64_t fingerprint = 0;
  spec::TrainingSpec training;
  // Nobody asked for training.precision: it is what is usual (spec::usualPrecision), and would be
  // another one under another stack.
  bool usualPrecision = false;
  spec::ClusterSpec cluster;
  spec::StackProfile stack;
  Pins pins;
  // Of every plan: the vocabulary is padded to a multiple of this times tp.
  int64_t vocabMultiple = 128;
  bool usualVocabMultiple = false;  // nobody asked for it: it is the stack's
  int32_t topK = 5;                 // plans in the answer: the winner and topK - 1 runners-up
  // Slower plans are of no interest, and looking for them takes time. If there is none as fast, the
  // search is kInfeasible and does not say what else would be. What PlanResult says of other plans
  // than the winner knows of none that is slower, either.
  std::optional<Seconds> slowest;
};

// Why something is not in the answer.
struct Rejection {
  std::string rule;     // "P4", "memory", "bound"...
  std::string subject;  // what was rejected: "tp 8", "tp 2 pp 1 dp 4"
  std::string needed;
  std::string available;
  bool operator==(const Rejection&) const = default;
};

struct PruneCount {
  std::string rule;
  int64_t count = 0;
};

struct CostedPlan {
  plan::Plan plan;
  cost::Estimate estimate;
};

// The best plan of another (tp, pp, dp), and the part of the step in which it loses most.
struct RunnerUp {
  plan::Plan plan;
  cost::Estimate estimate;
  Seconds slower;                    // than the winner
  std::string lostBy;                // name of the part of the breakdown, "tie" if as fast
  Seconds lostByAmount;              // in that part
  std::optional<Seconds> simulated;  // its step, if it was played (recommend.h)
};

// What was proved, and how.
struct Certificate {
  Seconds bound;  // no plan of the space is faster
  // (time of the winner - bound) / time of the winner. 0: it is the best. More where there are too
  // many uneven cuts of the layers to look at.
  double gap = 0;
  // Bound and gap are of plans whose chunks on a stage differ by one layer at most. Others are
  // tried as well. Of stacks with a description, where there are virtual stages in the space,
  // nothing bounds them; of Trireme's own programs, where less is proved of them, the following
  // does.
  bool ofEvenChunks = false;
  std::optional<Seconds> boundOfAllCuts;
  double gapOfAllCuts = 0;  // if that is known
  int64_t numGroups = 0;    // (tp, pp, dp, microbatch, recompute, and two switches)
  int64_t numBounded = 0;   // candidates that got a bound of their own
  int64_t numCosted = 0;    // candidates that were estimated in full
  std::vector<PruneCount> pruned;
};

struct PlanResult {
  plan::Plan plan;
  cost::Estimate estimate;
  int64_t gpusUsed = 0;
  int64_t gpusAvailable = 0;
  int64_t gpusWithLayout = 0;         // the most that a legal layout has
  bool isPinned = false;              // the search had pins or limits besides that of devices
  std::optional<Seconds> stepOfMost;  // the fastest found on as many; none if none fits
  std::string partlyFilled;           // cost::partlyFilled() of the plan
  std::vector<RunnerUp> runnersUp;    // fastest first
  std::vector<Rejection> rejections;  // degrees that no plan could use
  Certificate certificate;
  double seconds = 0;  // that the search took
};

// The fastest plan that is sure to fit, beside an answer that is tight (isTight(), report.h).
struct Roomier {
  std::optional<CostedPlan> plan;  // none: nothing fits so well
};

}  // namespace trireme::planner
