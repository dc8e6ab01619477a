#include "planner/partition/pipedream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ir/base/format.h"
#include "planner/partition/pipedream_costs.h"

namespace trireme::planner {
namespace {

constexpr int64_t kMaxComponents = int64_t{1} << 20;
constexpr int64_t kMaxWorkers = int64_t{1} << 30;

std::string quoted(const spec::ProfileLayer& layer) { return "layer '" + layer.id + "'"; }

Status checkLevels(const std::vector<NetworkLevel>& levels) {
  if (levels.empty()) return invalidArgument("no network levels: give at least one");
  int64_t workers = 1;
  for (size_t k = 0; k < levels.size(); ++k) {
    const NetworkLevel& level = levels[k];
    if (level.components < 1 || level.components > kMaxComponents)
      return invalidArgument(fmt::format("level {} has {} components; expected 1 to {}", k + 1,
                                         level.components, kMaxComponents));
    if (!(level.bandwidth.count() > 0) || !std::isfinite(level.bandwidth.count()))
      return invalidArgument(fmt::format("level {} has a bandwidth of {} B/s; expected one above 0",
                                         k + 1, level.bandwidth.count()));
    workers *= level.components;
    if (workers >= kMaxWorkers)
      return invalidArgument(
          fmt::format("the levels make {} workers and more; expected fewer", kMaxWorkers));
  }
  return {};
}

Status checkLayers(const PipedreamProblem& problem) {
  for (const spec::ProfileLayer& layer : problem.profile.layers) {
    std::string names;
    int64_t count = 0;
    for (const spec::ProfileVariant& variant : layer.variants)
      if (variant.tensorDegree == 1) {
        names += fmt::format("{}'{}'", names.empty() ? "" : ", ", variant.name);
        ++count;
      }
    if (count != 1)
      return invalidArgument(fmt::format(
          "{} has {} variants at tensor degree 1{}; PipeDream's partitioning runs every layer in "
          "one way and needs exactly one; method piper chooses among several",
          quoted(layer), count, names.empty() ? "" : " (" + names + ")"));
    if (problem.memory && !layer.activation)
      return invalidArgument(fmt::format(
          "{} has no activation, which the memory limit is about; add one, or drop the limit",
          quoted(layer)));
  }
  return {};
}

// The best times of A_k(i, j, m) for one level, and how they come about.
struct Cell {
  double time = std::numeric_limits<double>::infinity();
  int32_t split = -1;    // s; -1: one stage
  int32_t replicas = 0;  // of the last stage
  int32_t workers = 0;   // components in use, less than m only if some are left idle
};

class Solver {
 public:
  Solver(const PipedreamProblem& problem, const DownSets& sets,
         const std::function<void(double)>& progress)
      : problem_(problem), costs_(problem, sets), sets_(sets), progress_(progress) {}

  Result<PipedreamPartition> solve() {
    const size_t n = sets_.size();
    for (size_t k = 0; k < problem_.levels.size(); ++k) {
      const bool isLast = k + 1 == problem_.levels.size();
      const auto m = static_cast<size_t>(problem_.levels[k].components);
      const size_t rows = isLast ? 1 : n;
      if (m > kMostCells / n / rows)
        return Error(resourceExhausted(fmt::format(
            "level {} with {} components and {} ways to cut the profile is too large a table; "
            "merge layers, or leave out the inner levels",
            k + 1, m, n)));
      TRIREME_RETURN_IF_ERROR(checkSteps(k, isLast));
      tables_.emplace_back(rows * n * m);
      fill(k, isLast);
    }
    PipedreamPartition partition;
    partition.stages = stagesOf(problem_.levels.size() - 1, 0, sets_.full(), -1);
    partition.time = Seconds(
        cell(problem_.levels.size() - 1, 0, sets_.full(), problem_.levels.back().components).time);
    partition.oneWorkerTime = Seconds(costs_.time(0, sets_.full()));
    partition.dataParallelTime = Seconds(costs_.dataParallelTime());
    partition.numDownSets = n;
    return partition;
  }

 private:
  static constexpr size_t kMostCells = size_t{1} << 25;  // 0.8 GB
  static constexpr double kMostSteps = 1e11;             // ten minutes

  // Ways to split ranges in two, for every number of components and of replicas behind the split.
  Status checkSteps(size_t level, bool isLast) const {
    const auto m = static_cast<double>(problem_.levels[level].components);
    double splits = 0;
    for (size_t j = 1; j < sets_.size(); ++j) {
      const auto within = static_cast<double>(sets_.within(j).size());
      splits += isLast ? within - 1 : within * (within - 1) / 2;
    }
    if (splits * m * m / 2 <= kMostSteps) return {};
    return resourceExhausted(fmt::format(
        "level {} with {} components and {} ways to cut the profile would take {:.0e} steps, more "
        "than {:.0e}; nearest: {} components, or merge layers",
        level + 1, problem_.levels[level].components, sets_.size(), splits * m * m / 2, kMostSteps,
        static_cast<int64_t>(std::sqrt(2 * kMostSteps / splits))));
  }

  Cell& cell(size_t level, size_t i, size_t j, int64_t m) {
    const auto components = static_cast<size_t>(problem_.levels[level].components);
    return tables_[level][(i * sets_.size() + j) * components + static_cast<size_t>(m) - 1];
  }

  // A_{k-1}(i, j) of all components.
  double below(size_t level, size_t i, size_t j) {
    if (level == 0) return costs_.time(i, j);
    return cell(level - 1, i, j, problem_.levels[level - 1].components).time;
  }

  void fill(size_t level, bool isLast) {
    for (size_t j = 1; j < sets_.size(); ++j) {
      const std::vector<int32_t> within = sets_.within(j);
      if (isLast) {
        fillRange(level, 0, j, within);
      } else {
        for (const int32_t i : within) fillRange(level, static_cast<size_t>(i), j, within);
      }
      if (progress_)
        progress_((static_cast<double>(level) +
                   static_cast<double>(j + 1) / static_cast<double>(sets_.size())) /
                  static_cast<double>(problem_.levels.size()));
    }
  }

  void fillRange(size_t level, size_t i, size_t j, const std::vector<int32_t>& within) {
    for (int64_t m = 1; m <= problem_.levels[level].components; ++m) {
      Cell best;
      const StageRange whole{i, j, below(level, i, j)};
      if (costs_.fits(level, whole, m, m))
        best = {costs_.firstTime(level, whole, m), -1, static_cast<int32_t>(m),
                static_cast<int32_t>(m)};
      if (problem_.mayLeaveIdle && m > 1)
        if (const Cell& fewer = cell(level, i, j, m - 1); fewer.time < best.time) best = fewer;
      for (const int32_t s : within) {
        const auto split = static_cast<size_t>(s);
        if (split > i && (i == 0 || sets_.isSubset(i, split)))
          trySplit(level, {i, j, 0}, split, m, &best);
      }
      cell(level, i, j, m) = best;
    }
  }

  // Only numbers of replicas that leave both parts enough workers to beat `best`.
  void trySplit(size_t level, const StageRange& range, size_t split, int64_t m, Cell* best) {
    if (!(costs_.cutTime(level, split) < best->time)) return;
    constexpr double kSlack = 1 - 1e-9;  // The bounds are rounded.
    const double perWorker = costs_.workersBelow(level) * best->time;
    const double leastRight = costs_.time(split, range.to) / perWorker * kSlack;
    const double leastLeft = costs_.time(range.from, split) / perWorker * kSlack;
    if (leastRight > static_cast<double>(m) || leastLeft > static_cast<double>(m)) return;
    const StageRange last{split, range.to, below(level, split, range.to)};
    const int64_t first = std::max<int64_t>(1, static_cast<int64_t>(leastRight));
    const int64_t end = m - std::max<int64_t>(1, static_cast<int64_t>(leastLeft));
    for (int64_t r = first; r <= end; ++r) {
      const Cell& left = cell(level, range.from, split, m - r);
      if (!(left.time < best->time) || !costs_.fits(level, last, m, r)) continue;
      const double time = std::max(left.time, costs_.laterTime(level, last, r));
      if (time < best->time)
        *best = {time, static_cast<int32_t>(split), static_cast<int32_t>(r),
                 static_cast<int32_t>(m)};
    }
  }

  // m of -1: all components.
  std::vector<PipedreamStage> stagesOf(size_t level, size_t i, size_t j, int64_t m) {
    if (m < 0) m = problem_.levels[level].components;
    std::vector<PipedreamStage> stages;
    while (true) {
      const Cell& at = cell(level, i, j, m);
      const size_t from = at.split < 0 ? i : static_cast<size_t>(at.split);
      PipedreamStage stage{sets_.difference(from, j), at.replicas, {}};
      if (level > 0) stage.inner = stagesOf(level - 1, from, j, -1);
      stages.push_back(std::move(stage));
      if (at.split < 0) break;
      m = at.workers - at.replicas;
      j = from;
    }
    std::reverse(stages.begin(), stages.end());
    return stages;
  }

  const PipedreamProblem& problem_;
  PipedreamCosts costs_;
  const DownSets& sets_;
  const std::function<void(double)>& progress_;
  std::vector<std::vector<Cell>> tables_;  // [level][(i, j, m)]
};

void appendWorkers(const std::vector<PipedreamStage>& stages, int64_t times,
                   std::vector<WorkerStage>* out) {
  for (const PipedreamStage& stage : stages) {
    if (stage.inner.empty())
      out->push_back({stage.layers, times * stage.replicas, {}});
    else
      appendWorkers(stage.inner, times * stage.replicas, out);
  }
}

}  // namespace

std::string_view pipedreamFormName(PipedreamForm form) {
  switch (form) {
    case PipedreamForm::kHierarchical:
      return "sosp19";
    case PipedreamForm::kFlat:
      return "arxiv18";
    case PipedreamForm::kReleased:
      return "released";
  }
  return "?";
}

int64_t PipedreamProblem::numWorkers() const {
  return std::accumulate(levels.begin(), levels.end(), int64_t{1},
                         [](int64_t n, const NetworkLevel& level) { return n * level.components; });
}

Status PipedreamProblem::check() const {
  TRIREME_RETURN_IF_ERROR(checkLevels(levels));
  if (form == PipedreamForm::kFlat && levels.size() > 1)
    return invalidArgument(
        fmt::format("arxiv18 takes one network level, got {}; sosp19 and released take several",
                    levels.size()));
  if (form != PipedreamForm::kReleased) {
    const char* what = memory            ? "a memory limit"
                       : !countTransfers ? "leaving out the transfers"
                       : mayLeaveIdle    ? "idle workers"
                                         : nullptr;
    if (what)
      return invalidArgument(fmt::format("{} knows no such thing as {}; released does",
                                         pipedreamFormName(form), what));
  }
  return checkLayers(*this);
}

std::string describe(const std::vector<PipedreamStage>& stages) {
  std::string text;
  for (const PipedreamStage& stage : stages) {
    text += fmt::format("{}{}", text.empty() ? "" : "-", stage.replicas);
    if (!stage.inner.empty()) text += "x(" + describe(stage.inner) + ")";
  }
  return text;
}

std::vector<WorkerStage> workerStages(const PipedreamProblem& problem,
                                      const PipedreamPartition& partition) {
  std::vector<WorkerStage> stages;
  appendWorkers(partition.stages, 1, &stages);
  int64_t fromHere = 0;
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    fromHere += stage->workers;
    const auto versions = static_cast<double>((fromHere + stage->workers - 1) / stage->workers);
    std::optional<Bytes> bytes = Bytes(0);
    for (const int32_t i : stage->layers) {
      const spec::ProfileLayer& layer = problem.profile.layers[static_cast<size_t>(i)];
      bytes = bytes && layer.activation
                  ? std::optional(*bytes + *layer.activation + plainVariant(layer).weights)
                  : std::nullopt;
    }
    if (bytes) stage->memory = *bytes * versions;
  }
  return stages;
}

Result<PipedreamPartition> partitionPipedream(const PipedreamProblem& problem,
                                              const std::function<void(double)>& progress) {
  TRIREME_RETURN_IF_ERROR(problem.check());
  TRIREME_ASSIGN_OR_RETURN(const DownSets sets, DownSets::of(problem.profile));
  return Solver(problem, sets, progress).solve();
}

}  // namespace trireme::planner
