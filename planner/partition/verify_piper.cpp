// PiperProblem::verify(): the value of a partition, straight from the definition in piper.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/base/format.h"
#include "planner/partition/piper.h"

namespace trireme::planner {
namespace {

bool differ(double a, double b) {
  return std::abs(a - b) > 1e-9 * std::max(std::abs(a), std::abs(b));
}

class PlacementVerifier {
 public:
  PlacementVerifier(const PiperProblem& problem, const PiperPartition& partition)
      : problem_(problem), partition_(partition), stageOf_(problem.profile.layers.size(), -1) {}

  Status verify() {
    TRIREME_RETURN_IF_ERROR(assignLayers());
    TRIREME_RETURN_IF_ERROR(checkDegrees());
    double slowest = 0;
    int64_t sumD = 0;
    for (size_t s = partition_.stages.size(); s-- > 0;) {
      const PiperStage& stage = partition_.stages[s];
      sumD += stage.dataDegree;
      TRIREME_RETURN_IF_ERROR(checkVariants(stage));
      const double time = timeOf(stage);
      slowest = std::max(slowest, time);
      if (differ(time, stage.time.count()))
        return fault(s, fmt::format("takes {} s and says {} s", time, stage.time.count()));
      TRIREME_RETURN_IF_ERROR(checkMemory(s, (sumD + stage.dataDegree - 1) / stage.dataDegree));
    }
    if (differ(slowest, partition_.time.count()))
      return invalidArgument(fmt::format("the slowest stage takes {} s, the partition says {} s",
                                         slowest, partition_.time.count()));
    return {};
  }

 private:
  static Status fault(size_t stage, const std::string& what) {
    return invalidArgument(fmt::format("stage {} {}", stage, what));
  }
  const spec::ProfileLayer& layer(int32_t i) const {
    return problem_.profile.layers[static_cast<size_t>(i)];
  }
  const spec::ProfileVariant& variant(const PiperStage& stage, size_t i) const {
    return layer(stage.layers[i]).variants[static_cast<size_t>(stage.variants[i])];
  }

  Status assignLayers() {
    for (size_t s = 0; s < partition_.stages.size(); ++s) {
      if (partition_.stages[s].layers.empty()) return fault(s, "has no layers");
      for (const int32_t i : partition_.stages[s].layers) {
        if (i < 0 || static_cast<size_t>(i) >= stageOf_.size())
          return fault(s, fmt::format("has layer {}, which is not there", i));
        int32_t& of = stageOf_[static_cast<size_t>(i)];
        if (of >= 0)
          return fault(s, fmt::format("has layer '{}', and so has stage {}", layer(i).id, of));
        of = static_cast<int32_t>(s);
      }
    }
    for (size_t i = 0; i < stageOf_.size(); ++i)
      if (stageOf_[i] < 0)
        return invalidArgument(
            fmt::format("layer '{}' is in no stage", problem_.profile.layers[i].id));
    for (const spec::ProfileEdge& edge : problem_.profile.edges)
      if (stageOf_[static_cast<size_t>(edge.from)] > stageOf_[static_cast<size_t>(edge.to)])
        return invalidArgument(fmt::format("layer '{}' comes before '{}', on which it depends",
                                           layer(edge.to).id, layer(edge.from).id));
    return {};
  }

  Status checkDegrees() const {
    int64_t devices = 0, sumD = 0;
    for (size_t s = 0; s < partition_.stages.size(); ++s) {
      const PiperStage& stage = partition_.stages[s];
      if (stage.dataDegree < 1 || problem_.microbatches % stage.dataDegree != 0)
        return fault(s, fmt::format("has data degree {}, which does not divide {} microbatches",
                                    stage.dataDegree, problem_.microbatches));
      devices += stage.dataDegree * stage.tensorDegree;
      sumD += stage.dataDegree;
    }
    if (devices > problem_.devices)
      return invalidArgument(
          fmt::format("the stages use {} devices, there are {}", devices, problem_.devices));
    if (devices != partition_.devicesUsed)
      return invalidArgument(fmt::format("the stages use {} devices, the partition says {}",
                                         devices, partition_.devicesUsed));
    if (sumD > problem_.microbatches)
      return invalidArgument(fmt::format("the data degrees add up to {}, there are {} microbatches",
                                         sumD, problem_.microbatches));
    return {};
  }

  Status checkVariants(const PiperStage& stage) const {
    if (stage.variants.size() != stage.layers.size())
      return invalidArgument("a stage has other numbers of layers and of variants");
    for (size_t i = 0; i < stage.layers.size(); ++i) {
      const spec::ProfileLayer& of = layer(stage.layers[i]);
      const int32_t v = stage.variants[i];
      if (v < 0 || static_cast<size_t>(v) >= of.variants.size() ||
          of.variants[static_cast<size_t>(v)].tensorDegree != stage.tensorDegree)
        return invalidArgument(fmt::format("layer '{}' has no variant {} at tensor degree {}",
                                           of.id, v, stage.tensorDegree));
    }
    return {};
  }

  double timeOf(const PiperStage& stage) const {
    const auto d = static_cast<double>(stage.dataDegree);
    double compute = 0, edgeBytes = 0, syncBytes = 0;
    for (size_t i = 0; i < stage.layers.size(); ++i) {
      const spec::ProfileVariant& v = variant(stage, i);
      compute += v.time().count();
      syncBytes += 4 * (d - 1) / d * v.weights.count() / static_cast<double>(problem_.microbatches);
      for (size_t e = 0; e < problem_.profile.edges.size(); ++e) {
        const spec::ProfileEdge& edge = problem_.profile.edges[e];
        const int32_t self = stage.layers[i];
        if (edge.from != self && edge.to != self) continue;
        if (stageOf_[static_cast<size_t>(edge.from)] == stageOf_[static_cast<size_t>(edge.to)])
          continue;
        edgeBytes += 2 * edge.transfer.count();
        for (const spec::EdgeBytes& sync : v.sync)
          if (sync.edge == static_cast<int32_t>(e)) edgeBytes += 2 * sync.bytes.count();
      }
    }
    return (edgeBytes / d + syncBytes) / problem_.bandwidth.count() + compute / d;
  }

  Status checkMemory(size_t s, int64_t inFlight) const {
    const PiperStage& stage = partition_.stages[s];
    std::optional<Bytes> bytes = Bytes(0);
    for (size_t i = 0; i < stage.layers.size(); ++i) {
      const spec::ProfileVariant& v = variant(stage, i);
      if (bytes && v.stored && v.resident)
        *bytes += *v.stored * static_cast<double>(inFlight) + *v.resident;
      else
        bytes.reset();
    }
    if (bytes.has_value() != stage.memory.has_value() ||
        (bytes && differ(bytes->count(), stage.memory->count())))
      return fault(s, "says another memory than its variants need");
    if (problem_.memory && bytes && bytes->count() > problem_.memory->count() * (1 + 1e-12))
      return fault(s, fmt::format("needs {}, there is {}", formatBytes(*bytes),
                                  formatBytes(*problem_.memory)));
    return {};
  }

  const PiperProblem& problem_;
  const PiperPartition& partition_;
  std::vector<int32_t> stageOf_;
};

}  // namespace

Status PiperProblem::verify(const PiperPartition& partition) const {
  TRIREME_RETURN_IF_ERROR(check());
  return PlacementVerifier(*this, partition).verify();
}

}  // namespace trireme::planner
