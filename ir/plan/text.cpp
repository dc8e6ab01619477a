// The text form of a plan: every field, none defaulted, so that a plan reads the same tomorrow.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/plan/plan.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/document.h"
#include "ir/spec/load.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/print.h"

namespace trireme::plan {
namespace {

using spec::EnumName;
using spec::MapReader;
using spec::Node;

constexpr int64_t kVersion = 2;

constexpr EnumName<ScheduleKind> kScheduleArray[] = {{"gpipe", ScheduleKind::kGpipe},
                                                     {"1f1b", ScheduleKind::k1F1B},
                                                     {"interleaved", ScheduleKind::kInterleaved},
                                                     {"zb-h1", ScheduleKind::kZeroBubbleH1},
                                                     {"zb-h2", ScheduleKind::kZeroBubbleH2}};
constexpr EnumName<Recompute> kRecomputeArray[] = {
    {"none", Recompute::kNone}, {"selective", Recompute::kSelective}, {"full", Recompute::kFull}};
constexpr EnumName<StateSharding> kStateShardingArray[] = {
    {"none", StateSharding::kNone},
    {"optimizer", StateSharding::kOptimizer},
    {"gradients", StateSharding::kGradients},
    {"parameters", StateSharding::kParameters}};
constexpr EnumName<RankOrder> kRankOrderArray[] = {{"tp-cp-dp-pp", RankOrder::kTpCpDpPp},
                                                   {"tp-cp-pp-dp", RankOrder::kTpCpPpDp}};
constexpr std::span<const EnumName<ScheduleKind>> kSchedules = kScheduleArray;
constexpr std::span<const EnumName<Recompute>> kRecomputes = kRecomputeArray;
constexpr std::span<const EnumName<StateSharding>> kStateShardings = kStateShardingArray;
constexpr std::span<const EnumName<RankOrder>> kRankOrders = kRankOrderArray;

// Elements of a list have no key that MapReader could name.
Status expectedAt(const std::string& file, const Node& node, std::string_view what) {
  return spec::errorAt(file, node.mark,
                       fmt::format("layers: expected {}, got {}", what, spec::describe(node)));
}

Result<LayerRange> readRange(const std::string& file, const Node& node) {
  LayerRange range;
  if (node.kind != Node::Kind::kList || node.items.size() != 2 ||
      !spec::readValue(node.items[0], &range.first).ok() ||
      !spec::readValue(node.items[1], &range.count).ok())
    return Error(expectedAt(file, node, "a chunk [first layer, number of layers]"));
  return range;
}

Result<std::vector<LayerRange>> readStage(const std::string& file, const Node& node) {
  if (node.kind != Node::Kind::kList)
    return Error(expectedAt(file, node, "a stage [[first layer, number of layers], ...]"));
  std::vector<LayerRange> chunks;
  for (const Node& chunk : node.items) {
    TRIREME_ASSIGN_OR_RETURN(const LayerRange range, readRange(file, chunk));
    chunks.push_back(range);
  }
  return chunks;
}

Status readLayers(const std::string& file, const Node& node,
                  std::vector<std::vector<LayerRange>>* layers) {
  if (node.kind != Node::Kind::kList) return expectedAt(file, node, "a list of stages");
  for (const Node& stage : node.items) {
    TRIREME_ASSIGN_OR_RETURN(std::vector<LayerRange> chunks, readStage(file, stage));
    layers->push_back(std::move(chunks));
  }
  return {};
}

std::string printLayers(const std::vector<std::vector<LayerRange>>& layers) {
  if (layers.empty()) return "layers: []\n";
  std::string text = "layers:  # per stage: its chunks as [first layer, number of layers]\n";
  for (const std::vector<LayerRange>& stage : layers) {
    std::vector<std::string> chunks;
    for (const LayerRange& range : stage)
      chunks.push_back(fmt::format("[{}, {}]", range.first, range.count));
    text += fmt::format("  - [{}]\n", fmt::join(chunks, ", "));
  }
  return text;
}

std::string indented(const std::string& text) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin) + 1;
    result += "  " + text.substr(begin, end - begin);
    begin = end;
  }
  return result;
}

void readDevicesPerHost(MapReader& map, int64_t* devices) {
  map.optional("devices_per_host", devices);
  if (const Node* node = map.child("devices_per_host");
      node && (*devices < 1 || *devices > spec::kMaxDevices))
    map.fail(*node, fmt::format("must be 1 to {}, got {}", spec::kMaxDevices, *devices));
}

// Another version may mean other things by the same keys, so this comes before all of them.
Status checkVersion(const std::string& file, const Node& root) {
  const Node* node = root.find("version");
  int64_t version = 0;
  if (!node || !spec::readValue(*node, &version).ok() || version == kVersion) return {};
  return spec::errorAt(
      file, node->mark,
      fmt::format("version: {} is {}; expected {}", version,
                  version > kVersion ? "newer than this program" : "unknown", kVersion));
}

}  // namespace

std::string_view scheduleName(ScheduleKind kind) { return spec::nameOf(kSchedules, kind); }
std::string_view recomputeName(Recompute recompute) { return spec::nameOf(kRecomputes, recompute); }
std::string_view stateShardingName(StateSharding kind) {
  return spec::nameOf(kStateShardings, kind);
}
std::string_view rankOrderName(RankOrder order) { return spec::nameOf(kRankOrders, order); }

std::string printPlan(const Plan& p) {
  std::string text;
  const auto line = [&](std::string_view key, const auto& value) {
    text += fmt::format("{}: {}\n", key, value);
  };
  line("version", kVersion);
  line("model", spec::printText(p.model));
  line("fingerprint", p.fingerprint);
  line("stack", spec::printText(p.stack));
  line("tp", p.tp);
  line("pp", p.pp);
  line("cp", p.cp);
  line("ep", p.ep);
  line("dp_replicate", p.dpReplicate);
  line("dp_shard", p.dpShard);
  line("virtual_stages", p.virtualStages);
  line("microbatch_size", p.microbatchSize);
  line("schedule", scheduleName(p.schedule));
  line("recompute", recomputeName(p.recompute));
  line("recompute_layers", p.recomputeLayers);
  line("state_sharding", stateShardingName(p.stateSharding));
  line("sequence_parallel", p.sequenceParallel);
  line("scatter_gather", p.scatterGather);
  if (p.overlapReductions) line("overlap_reductions", true);
  if (p.rankOrder != RankOrder::kTpCpDpPp) line("rank_order", rankOrderName(p.rankOrder));
  if (p.devicesPerHost > 0) line("devices_per_host", p.devicesPerHost);
  line("vocab_multiple", p.vocabMultiple);
  text += printLayers(p.layers);
  text += "training:\n" + indented(spec::printTraining(p.training));
  return text;
}

Result<Plan> parsePlan(const std::string& text, const std::string& name) {
  TRIREME_ASSIGN_OR_RETURN(const Node root, spec::parseDocument(text, name));
  TRIREME_RETURN_IF_ERROR(checkVersion(name, root));
  MapReader map(name, root);
  Plan p;
  int64_t version = 0;
  map.required("version", &version);
  map.required("model", &p.model);
  map.optional("fingerprint", &p.fingerprint);
  map.required("stack", &p.stack);
  map.required("tp", &p.tp);
  map.required("pp", &p.pp);
  map.optional("cp", &p.cp);
  map.optional("ep", &p.ep);
  map.optional("dp_replicate", &p.dpReplicate);
  map.optional("dp_shard", &p.dpShard);
  map.optional("virtual_stages", &p.virtualStages);
  map.required("microbatch_size", &p.microbatchSize);
  map.optional("schedule", kSchedules, &p.schedule);
  map.optional("recompute", kRecomputes, &p.recompute);
  map.optional("recompute_layers", &p.recomputeLayers);
  map.optional("state_sharding", kStateShardings, &p.stateSharding);
  map.optional("sequence_parallel", &p.sequenceParallel);
  map.optional("scatter_gather", &p.scatterGather);
  map.optional("overlap_reductions", &p.overlapReductions);
  map.optional("rank_order", kRankOrders, &p.rankOrder);
  readDevicesPerHost(map, &p.devicesPerHost);
  map.optional("vocab_multiple", &p.vocabMultiple);
  if (const Node* node = map.requiredChild("layers")) map.merge(readLayers(name, *node, &p.layers));
  if (const Node* node = map.requiredChild("training")) {
    Result<spec::TrainingSpec> training = spec::readTraining(name, *node, "training.");
    if (training.has_value())
      p.training = *training;
    else
      map.merge(training.error());
  }
  TRIREME_RETURN_IF_ERROR(map.finish());
  return p;
}

Result<Plan> loadPlan(const std::string& path) {
  TRIREME_ASSIGN_OR_RETURN(const std::string text, spec::readFile(path));
  return parsePlan(text, path);
}

}  // namespace trireme::plan
