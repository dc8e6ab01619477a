#include "planner/search/branch_and_bound.h"

#include <algorithm>
#include <string>
#include <utility>

#include "planner/parts.h"

namespace trireme::planner {
namespace {

constexpr int64_t kStepsToShow = 64;  // progress is of the first ones and then of every so many

constexpr NodeKind kNodeKinds[] = {
    NodeKind::kGroup,       NodeKind::kLikenedGroup,       NodeKind::kProbedGroup,
    NodeKind::kArrangement, NodeKind::kBoundedArrangement, NodeKind::kUncut,
    NodeKind::kCandidate};

const char* boundRule(NodeKind kind) {
  return kind <= NodeKind::kProbedGroup ? "group bound" : "bound";
}

}  // namespace

bool BranchAndBound::better(const CostedPlan& a, const CostedPlan& b) {
  if (a.estimate.step != b.estimate.step) return a.estimate.step < b.estimate.step;
  return simplerThan(a.plan, b.plan);
}

std::optional<Seconds> BranchAndBound::bestStep(std::optional<int64_t> gpus) const {
  std::optional<Seconds> step;
  for (const auto& [degrees, costed] : best_)
    if ((!gpus || costed.plan.numRanks() == *gpus) && (!step || costed.estimate.step < *step))
      step = costed.estimate.step;
  return step;
}

std::vector<CostedPlan> BranchAndBound::ranked() const {
  std::vector<CostedPlan> all;
  for (const auto& [degrees, costed] : best_) all.push_back(costed);
  std::sort(all.begin(), all.end(), better);
  return all;
}

std::optional<Seconds> BranchAndBound::cutoff() const {
  const auto wanted = static_cast<size_t>(std::max(query_.topK, 1));
  if (best_.size() < wanted) return query_.slowest;
  std::vector<Seconds> times;
  times.reserve(best_.size());
  for (const auto& [degrees, costed] : best_) times.push_back(costed.estimate.step);
  std::nth_element(times.begin(), times.begin() + static_cast<long>(wanted - 1), times.end());
  return query_.slowest ? std::min(*query_.slowest, times[wanted - 1]) : times[wanted - 1];
}

std::optional<Seconds> BranchAndBound::limitOf(const Node& node) const {
  const std::optional<Seconds> limit = cutoff();
  const auto found = best_.find(degreesOf(node.group));
  if (found == best_.end()) return limit;
  const Seconds step = found->second.estimate.step;
  return limit ? std::min(*limit, step) : step;
}

// Whether the plans fit is not known.
void BranchAndBound::pruneSlow(const Node& node, int64_t count, std::string_view rule) {
  pruned_[rule] += count;
  slow_.insert(degreesOf(node.group));
}

// Another plan of the same degrees is already faster than anything below this node.
bool BranchAndBound::isSettled(const Node& node) const {
  const auto found = best_.find(degreesOf(node.group));
  return found != best_.end() && node.bound > found->second.estimate.step;
}

Status BranchAndBound::run() {
  while (!frontier_.empty() && !isDone()) {
    const std::optional<Seconds> limit = cutoff();
    if (limit && frontier_.lowestBound() > *limit) break;
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

Status BranchAndBound::open(const Node& node) {
  const bool isArrangement =
      node.kind == NodeKind::kArrangement || node.kind == NodeKind::kBoundedArrangement;
  if (isArrangement && !query_.stack.ownPrograms) {
    TRIREME_ASSIGN_OR_RETURN(const bool isVain, recomputesInVain(node));
    if (isVain) {
      prune("recomputation");
      return {};
    }
  }
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
      if (query_.stack.ownPrograms)
        boundCuts(node, *node.plan);
      else
        boundArrangement(node);
      return {};
    case NodeKind::kBoundedArrangement:
      splitArrangement(node);
      return {};
    case NodeKind::kUncut:
      return cut(node);
    case NodeKind::kCandidate:
      return costCandidate(node);
  }
  return {};
}

Status BranchAndBound::costCandidate(const Node& node) {
  CostedPlan costed{*node.plan, {}};
  TRIREME_ASSIGN_OR_RETURN(costed.estimate, costs_.estimate(*node.plan));
  ++certificate_.numCosted;
  if (!costed.estimate.fits()) {
    noteMemory(costed.plan, costed.estimate.memory.total());
    return node.blocks == nullptr ? Status() : refit(node, std::move(costed));
  }
  keep(std::move(costed));
  return {};
}

void BranchAndBound::keep(CostedPlan costed) {
  const auto [place, isNew] = best_.try_emplace(degreesOf(costed.plan), costed);
  if (!isNew && better(costed, place->second)) place->second = std::move(costed);
}

void BranchAndBound::noteMemory(const plan::Plan& plan, Bytes memory) {
  prune("memory");
  if (scope_.isAnswer) misfits_.note(plan, memory);
}

void BranchAndBound::noteUncut(plan::Plan plan, const SharedBlocks& blocks) {
  prune("memory");
  if (scope_.isAnswer && !best_.contains(degreesOf(plan)))
    misfits_.noteUncut(std::move(plan), blocks);
}

bool BranchAndBound::mayFit(const Degrees& degrees) const {
  return best_.contains(degrees) || frontier_.isOpen(degrees) || slow_.contains(degrees);
}

void BranchAndBound::fillCertificate(Seconds step) {
  const Seconds open = frontier_.empty() ? step : std::min(step, frontier_.lowestBound());
  certificate_.bound = std::min(open, uncostedEven_);
  certificate_.gap = 1 - certificate_.bound / step;
  const Seconds ofAllCuts = std::min(open, uncosted_);
  if (!query_.stack.ownPrograms || ofAllCuts >= certificate_.bound) return;
  certificate_.ofEvenChunks = true;
  certificate_.boundOfAllCuts = ofAllCuts;
  certificate_.gapOfAllCuts = 1 - ofAllCuts / step;
}

Result<PlanResult> BranchAndBound::takeResult() {
  const std::vector<CostedPlan> all = ranked();
  const CostedPlan& winner = all.front();
  PlanResult result;
  result.plan = winner.plan;
  result.estimate = winner.estimate;
  const auto shown = std::min(all.size(), static_cast<size_t>(std::max(query_.topK, 1)));
  for (size_t i = 1; i < shown; ++i) result.runnersUp.push_back(runnerUpOf(all[i], winner));
  result.rejections = std::move(rejections_);
  TRIREME_ASSIGN_OR_RETURN(
      std::vector<Rejection> misfits,
      misfits_.rejections(mostGpus_, [&](const Degrees& degrees) { return mayFit(degrees); }));
  for (Rejection& misfit : misfits) result.rejections.push_back(std::move(misfit));

  fillCertificate(winner.estimate.step);
  for (const NodeKind kind : kNodeKinds)
    if (const int64_t open = frontier_.numOpen(kind)) pruned_[boundRule(kind)] += open;
  for (const auto& [rule, count] : pruned_)
    certificate_.pruned.push_back({std::string(rule), count});
  result.certificate = std::move(certificate_);
  return result;
}

}  // namespace trireme::planner
