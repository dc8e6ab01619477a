#include "planner/partition/piper_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace trireme::planner {
namespace {

constexpr size_t kMaxStages = 4'000'000;

double syncOf(const spec::ProfileVariant& variant, int32_t edge) {
  for (const spec::EdgeBytes& sync : variant.sync)
    if (sync.edge == edge) return sync.bytes.count();
  return 0;
}

}  // namespace

PiperCosts::PiperCosts(const PiperProblem& problem, const DownSets& sets)
    : problem_(problem),
      sets_(sets),
      edgesOf_(problem.profile.layers.size()),
      deviceSeconds_(sets.size()),
      replicaSeconds_(sets.size()) {
  const spec::ProfileSpec& profile = problem.profile;
  for (size_t e = 0; e < profile.edges.size(); ++e)
    for (const int32_t end : {profile.edges[e].from, profile.edges[e].to})
      edgesOf_[static_cast<size_t>(end)].push_back(static_cast<int32_t>(e));
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    double leastByDevice = std::numeric_limits<double>::infinity(), leastByReplica = leastByDevice;
    for (const spec::ProfileVariant& variant : profile.layers[i].variants) {
      const double time = variant.time().count();
      leastByReplica = std::min(leastByReplica, time);
      leastByDevice = std::min(leastByDevice, time * static_cast<double>(variant.tensorDegree));
      if (variant.tensorDegree <= problem.devices) degrees_.push_back(variant.tensorDegree);
    }
    for (size_t set = 0; set < sets.size(); ++set) {
      if (!sets.contains(set, static_cast<int32_t>(i))) continue;
      deviceSeconds_[set] += leastByDevice;
      replicaSeconds_[set] += leastByReplica;
    }
  }
  std::sort(degrees_.begin(), degrees_.end());
  degrees_.erase(std::unique(degrees_.begin(), degrees_.end()), degrees_.end());
}

Result<PiperCosts> PiperCosts::of(const PiperProblem& problem, const DownSets& sets) {
  PiperCosts costs(problem, sets);
  for (size_t to = 0; to < sets.size(); ++to) {
    costs.first_.push_back(costs.shapes_.size());
    TRIREME_RETURN_IF_ERROR(costs.addShapes(to));
  }
  costs.first_.push_back(costs.shapes_.size());
  return costs;
}

Status PiperCosts::addShapes(size_t to) {
  std::vector<Terms> terms;
  for (const int32_t from : sets_.within(to)) {
    const std::vector<int32_t> layers = sets_.difference(static_cast<size_t>(from), to);
    for (const int64_t degree : degrees_) {
      StageShape shape{from, static_cast<int32_t>(to), degree};
      bool isPossible = true;
      for (const int32_t layer : layers) {
        termsOf(layer, shape, &terms);
        isPossible = !terms.empty();
        if (!isPossible) break;
        const auto least = [&](double Terms::* term) {
          return (*std::min_element(
                     terms.begin(), terms.end(),
                     [&](const Terms& a, const Terms& b) { return a.*term < b.*term; })).*
                 term;
        };
        shape.busy += least(&Terms::busy);
        shape.sync += least(&Terms::sync);
        shape.stored += least(&Terms::stored);
        shape.resident += least(&Terms::resident);
      }
      if (isPossible) shapes_.push_back(shape);
    }
    if (shapes_.size() > kMaxStages)
      return resourceExhausted(fmt::format(
          "the profile has more than {} possible stages ({} ways to cut it in two); merge layers",
          kMaxStages, sets_.size()));
  }
  return {};
}

void PiperCosts::termsOf(int32_t layer, const StageShape& shape, std::vector<Terms>* out) const {
  out->clear();
  const auto inside = [&](int32_t i) {
    return sets_.contains(static_cast<size_t>(shape.to), i) &&
           !sets_.contains(static_cast<size_t>(shape.from), i);
  };
  const spec::ProfileSpec& profile = problem_.profile;
  for (const spec::ProfileVariant& v : profile.layers[static_cast<size_t>(layer)].variants) {
    if (v.tensorDegree != shape.tensorDegree) continue;
    double crossing = 0;
    for (const int32_t e : edgesOf_[static_cast<size_t>(layer)]) {
      const spec::ProfileEdge& edge = profile.edges[static_cast<size_t>(e)];
      if (!inside(edge.from == layer ? edge.to : edge.from))
        crossing += 2 * (edge.transfer.count() + syncOf(v, e));
    }
    const double bandwidth = problem_.bandwidth.count();
    out->push_back({v.time().count() + crossing / bandwidth,
                    4 * v.weights.count() / static_cast<double>(problem_.microbatches) / bandwidth,
                    v.stored.value_or(Bytes(0)).count(), v.resident.value_or(Bytes(0)).count()});
  }
}

VariantChoice PiperCosts::choice(const StageShape& shape, int64_t d, int64_t y,
                                 double capacity) const {
  std::vector<std::vector<Option>> items;
  std::vector<Terms> terms;
  for (const int32_t layer :
       sets_.difference(static_cast<size_t>(shape.from), static_cast<size_t>(shape.to))) {
    termsOf(layer, shape, &terms);
    std::vector<Option>& options = items.emplace_back();
    for (const Terms& t : terms)
      options.push_back({t.busy + static_cast<double>(d - 1) * t.sync,
                         t.stored * static_cast<double>(y) + t.resident});
  }
  return VariantChoice(items, capacity);
}

double PiperCosts::leastMemory(const StageShape& shape, int64_t y) const {
  double sum = 0;
  std::vector<Terms> terms;
  for (const int32_t layer :
       sets_.difference(static_cast<size_t>(shape.from), static_cast<size_t>(shape.to))) {
    termsOf(layer, shape, &terms);
    double least = std::numeric_limits<double>::infinity();
    for (const Terms& t : terms)
      least = std::min(least, t.stored * static_cast<double>(y) + t.resident);
    sum += least;
  }
  return sum;
}

int32_t PiperCosts::variantOf(int32_t layer, int64_t tensorDegree, int32_t pick) const {
  const auto& variants = problem_.profile.layers[static_cast<size_t>(layer)].variants;
  for (size_t i = 0; i < variants.size(); ++i)
    if (variants[i].tensorDegree == tensorDegree && pick-- == 0) return static_cast<int32_t>(i);
  TRIREME_CHECK(false);
  return -1;
}

}  // namespace trireme::planner
