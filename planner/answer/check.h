// A plan that somebody wrote, priced and set beside the best one.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "planner/answer/explain.h"
#include "planner/query.h"
#include "planner/search/search.h"

namespace trireme::planner {

struct PlanCheck {
  plan::Plan plan;
  cost::Estimate estimate;
  // Of the same training on as many devices as the plan has ranks; where the plan is faster, for it
  // lies on parts of its hosts, on all devices of these.
  std::optional<PlanResult> optimum;
  std::string noOptimum;    // why there is none: nothing fits
  Explanation explanation;  // what the next values of its choices are worth
  // Of all changes of one choice, to any value. Of a plan that fits: the one that saves most time,
  // if one does. Of a plan that does not: the fastest that fits or, if none does, the one that
  // comes nearest to it.
  std::optional<Alternative> bestChange;

  // The plan's step beyond the optimum's. Negative for a plan outside of the search's space, or
  // one that does not fit. Requires an optimum.
  Seconds behind() const { return estimate.step - optimum->estimate.step; }
};

// What the plan answers: its training and padding, as many devices as it uses, nothing pinned.
Query queryOf(const plan::Plan& plan, const spec::ModelSpec& model,
              const spec::ClusterSpec& cluster, const spec::StackProfile& stack);

// The stack profile at `stackPath` or, if that is empty, the one that the plan from `file` was made
// for. kInvalidArgument: that is not shipped.
Result<spec::StackProfile> stackFor(const plan::Plan& plan, const std::string& file,
                                    const std::string& stackPath);

// The same for a plan from `file`: legal, on a cluster that is as large as it needs if its file
// says that there are more devices, with stackFor(). kInvalidArgument: the plan breaks a rule;
// errors of stackFor().
Result<Query> pricingQuery(const plan::Plan& plan, const std::string& file,
                           const spec::ModelSpec& model, spec::ClusterSpec cluster,
                           const std::string& stackPath);
// kInvalidArgument: the plan from `file` asks what that stack cannot do (checkSupported). Of one
// that the plan names and that is not shipped nothing is known, so that nothing is refused; errors
// of spec::loadStack for `stackPath`.
Status checkNamedStack(const plan::Plan& plan, const std::string& file,
                       const spec::ModelSpec& model, const std::string& stackPath);
// The plan on the cluster's hosts, if it does not say its own.
plan::Plan onHostsOf(const spec::ClusterSpec& cluster, plan::Plan plan);
// Another stack is another question, which may be asked: says so; empty if it is the plan's.
std::string otherStackNote(const plan::Plan& plan, const std::string& file,
                           const spec::StackProfile& stack);

// A plan whose launcher starts `launched` ranks on every host (0: it is not said), to be priced so
// on the cluster's hosts, if they have as many devices.
plan::Plan asLaunched(plan::Plan plan, int64_t launched, const spec::ClusterSpec& cluster);
// Of a plan from `file` with more ranks on a host than the cluster's have: what is priced instead;
// with fewer, by its own devicesPerHost and not its launcher's, though they would fill hosts: so.
// Of ranks that leave the last host partly empty: that, and how hosts could be alike.
// Empty if that is the same, as all are in one block of the innermost tier.
std::string otherHostsNote(const plan::Plan& plan, const std::string& file, int64_t launched,
                           const spec::ClusterSpec& cluster);

// A plan from `file`, whose program leaves out `switches`, and so runs nothing beside computation
// that `query` counts in full: how long it takes with them, on `full`, the stack as its profile is.
// Empty if there are no switches, or if the plan cannot be priced.
std::string overlapNote(const plan::Plan& plan, const std::string& file,
                        const std::vector<std::string>& switches, const Query& query,
                        const spec::StackProfile& full);

// kInvalidArgument: the plan breaks a rule (verifyPlan, which also refuses plans for another
// model), asks what the stack cannot do on the cluster's hosts, or needs more devices than the
// cluster has; or the specs are invalid. Nothing else is an error: a plan may not fit, and have no
// optimum to be compared with. `query` is queryOf(plan), with any topK, and perhaps with fewer
// choices and more pins: what the plan is held against.
Result<PlanCheck> checkPlan(const plan::Plan& plan, const Query& query,
                            const SearchProgress& progress = {});

}  // namespace trireme::planner
