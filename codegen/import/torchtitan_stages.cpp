#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "codegen/import/layout.h"
#include "codegen/import/torchtitan.h"

namespace trireme::codegen {
namespace {

using plan::Plan;
using plan::ScheduleKind;
using spec::ModelSpec;
using spec::Node;

constexpr const char* kParts = "parallelism.module_fqns_per_model_part";
constexpr const char* kSplitPoints = "parallelism.pipeline_parallel_split_points";
constexpr const char* kDegree = "parallelism.pipeline_parallel_degree";
constexpr const char* kCounts[] = {"first_stage_less_layers", "last_stage_less_layers",
                                   "layers_per_stage"};

// "layers.7" of a list of modules counts.
int64_t layersIn(const Node& modules) {
  return std::count_if(modules.items.begin(), modules.items.end(),
                       [](const Node& item) { return item.text.starts_with("layers."); });
}

// As generate_llm_fqn_per_model_part() distributes them: embedding and head count as layers.
std::vector<int64_t> distributed(int64_t numLayers, int64_t stages, int64_t first, int64_t last) {
  const int64_t all = numLayers + first + last;
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < stages; ++i)
    counts.push_back(all / stages + (i < all % stages ? 1 : 0) - (i == 0 ? first : 0) -
                     (i == stages - 1 ? last : 0));
  return counts;
}

// The 7 of "layers.7"; -1 of another text.
int64_t layerOf(const std::string& point) {
  constexpr std::string_view kPrefix = "layers.";
  int64_t layer = -1;
  if (!point.starts_with(kPrefix)) return -1;
  const char* const end = point.data() + point.size();
  const auto [rest, error] = std::from_chars(point.data() + kPrefix.size(), end, layer);
  return error == std::errc() && rest == end ? layer : -1;
}

// Each split point is the first layer of a stage.
std::vector<int64_t> countsBetween(Config& config, const std::vector<std::string>& points,
                                   int64_t numLayers) {
  std::vector<int64_t> counts;
  int64_t begin = 0;
  for (const std::string& point : points) {
    const int64_t layer = layerOf(point);
    if (layer <= begin || layer >= numLayers) {
      config.fail(kSplitPoints,
                  fmt::format("has {}; expected layers.{} to layers.{} there",
                              spec::quoteForMessage(point), begin + 1, numLayers - 1));
      return {};
    }
    counts.push_back(layer - begin);
    begin = layer;
  }
  counts.push_back(numLayers - begin);
  return counts;
}

// Until early 2025 nothing but layers counted, and layers that do not divide evenly were for the
// split points to say.
std::vector<int64_t> evenly(Config& config, int64_t numLayers, int64_t stages) {
  if (numLayers % stages == 0)
    return std::vector<int64_t>(static_cast<size_t>(stages), numLayers / stages);
  config.fail(kDegree, fmt::format("makes {} stages, which do not divide {} layers evenly: give "
                                   "pipeline_parallel_split_points",
                                   stages, numLayers));
  return {};
}

// By the rules of a version for files that do not list the layers.
std::vector<int64_t> countsByRule(Config& config, const ModelSpec& model, const Plan& plan) {
  const int64_t first = config.count("parallelism.pipeline_parallel_first_stage_less_layers", 1);
  const int64_t last = config.count("parallelism.pipeline_parallel_last_stage_less_layers", 1);
  const int64_t perStage = config.count("parallelism.pipeline_parallel_layers_per_stage", 0);
  if (first < 0 || last < 0 || perStage < 0) {
    config.fail("parallelism.pipeline_parallel_layers_per_stage",
                "and its like must not be below 0");
    return {};
  }
  const int64_t perRank = plan.schedule == ScheduleKind::kInterleaved ? 2 : 1;
  if (hasLayoutOf2024(config)) return evenly(config, model.numLayers, plan.pp * perRank);
  const int64_t all = model.numLayers + first + last;
  const int64_t stages = perStage > 0 ? (all + perStage - 1) / perStage : plan.pp * perRank;
  return distributed(model.numLayers, stages, first, last);
}

std::vector<int64_t> countsOf(Config& config, const ModelSpec& model, const Plan& plan) {
  const Node* const parts = config.find(kParts);
  const Node* const points = config.find(kSplitPoints);
  const std::vector<std::string> names = points ? namesIn(*points) : std::vector<std::string>{};
  if (parts || !names.empty())
    for (const char* name : kCounts)
      config.passOver(fmt::format("parallelism.pipeline_parallel_{}", name));
  if (parts && !names.empty())
    config.fail(kSplitPoints, "is beside module_fqns_per_model_part: leave one of them out");
  if (!names.empty()) return countsBetween(config, names, model.numLayers);
  if (!parts) return countsByRule(config, model, plan);
  std::vector<int64_t> counts;
  for (const Node& part : parts->items) counts.push_back(layersIn(part));
  return counts;
}

// A file of orders takes the place of the schedule, where there is a pipeline.
ScheduleKind scheduleOf(Config& config, int64_t pp) {
  const char* const kOrders = "parallelism.pipeline_parallel_schedule_csv";
  if (const std::string orders = config.text(kOrders, ""); !orders.empty() && pp > 1)
    config.fail(kOrders, fmt::format("is {}: orders of a file cannot be priced; nearest: none, "
                                     "with pipeline_parallel_schedule \"1F1B\"",
                                     spec::quoteForMessage(orders)));
  const std::string name =
      config.choice("parallelism.pipeline_parallel_schedule",
                    {"1F1B", "Interleaved1F1B", "GPipe", "1f1b", "interleaved_1f1b", "gpipe"},
                    "1F1B", {"ZBVZeroBubble", "InterleavedZeroBubble", "DualPipeV", "LoopedBFS"});
  if (name == "Interleaved1F1B" || name == "interleaved_1f1b") return ScheduleKind::kInterleaved;
  return name == "GPipe" || name == "gpipe" ? ScheduleKind::kGpipe : ScheduleKind::k1F1B;
}

}  // namespace

void readTorchtitanStages(Config& config, const ModelSpec& model, Plan& plan) {
  const ScheduleKind schedule = scheduleOf(config, plan.pp);
  if (plan.pp == 1) {
    plan.layers = plan::evenLayers(model.numLayers, 1, 1);
    for (const char* name : {kParts, kSplitPoints}) config.passOver(name);
    for (const char* name : kCounts)
      config.passOver(fmt::format("parallelism.pipeline_parallel_{}", name));
    return;
  }
  plan.schedule = schedule;
  const std::vector<int64_t> counts = countsOf(config, model, plan);
  if (!config.error().ok()) return;
  const auto stages = static_cast<int64_t>(counts.size());
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (stages == 0 || stages % plan.pp != 0 || sum != model.numLayers ||
      *std::min_element(counts.begin(), counts.end()) < 0)
    return config.fail(
        kDegree, fmt::format("is {}, but there are {} stages of {} layers; expected a multiple of "
                             "it that holds all {}",
                             plan.pp, stages, sum, model.numLayers));
  plan.virtualStages = stages / plan.pp;
  plan.layers = layersOf(counts, plan.pp);
}

}  // namespace trireme::codegen
