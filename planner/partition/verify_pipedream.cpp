// PipedreamProblem::verify(): the value of a partition, from its layers and not from down-sets.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/base/format.h"
#include "planner/partition/pipedream.h"
#include "planner/partition/pipedream_costs.h"

namespace trireme::planner {
namespace {

class PlanVerifier {
 public:
  explicit PlanVerifier(const PipedreamProblem& problem)
      : problem_(problem), isPast_(problem.profile.layers.size(), false) {}

  // Marks the layers of the stages as past on the way.
  Result<double> timeOf(size_t level, const std::vector<PipedreamStage>& stages) {
    TRIREME_RETURN_IF_ERROR(checkReplicas(level, stages));
    double slowest = 0;
    int64_t behind = 0;
    for (const PipedreamStage& stage : stages) behind += stage.replicas;
    for (size_t i = 0; i < stages.size(); ++i) {
      const PipedreamStage& stage = stages[i];
      behind -= stage.replicas;
      const double before = borderBytes();
      TRIREME_ASSIGN_OR_RETURN(const double below, timeBelow(level, stage));
      const double after = borderBytes();
      TRIREME_RETURN_IF_ERROR(checkMemory(stage, behind));
      slowest = std::max(slowest, stageTime(level, stage, below, i == 0));
      if (i > 0) slowest = std::max(slowest, transferTime(level, stage, before, after));
    }
    return slowest;
  }

  Status checkCovered() const {
    for (size_t i = 0; i < isPast_.size(); ++i)
      if (!isPast_[i]) return fault(static_cast<int32_t>(i), "is in no stage");
    return {};
  }

 private:
  const spec::ProfileLayer& layer(int32_t i) const {
    return problem_.profile.layers[static_cast<size_t>(i)];
  }
  Status fault(int32_t i, const std::string& what) const {
    return invalidArgument(fmt::format("layer '{}' {}", layer(i).id, what));
  }

  Status checkReplicas(size_t level, const std::vector<PipedreamStage>& stages) const {
    int64_t sum = 0;
    for (const PipedreamStage& stage : stages) {
      if (stage.replicas < 1 || stage.layers.empty())
        return invalidArgument("a stage has no layers or no replicas");
      sum += stage.replicas;
    }
    const int64_t components = problem_.levels[level].components;
    if (sum == components || (problem_.mayLeaveIdle && sum < components && sum > 0)) return {};
    return invalidArgument(fmt::format("the stages of level {} have {} replicas, there are {} {}",
                                       level + 1, sum, components,
                                       level == 0 ? "workers" : "components"));
  }

  // The time of a stage's layers on one component; they are past then.
  Result<double> timeBelow(size_t level, const PipedreamStage& stage) {
    if (level == 0) {
      if (!stage.inner.empty()) return Error(invalidArgument("a worker holds no pipeline"));
      TRIREME_RETURN_IF_ERROR(pass(stage.layers));
      double time = 0;
      for (const int32_t i : stage.layers) time += plainVariant(layer(i)).time().count();
      return time;
    }
    std::vector<int32_t> inside;
    for (const PipedreamStage& inner : stage.inner)
      inside.insert(inside.end(), inner.layers.begin(), inner.layers.end());
    std::vector<int32_t> outside = stage.layers;
    std::sort(inside.begin(), inside.end());
    std::sort(outside.begin(), outside.end());
    if (inside != outside)
      return Error(invalidArgument("an inner pipeline has other layers than its stage"));
    return timeOf(level - 1, stage.inner);
  }

  Status pass(const std::vector<int32_t>& layers) {
    for (const int32_t i : layers) {
      if (i < 0 || static_cast<size_t>(i) >= isPast_.size())
        return invalidArgument(fmt::format("there is no layer {}", i));
      if (isPast_[static_cast<size_t>(i)]) return fault(i, "is in two stages");
      isPast_[static_cast<size_t>(i)] = true;
    }
    for (const spec::ProfileEdge& edge : problem_.profile.edges)
      if (isPast_[static_cast<size_t>(edge.to)] && !isPast_[static_cast<size_t>(edge.from)])
        return fault(edge.to,
                     fmt::format("comes before '{}', on which it depends", layer(edge.from).id));
    return {};
  }

  // From the past to what is still to come.
  double borderBytes() const {
    std::vector<double> ofLayer(isPast_.size(), 0);
    for (const spec::ProfileEdge& edge : problem_.profile.edges)
      if (isPast_[static_cast<size_t>(edge.from)] && !isPast_[static_cast<size_t>(edge.to)]) {
        double& most = ofLayer[static_cast<size_t>(edge.from)];
        most = std::max(most, edge.transfer.count());
      }
    double sum = 0;
    for (const double bytes : ofLayer) sum += bytes;
    return sum;
  }

  double weightsOf(const PipedreamStage& stage) const {
    double sum = 0;
    for (const int32_t i : stage.layers) sum += plainVariant(layer(i)).weights.count();
    return sum;
  }

  double stageTime(size_t level, const PipedreamStage& stage, double below, bool isFirst) const {
    const auto r = static_cast<double>(stage.replicas);
    const double bandwidth = problem_.levels[level].bandwidth.count();
    const double w = weightsOf(stage);
    switch (problem_.form) {
      case PipedreamForm::kHierarchical:
        return std::max(below, 2 * (r - 1) * w / bandwidth) / r;
      case PipedreamForm::kFlat:
        return std::max(below, 4 * (r - 1) * w / (r * bandwidth)) / r;
      case PipedreamForm::kReleased:
        break;
    }
    double sync = 4 * (r - 1) * w / (r * bandwidth);
    if (isFirst && level > 0) sync /= static_cast<double>(problem_.levels[level - 1].components);
    return (below + sync) / r;
  }

  double transferTime(size_t level, const PipedreamStage& stage, double before,
                      double after) const {
    const double bandwidth = problem_.levels[level].bandwidth.count();
    if (problem_.form != PipedreamForm::kReleased) return 2 * before / bandwidth;
    if (!problem_.countTransfers) return 0;
    return 2 * std::max(before, after) / (bandwidth * static_cast<double>(stage.replicas));
  }

  Status checkMemory(const PipedreamStage& stage, int64_t behind) const {
    if (!problem_.memory) return {};
    const auto versions =
        std::ceil(static_cast<double>(behind) / static_cast<double>(stage.replicas));
    Bytes bytes(weightsOf(stage));
    for (const int32_t i : stage.layers) bytes += layer(i).activation.value_or(Bytes(0));
    if (versions * bytes <= *problem_.memory) return {};
    return fault(stage.layers.front(),
                 fmt::format("is in a stage that keeps {} versions of {}, {} in all; there is {}",
                             versions, formatBytes(bytes), formatBytes(versions * bytes),
                             formatBytes(*problem_.memory)));
  }

  const PipedreamProblem& problem_;
  std::vector<bool> isPast_;
};

}  // namespace

Status PipedreamProblem::verify(const PipedreamPartition& partition) const {
  TRIREME_RETURN_IF_ERROR(check());
  PlanVerifier verifier(*this);
  TRIREME_ASSIGN_OR_RETURN(const double time, verifier.timeOf(levels.size() - 1, partition.stages));
  TRIREME_RETURN_IF_ERROR(verifier.checkCovered());
  const double said = partition.time.count();
  if (std::abs(time - said) > 1e-9 * std::max(time, said))
    return invalidArgument(fmt::format("the partition takes {} s and says {} s", time, said));
  return {};
}

}  // namespace trireme::planner
