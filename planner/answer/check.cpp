#include "planner/answer/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cost_models/estimate.h"
#include "ir/base/format.h"
#include "ir/plan/choices.h"
#include "ir/spec/load.h"
#include "ir/spec/shipped.h"
#include "ir/spec/stack_on_device.h"
#include "planner/answer/adopt.h"
#include "planner/question.h"
#include "planner/rounding.h"
#include "planner/search/pins.h"
#include "planner/supported.h"

namespace trireme::planner {
namespace {

bool fits(const Alternative& a) {
  return a.outcome != Outcome::kForbidden && a.outcome != Outcome::kDoesNotFit;
}

// Whether `a` helps more than `b`, where both help.
bool helpsMore(const Alternative& a, const Alternative& b) {
  if (fits(a) != fits(b)) return fits(a);
  return fits(a) ? a.difference < b.difference : a.missing < b.missing;
}

std::optional<Alternative> bestChange(const cost::Estimate& estimate,
                                      const std::vector<Alternative>& changes) {
  std::optional<Alternative> best;
  for (const Alternative& a : changes) {
    if (a.outcome == Outcome::kForbidden) continue;
    const bool helps =
        estimate.fits() ? a.outcome == Outcome::kFaster : fits(a) || a.missing < estimate.missing();
    if (helps && (!best || helpsMore(a, *best))) best = a;
  }
  return best;
}

Status enoughDevices(const plan::Plan& plan, const spec::ClusterSpec& cluster) {
  if (plan.numRanks() <= cluster.numDevices) return {};
  return invalidArgument(fmt::format(
      "the plan needs {} devices (tp {} x pp {} x cp {} x dp {}), cluster '{}' has {}",
      plan.numRanks(), plan.tp, plan.pp, plan.cp, plan.dp(), cluster.name, cluster.numDevices));
}

// Of all hosts of a plan, which it may not fill though it is on several.
int64_t devicesOf(const plan::Plan& plan, const spec::ClusterSpec& cluster) {
  const int64_t host = cluster.devicesPerHost(), ranks = plan.numRanks();
  if (plan.devicesPerHost == 0 || plan.devicesPerHost >= host || ranks <= plan.devicesPerHost)
    return ranks;
  const auto each = plan::ranksPerHost(plan);
  return each ? ranks / *each * host : ranks;
}

}  // namespace

Query queryOf(const plan::Plan& plan, const spec::ModelSpec& model,
              const spec::ClusterSpec& cluster, const spec::StackProfile& stack) {
  Query query;
  query.model = model;
  query.training = plan.training;
  query.cluster = cluster;
  query.stack = stack;
  query.pins.gpus = std::min(plan.numRanks(), cluster.numDevices);
  query.vocabMultiple = plan.vocabMultiple;
  return withStackOnDevice(query);
}

Result<spec::StackProfile> stackFor(const plan::Plan& plan, const std::string& file,
                                    const std::string& stackPath) {
  if (!stackPath.empty()) return spec::loadStack(stackPath);
  if (plan.stack == spec::StackProfile{}.name) return ownStack();
  if (spec::findShipped(spec::ShippedKind::kStack, plan.stack)) return spec::loadStack(plan.stack);
  return Error(invalidArgument(fmt::format(
      "{}: the plan was made for stack '{}': give its profile with --stack", file, plan.stack)));
}

Result<Query> pricingQuery(const plan::Plan& plan, const std::string& file,
                           const spec::ModelSpec& model, spec::ClusterSpec cluster,
                           const std::string& stackPath) {
  if (const Status status = plan::verifyPlan(plan, model); !status.ok())
    return Error(status.withContext(file));
  TRIREME_ASSIGN_OR_RETURN(const spec::StackProfile stack, stackFor(plan, file, stackPath));
  const int64_t devices = cluster.scalable ? devicesOf(plan, cluster) : plan.numRanks();
  Result<spec::ClusterSpec> grown = spec::withRoomFor(std::move(cluster), devices);
  if (!grown.has_value()) return Error(grown.error().withContext(file));
  return queryOf(plan, model, *std::move(grown), stack);
}

Status checkNamedStack(const plan::Plan& plan, const std::string& file,
                       const spec::ModelSpec& model, const std::string& stackPath) {
  const Result<spec::StackProfile> stack = stackFor(plan, file, stackPath);
  if (!stack.has_value()) return stackPath.empty() ? Status() : stack.error();
  // The device is not known, the precision is.
  return checkSupported(plan, model, spec::stackOn(*stack, plan.training.precision, {}))
      .withContext(file);
}

plan::Plan onHostsOf(const spec::ClusterSpec& cluster, plan::Plan plan) {
  if (plan.devicesPerHost == 0) plan.devicesPerHost = cluster.devicesPerHost();
  return plan;
}

std::string otherStackNote(const plan::Plan& plan, const std::string& file,
                           const spec::StackProfile& stack) {
  if (plan.stack == stack.name) return "";
  return fmt::format("{}: made for stack '{}', priced for '{}'", file, plan.stack, stack.name);
}

namespace {

std::string counted(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

plan::Plan asLaunched(plan::Plan plan, int64_t launched, const spec::ClusterSpec& cluster) {
  const int64_t host = cluster.devicesPerHost();
  if (plan.devicesPerHost > 0 || launched == 0 || launched > host ||
      plan::ranksPerHost(plan.numRanks(), plan.tp, host) == launched)
    return plan;
  plan.devicesPerHost = launched;
  return plan;
}

std::string otherHostsNote(const plan::Plan& plan, const std::string& file, int64_t launched,
                           const spec::ClusterSpec& cluster) {
  const int64_t host = cluster.devicesPerHost(), ranks = plan.numRanks();
  if (host == 0) return "";
  const auto here = plan::ranksPerHost(ranks, plan.tp, host), there = plan::ranksPerHost(plan);
  const bool isPart = launched == 0 && plan.devicesPerHost > 0 && plan.devicesPerHost < host;
  if (isPart && here && there && *there < *here)
    return fmt::format(
        "{}: devices_per_host {}: priced are {} on each of {} hosts of {} devices, which cluster "
        "'{}' has; without it they fill {}",
        file, plan.devicesPerHost, counted(*there, "rank"), ranks / *there, host, cluster.name,
        counted(ranks / *here, "host"));
  if (isPart && !there)
    return fmt::format(
        "{}: devices_per_host {}: {} do not divide over such hosts; priced as on full ones of {} "
        "devices",
        file, plan.devicesPerHost, counted(ranks, "rank"), host);
  const int64_t devices = cluster.scalable ? ranks * host : cluster.numDevices;
  const auto alike = plan::alikeOfHost(ranks, plan.tp, host, devices);
  if (plan.devicesPerHost == 0 && !here && alike && launched == 0)
    return fmt::format(
        "{}: does not say how many of its {} a host has: priced on full hosts of {} devices, with "
        "{} on the last; {} on each of {} hosts take another time (devices_per_host of a plan)",
        file, counted(ranks, "rank"), host, ranks % host, *alike, ranks / *alike);
  if (launched <= host) return "";
  const int64_t hosts = (ranks + launched - 1) / launched, block = cluster.tiers.front().devices;
  const int64_t ofPrice = (ranks + host - 1) / host;
  const bool isInBlock = host < block && ofPrice * host <= block;
  if (isInBlock && hosts == 1) return "";
  return fmt::format(
      "{}: launches {} on {}{}; priced are all {} on {} of {} devices, those of cluster '{}': {}, "
      "and its step takes another time",
      file, counted(launched, "rank"), hosts > 1 ? "each of " : "", counted(hosts, "host"), ranks,
      counted(ofPrice, "host"), host, cluster.name,
      isInBlock ? fmt::format("all lie within a block of {} here", block)
                : fmt::format("groups that lie across hosts here may lie within one of {} there",
                              launched));
}

std::string overlapNote(const plan::Plan& plan, const std::string& file,
                        const std::vector<std::string>& switches, const Query& query,
                        const spec::StackProfile& full) {
  if (switches.empty() || !checkSupported(plan, query.model, full).ok()) return "";
  const auto with = cost::estimate(query.model, plan, query.cluster, full);
  const auto without = cost::estimate(query.model, plan, query.cluster, query.stack);
  if (!with.has_value() || !without.has_value()) return "";
  const std::string missing =
      fmt::format("{}: without {} communication that they hide is counted in full", file,
                  fmt::join(switches, " and "));
  if (without->step == with->step)
    return missing + " for the optimum; it changes nothing of the plan";
  return fmt::format(
      "{}, for it and the optimum; the step takes {} with what 'trireme export' writes", missing,
      formatSeconds(with->step));
}

namespace {

// Of as many devices as the plan has ranks or, where it is faster than those for it lies on parts
// of more hosts, of all of these.
Result<PlanResult> searchBeside(Query query, const CostFunctions& costs, const PlanCheck& check,
                                const SearchProgress& progress) {
  Result<PlanResult> found = searchPlan(query, costs, progress);
  const int64_t onHosts = std::min(devicesOf(check.plan, query.cluster), query.cluster.numDevices);
  const bool isBehind =
      !found.has_value() || found->estimate.step > check.estimate.step * (1 + kTie);
  if (!check.estimate.fits() || onHosts <= query.pins.gpus.value_or(onHosts) || !isBehind)
    return found;
  query.pins.gpus = onHosts;
  return searchPlan(query, modelCosts(query), progress);
}

// One choice changed may make a faster plan than the search found, by a cut beyond the space.
Status adoptBestChange(const Query& query, const CostFunctions& costs, PlanCheck& check) {
  if (!check.bestChange || check.bestChange->outcome != Outcome::kFaster ||
      !obeys(query.pins, check.bestChange->plan))
    return {};
  CostedPlan faster{check.bestChange->plan, {}};
  TRIREME_ASSIGN_OR_RETURN(faster.estimate, costs.estimate(faster.plan));
  if (faster.estimate.fits() && faster.estimate.step < check.optimum->estimate.step)
    adopt(std::move(faster), query, *check.optimum);
  return {};
}

}  // namespace

Result<PlanCheck> checkPlan(const plan::Plan& plan, const Query& query,
                            const SearchProgress& progress) {
  TRIREME_RETURN_IF_ERROR(plan::verifyPlan(plan, query.model));
  const plan::Plan placed = onHostsOf(query.cluster, plan);
  TRIREME_RETURN_IF_ERROR(checkSupported(placed, query.model, query.stack));
  TRIREME_RETURN_IF_ERROR(enoughDevices(plan, query.cluster));
  const CostFunctions costs = modelCosts(query);
  PlanCheck check;
  check.plan = placed;
  TRIREME_ASSIGN_OR_RETURN(check.estimate, costs.estimate(placed));
  TRIREME_ASSIGN_OR_RETURN(check.explanation, explain(query, placed, check.estimate, costs));
  TRIREME_ASSIGN_OR_RETURN(const std::vector<Alternative> changes,
                           check.estimate.fits()
                               ? fasterChanges(query, placed, check.estimate, costs)
                               : singleChanges(query, placed, check.estimate, costs, Reach::kAny));
  check.bestChange = bestChange(check.estimate, changes);
  Result<PlanResult> optimum = searchBeside(query, costs, check, progress);
  if (optimum.has_value()) {
    check.optimum = *std::move(optimum);
    TRIREME_RETURN_IF_ERROR(adoptBestChange(query, costs, check));
    plan::Plan& best = check.optimum->plan;  // the plan, whatever it says of hosts that it fills
    if (plan::ranksPerHost(best) == plan::ranksPerHost(placed))
      best.devicesPerHost = placed.devicesPerHost;
  } else if (optimum.error().code() == StatusCode::kInfeasible) {
    check.noOptimum = optimum.error().message();
  } else {
    return Error(optimum.error());
  }
  return check;
}

}  // namespace trireme::planner
