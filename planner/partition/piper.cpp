#include "planner/partition/piper.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/base/format.h"
#include "planner/partition/piper_placement.h"

namespace trireme::planner {
namespace {

constexpr int64_t kMaxDevices = int64_t{1} << 20;
constexpr int64_t kMaxMicrobatches = int64_t{1} << 30;

double capacityOf(const PiperProblem& problem) {
  return problem.memory ? problem.memory->count() : kForever;
}

double gapOf(double lower, double upper) { return upper > lower ? (upper - lower) / upper : 0; }

// A placement with the fastest variants that fit, and what it costs.
Result<PiperPartition> toPartition(const PiperProblem& problem, const DownSets& sets,
                                   const PiperCosts& costs,
                                   const std::vector<PlacedStage>& placed) {
  PiperPartition partition;
  partition.numDownSets = sets.size();
  for (const PlacedStage& at : placed) {
    const StageShape& shape = costs.shapes()[at.shape];
    VariantChoice choice = costs.choice(shape, at.d, at.inFlight, capacityOf(problem));
    TRIREME_RETURN_IF_ERROR(choice.solve());
    PiperStage stage;
    stage.layers = sets.difference(static_cast<size_t>(shape.from), static_cast<size_t>(shape.to));
    stage.dataDegree = at.d;
    stage.tensorDegree = shape.tensorDegree;
    stage.time = Seconds(choice.upper() / static_cast<double>(at.d));
    stage.memory = Bytes(0);
    for (size_t i = 0; i < stage.layers.size(); ++i) {
      const int32_t v = costs.variantOf(stage.layers[i], shape.tensorDegree, choice.picks()[i]);
      stage.variants.push_back(v);
      const spec::ProfileVariant& variant =
          problem.profile.layers[static_cast<size_t>(stage.layers[i])]
              .variants[static_cast<size_t>(v)];
      if (stage.memory && variant.stored && variant.resident)
        *stage.memory += *variant.stored * static_cast<double>(at.inFlight) + *variant.resident;
      else
        stage.memory.reset();
    }
    partition.time = std::max(partition.time, stage.time);
    partition.devicesUsed += at.d * shape.tensorDegree;
    partition.stages.push_back(std::move(stage));
  }
  return partition;
}

// The next time to try, between a bound and a time that is possible: the middle; near the end,
// every other time, one just below what is possible, which ends the search if nothing is there.
double nextTime(double lower, double upper, int64_t round) {
  const double gap = gapOf(lower, upper);
  const bool isLast = gap < 1e-9 || (gap < 1e-3 && round % 2 == 0);
  return isLast ? upper * (1 - kPiperGap / 2) : (lower + upper) / 2;
}

// Empty stages: nothing fits.
Result<PiperPartition> search(const PiperProblem& problem, const DownSets& sets,
                              const PiperCosts& costs,
                              const std::function<void(double)>& progress) {
  PiperPlacement placement(problem, sets, costs, capacityOf(problem));
  const auto devices = static_cast<double>(problem.devices);
  const auto replicas = static_cast<double>(std::min(problem.devices, problem.microbatches));
  double lower = std::max(costs.deviceSeconds(sets.full()) / devices,
                          costs.replicaSeconds(sets.full()) / replicas) *
                 (1 - 1e-12);
  // Most optima are not far above this bound, and there it is quickly seen that nothing is within.
  double excess = 0.01, most = lower * (1 + excess), firstGap = 0;
  PiperPartition best;
  for (int64_t round = 1;; ++round) {
    TRIREME_ASSIGN_OR_RETURN(const std::vector<PlacedStage> placed, placement.within(most));
    if (!placed.empty()) {
      TRIREME_ASSIGN_OR_RETURN(best, toPartition(problem, sets, costs, placed));
    } else if (most == kForever) {
      return best;
    } else {
      lower = most;
    }
    if (best.stages.empty()) {
      excess *= 2;
      most = excess < 16 ? lower * (1 + excess) : kForever;
      continue;
    }
    const double upper = best.time.count(), gap = gapOf(lower, upper);
    best.bound = Seconds(std::min(lower, upper));
    best.gap = gap;
    best.numRounds = round;
    if (gap <= kPiperGap) return best;
    if (firstGap == 0) firstGap = gap;
    if (progress) progress(std::log(firstGap / gap) / std::log(firstGap / kPiperGap));
    most = nextTime(lower, upper, round);
  }
}

// The least memory with which there is a partition, to 1e-4 of it; 0: there is none.
Result<double> memoryNeeded(const PiperProblem& problem, const DownSets& sets,
                            const PiperCosts& costs) {
  double lower = 0, upper = 0, capacity = kForever;
  do {
    PiperPlacement placement(problem, sets, costs, capacity);
    TRIREME_ASSIGN_OR_RETURN(const std::vector<PlacedStage> placed, placement.within(kForever));
    if (placed.empty()) {
      lower = capacity;
    } else {
      upper = 0;
      for (const PlacedStage& stage : placed)
        upper = std::max(upper, costs.leastMemory(costs.shapes()[stage.shape], stage.inFlight));
    }
    if (upper == 0) return 0;  // Only if the first round found nothing.
    capacity = (lower + upper) / 2;
  } while (upper - lower > 1e-4 * upper);
  return upper;
}

// How many devices a partition takes if there are as many as one likes, with so much memory each;
// 0: there is none even so.
Result<int64_t> devicesNeeded(PiperProblem problem, const DownSets& sets, double capacity) {
  problem.devices = kMaxDevices;
  TRIREME_ASSIGN_OR_RETURN(const PiperCosts costs, PiperCosts::of(problem, sets));
  PiperPlacement placement(problem, sets, costs, capacity);
  TRIREME_ASSIGN_OR_RETURN(const std::vector<PlacedStage> placed, placement.within(kForever));
  return placed.empty() ? 0 : placement.devicesUsed();
}

// Why there is no partition even without a memory limit.
Result<std::string> shortage(const PiperProblem& problem, const DownSets& sets) {
  TRIREME_ASSIGN_OR_RETURN(const int64_t needed, devicesNeeded(problem, sets, kForever));
  if (needed == 0)
    return fmt::format(
        "the tensor degrees that the layers have in common make more stages than "
        "the {} microbatches of a batch; give more microbatches",
        problem.microbatches);
  return fmt::format("the tensor degrees of the layers need at least {} devices, there {} {}",
                     needed, problem.devices == 1 ? "is" : "are", problem.devices);
}

// A layer may need too much on its own, and there are no more stages than microbatches.
Result<std::string> whatWouldFit(const PiperProblem& problem, const DownSets& sets) {
  const double memory = problem.memory->count();
  TRIREME_ASSIGN_OR_RETURN(const int64_t devices, devicesNeeded(problem, sets, memory));
  if (devices > 0) return "would work: more devices";
  PiperProblem longer = problem;
  longer.microbatches =
      std::max(problem.microbatches, static_cast<int64_t>(problem.profile.layers.size()));
  if (longer.microbatches > problem.microbatches) {
    TRIREME_ASSIGN_OR_RETURN(const int64_t ofMore, devicesNeeded(longer, sets, memory));
    if (ofMore > 0)
      return fmt::format(
          "would work: more microbatches, which more stages need (now {}), and "
          "devices for them",
          problem.microbatches);
  }
  return fmt::format(
      "with {} microbatches no number of devices would do; what may: layers with variants that "
      "store "
      "less or with a higher tensor degree, or a multiple of the microbatches, for more replicas",
      problem.microbatches);
}

Status whyNothingFits(const PiperProblem& problem, const DownSets& sets, const PiperCosts& costs) {
  TRIREME_ASSIGN_OR_RETURN(const double needed, memoryNeeded(problem, sets, costs));
  if (needed == 0) {
    TRIREME_ASSIGN_OR_RETURN(const std::string why, shortage(problem, sets));
    return infeasible("no partition: " + why);
  }
  TRIREME_ASSIGN_OR_RETURN(const std::string advice, whatWouldFit(problem, sets));
  return infeasible(fmt::format(
      "no partition fits in memory: the leanest on {} device{} needs {} of {} per device, {} too "
      "much; {}",
      problem.devices, problem.devices == 1 ? "" : "s", formatBytes(Bytes(needed)),
      formatBytes(*problem.memory), formatBytes(Bytes(needed) - *problem.memory), advice));
}

}  // namespace

Status PiperProblem::check() const {
  if (devices < 1 || devices > kMaxDevices)
    return invalidArgument(fmt::format("expected 1 to {} devices, got {}", kMaxDevices, devices));
  if (microbatches < 1 || microbatches > kMaxMicrobatches)
    return invalidArgument(
        fmt::format("expected 1 to {} microbatches, got {}", kMaxMicrobatches, microbatches));
  if (!(bandwidth.count() > 0) || !std::isfinite(bandwidth.count()))
    return invalidArgument(
        fmt::format("expected a bandwidth above 0, got {} B/s", bandwidth.count()));
  if (!memory) return {};
  if (!(memory->count() > 0) || !std::isfinite(memory->count()))
    return invalidArgument(fmt::format("expected memory above 0, got {} B", memory->count()));
  for (const spec::ProfileLayer& layer : profile.layers)
    for (const spec::ProfileVariant& variant : layer.variants)
      if (!variant.stored || !variant.resident)
        return invalidArgument(fmt::format(
            "variant '{}' of layer '{}' does not say what it holds (stored, resident), which the "
            "memory limit is about; add both, or drop the limit",
            variant.name, layer.id));
  return {};
}

std::string describe(const std::vector<PiperStage>& stages) {
  std::string text;
  for (const PiperStage& stage : stages)
    text += fmt::format("{}{}x{}", text.empty() ? "" : "-", stage.dataDegree, stage.tensorDegree);
  return text;
}

Result<PiperPartition> partitionPiper(const PiperProblem& problem,
                                      const std::function<void(double)>& progress) {
  TRIREME_RETURN_IF_ERROR(problem.check());
  TRIREME_ASSIGN_OR_RETURN(const DownSets sets, DownSets::of(problem.profile));
  TRIREME_ASSIGN_OR_RETURN(const PiperCosts costs, PiperCosts::of(problem, sets));
  TRIREME_ASSIGN_OR_RETURN(PiperPartition best, search(problem, sets, costs, progress));
  if (best.stages.empty()) return Error(whyNothingFits(problem, sets, costs));
  return best;
}

}  // namespace trireme::planner
