#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "ir/plan/find_model.h"
#include "ir/plan/nearest.h"
#include "ir/plan/plan.h"
#include "ir/spec/load.h"
#include "ir/spec/yaml_node.h"

namespace trireme::plan {
namespace {

using spec::ModelSpec;

Status countsAreInRange(const Plan& p, const ModelSpec& model) {  // (P1)
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const std::pair<std::string_view, int64_t> counts[] = {{"tp", p.tp},
                                                         {"pp", p.pp},
                                                         {"cp", p.cp},
                                                         {"ep", p.ep},
                                                         {"dp_replicate", p.dpReplicate},
                                                         {"dp_shard", p.dpShard},
                                                         {"virtual_stages", p.virtualStages},
                                                         {"microbatch_size", p.microbatchSize},
                                                         {"vocab_multiple", p.vocabMultiple}};
  for (const auto& [name, count] : counts)
    if (count < 1 || count > kMost)
      return invalidArgument(
          fmt::format("(P1) {} is {}; it must be at least 1 and at most {}; nearest: {}", name,
                      count, kMost, count < 1 ? 1 : kMost));
  __int128 ranks = 1;
  for (const int64_t degree : {p.tp, p.pp, p.cp, p.dpReplicate, p.dpShard}) {
    ranks *= degree;
    if (ranks > kMost)
      return invalidArgument(fmt::format(
          "(P1) tp {} x pp {} x cp {} x dp_replicate {} x dp_shard {} are more than {} ranks", p.tp,
          p.pp, p.cp, p.dpReplicate, p.dpShard, kMost));
  }
  const __int128 padding = static_cast<__int128>(p.vocabMultiple) * p.tp;
  if (model.vocabSize + padding > kMost)
    return invalidArgument(
        fmt::format("(P1) vocab_multiple {} x tp {} pads {} rows to more than {}", p.vocabMultiple,
                    p.tp, model.vocabSize, kMost));
  return {};
}

Status tasksAreCountable(const Plan& p, const ModelSpec&) {  // (P1)
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const __int128 tasks = static_cast<__int128>(2) * p.numMicrobatches() * p.virtualStages;
  if (tasks <= kMost) return {};
  return invalidArgument(
      fmt::format("(P1) {} microbatches x {} virtual stages are more than {} tasks per rank",
                  p.numMicrobatches(), p.virtualStages, kMost));
}

// Of the model that the plan was made for; 0: its layers, which are not verified yet, are none.
int64_t numLayersOf(const Plan& p) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int64_t end = 0;
  for (const std::vector<LayerRange>& stage : p.layers)
    for (const LayerRange& range : stage) {
      if (range.first < 0 || range.count < 0 || range.first > kMost || range.count > kMost)
        return 0;
      end = std::max(end, range.first + range.count);
    }
  return end;
}

// Of the model that a plan was made for and of this one, as far as the plan lets them be found:
// "layers: 4", "layers: 8".
std::pair<std::string, std::string> otherwise(const Plan& p, const ModelSpec& model) {
  std::vector<std::string> needed, there;
  if (const std::optional<ModelSpec> other = findModel(p.fingerprint, model))
    for (const spec::ModelDifference& difference : spec::differencesOf(*other, model)) {
      needed.push_back(difference.first);
      there.push_back(difference.second);
    }
  if (const int64_t layers = numLayersOf(p);
      needed.empty() && layers > 0 && layers != model.numLayers)
    return {fmt::format("layers: {}", layers),
            fmt::format("layers: {}, among other differences", model.numLayers)};
  return {fmt::format("{}", fmt::join(needed, ", ")), fmt::format("{}", fmt::join(there, ", "))};
}

Status madeForThisModel(const Plan& p, const ModelSpec& model) {  // (P2)
  if (p.fingerprint == 0 && p.model == model.name) return {};
  if (p.fingerprint == 0)
    return invalidArgument(
        fmt::format("(P2) the plan says no fingerprint and is for model '{}', "
                    "not for '{}'",
                    p.model, model.name));
  const uint64_t available = fingerprintOf(model);
  if (p.fingerprint == available) return {};
  const auto [needed, there] = otherwise(p, model);
  return invalidArgument(
      fmt::format("(P2) the plan was made for model '{}' with {}, but model '{}' has {}", p.model,
                  needed.empty() ? fmt::format("fingerprint {}", p.fingerprint) : needed,
                  model.name, there.empty() ? std::to_string(available) : there));
}

Status batchDivides(const Plan& p, const ModelSpec&) {  // (P3)
  const int64_t batch = p.training.globalBatchSize, part = p.dp() * p.microbatchSize;
  if (batch >= 1 && batch % part == 0) return {};
  return invalidArgument(
      fmt::format("(P3) global batch size {} is not a multiple of dp {} x microbatch size {} = "
                  "{}{}",
                  batch, p.dp(), p.microbatchSize, part, nearestMultiple(batch, part)));
}

// The nearest tp is one that divides heads and ffn both: a hint should not lead into the next rule.
std::string nearestTp(const Plan& p, const ModelSpec& model) {
  return nearestDivisor(p.tp, std::gcd(model.numKvHeads, model.ffnSize));
}

Status tpDividesHeads(const Plan& p, const ModelSpec& model) {  // (P4)
  if (model.numKvHeads % p.tp == 0) return {};
  return invalidArgument(fmt::format("(P4) tp {} does not divide {} key/value heads{}", p.tp,
                                     model.numKvHeads, nearestTp(p, model)));
}

Status tpDividesFfn(const Plan& p, const ModelSpec& model) {  // (P5)
  if (model.ffnSize % p.tp == 0) return {};
  return invalidArgument(fmt::format("(P5) tp {} does not divide the ffn size {}{}", p.tp,
                                     model.ffnSize, nearestTp(p, model)));
}

Status interleavingIsMeant(const Plan& p, const ModelSpec&) {  // (P6)
  const bool interleaved = p.schedule == ScheduleKind::kInterleaved;
  if (p.virtualStages > 1 && !interleaved)
    return invalidArgument(
        fmt::format("(P6) {} virtual stages need schedule interleaved, not {}; nearest: "
                    "virtual_stages 1, or schedule interleaved",
                    p.virtualStages, scheduleName(p.schedule)));
  if (interleaved && p.virtualStages == 1)
    return invalidArgument(
        "(P6) schedule interleaved needs more than 1 virtual stage; nearest: "
        "virtual_stages 2, or schedule 1f1b");
  if (interleaved && p.pp == 1)
    return invalidArgument(
        fmt::format("(P6) {} virtual stages need pp > 1, but pp is 1; nearest: pp 2, or "
                    "virtual_stages 1 with schedule 1f1b",
                    p.virtualStages));
  return {};
}

Status interleavedGroupsAreFull(const Plan& p, const ModelSpec&) {  // (P7)
  if (p.schedule != ScheduleKind::kInterleaved || p.numMicrobatches() % p.pp == 0) return {};
  return invalidArgument(fmt::format(
      "(P7) schedule interleaved: {} microbatch{} per replica {} not a multiple of pp "
      "{}{} microbatches",
      p.numMicrobatches(), p.numMicrobatches() == 1 ? "" : "es",
      p.numMicrobatches() == 1 ? "is" : "are", p.pp, nearestMultiple(p.numMicrobatches(), p.pp)));
}

Status layersCoverTheModel(const Plan& p, const ModelSpec& model) {  // (P8)
  if (static_cast<int64_t>(p.layers.size()) != p.pp)
    return invalidArgument(
        fmt::format("(P8) layers has {} stages, expected pp = {}", p.layers.size(), p.pp));
  for (size_t stage = 0; stage < p.layers.size(); ++stage)
    if (static_cast<int64_t>(p.layers[stage].size()) != p.virtualStages)
      return invalidArgument(fmt::format("(P8) layers: stage {} has {} chunks, expected {}", stage,
                                         p.layers[stage].size(), p.virtualStages));
  int64_t next = 0;
  for (size_t chunk = 0; chunk < static_cast<size_t>(p.virtualStages); ++chunk)
    for (size_t stage = 0; stage < p.layers.size(); ++stage) {
      const LayerRange& range = p.layers[stage][chunk];
      const auto where = [&] {
        return fmt::format("(P8) layers: stage {}, chunk {}", stage, chunk);
      };
      if (range.first != next)
        return invalidArgument(fmt::format(
            "{} starts at layer {}, but the virtual stage before it ends at {}; nearest: {}",
            where(), range.first, next, next));
      // The first virtual stage has the embedding to do, the last one the head.
      const bool mayBeEmpty = (stage == 0 && chunk == 0) ||
                              (stage + 1 == p.layers.size() && chunk + 1 == p.layers[0].size());
      const int64_t least = mayBeEmpty ? 0 : 1;
      if (range.count < least)
        return invalidArgument(
            fmt::format("{} has {} layers; nearest: {}", where(), range.count, least));
      if (range.count > model.numLayers - next)
        return invalidArgument(
            fmt::format("{} has {} layers, but only {} of the model's {} are left", where(),
                        range.count, model.numLayers - next, model.numLayers));
      next += range.count;
    }
  if (next == model.numLayers) return {};
  return invalidArgument(
      fmt::format("(P8) layers cover {} layers, the model has {}", next, model.numLayers));
}

Status contextDivides(const Plan& p, const ModelSpec&) {  // (P15)
  const int64_t length = p.training.sequenceLength;
  if (p.cp == 1 || length % (2 * p.cp) == 0) return {};
  return invalidArgument(fmt::format(
      "(P15) cp {} needs a sequence length that is a multiple of 2 x cp, not {}{}", p.cp, length,
      nearest(p.cp, length, [=](int64_t cp) { return cp == 1 || length % (2 * cp) == 0; })));
}

// The nearest tp divides heads and ffn as well, where one above 1 does: as for (P4).
Status sequenceParallelSplits(const Plan& p, const ModelSpec& model) {  // (P9)
  if (!p.sequenceParallel) return {};
  const int64_t length = p.training.sequenceLength / p.cp;
  if (p.tp == 1)
    return invalidArgument(
        "(P9) sequence parallel needs tp > 1, but tp is 1; nearest: "
        "sequence_parallel false, or tp 2");
  if (length % p.tp == 0) return {};
  const int64_t common = std::gcd(length, std::gcd(model.numKvHeads, model.ffnSize));
  const auto splits = [=](int64_t tp) { return tp > 1 && common % tp == 0; };
  return invalidArgument(fmt::format(
      "(P9) sequence parallel: tp {} does not divide the sequence length {}{}{}", p.tp, length,
      p.cp == 1 ? "" : fmt::format(" of one of cp {} ranks", p.cp),
      common > 1 ? nearest(p.tp, length, splits) : "; nearest: sequence_parallel false"));
}

Status scatterGatherApplies(const Plan& p, const ModelSpec& model) {  // (P10)
  if (!p.scatterGather) return {};
  if (p.tp == 1 || p.pp == 1)
    return invalidArgument(
        fmt::format("(P10) scatter-gather needs tp > 1 and pp > 1, but tp is {} and pp is {}; "
                    "nearest: scatter_gather false",
                    p.tp, p.pp));
  if (p.sequenceParallel)
    return invalidArgument(
        "(P10) scatter-gather excludes sequence parallel, under which stage "
        "borders are already sharded; nearest: scatter_gather false");
  const int64_t length = p.training.sequenceLength / p.cp;
  const int64_t rest =
      p.microbatchSize % p.tp * (length % p.tp) % p.tp * (model.hiddenSize % p.tp) % p.tp;
  if (rest == 0) return {};
  return invalidArgument(
      fmt::format("(P10) scatter-gather: tp {} does not divide microbatch size {} x sequence "
                  "length {} x hidden size {}; nearest: scatter_gather false",
                  p.tp, p.microbatchSize, length, model.hiddenSize));
}

Status stateShardingHasRanks(const Plan& p, const ModelSpec&) {  // (P11)
  if (p.stateSharding == StateSharding::kNone) {
    if (p.dpShard == 1) return {};
    return invalidArgument(
        fmt::format("(P11) dp_shard {} shards nothing with state_sharding none; nearest: "
                    "dp_replicate {} and dp_shard 1, or state_sharding optimizer",
                    p.dpShard, p.dp()));
  }
  if (p.stateShards() > 1) return {};
  return invalidArgument(fmt::format(
      "(P11) state sharding {} needs dp_shard > 1 or cp > 1, but both are 1; nearest: "
      "state_sharding none, or {}",
      stateShardingName(p.stateSharding),
      p.dp() == 1 ? "dp_shard 2" : fmt::format("dp_replicate 1 and dp_shard {}", p.dp())));
}

Status thereAreNoExperts(const Plan& p, const ModelSpec&) {  // (P12)
  if (p.ep == 1) return {};
  return invalidArgument(
      fmt::format("(P12) ep {}: the model has no experts to spread; nearest: ep 1", p.ep));
}

Status recomputedLayersExist(const Plan& p, const ModelSpec&) {  // (P14)
  if (p.recomputeLayers == 0) return {};
  if (p.recompute != Recompute::kFull)
    return invalidArgument(
        fmt::format("(P14) recompute_layers {} needs recompute full, not {}; nearest: "
                    "recompute_layers 0",
                    p.recomputeLayers, recomputeName(p.recompute)));
  int64_t longest = 0;
  for (const std::vector<LayerRange>& stage : p.layers)
    for (const LayerRange& range : stage) longest = std::max(longest, range.count);
  if (p.recomputeLayers >= 1 && p.recomputeLayers <= longest) return {};
  return invalidArgument(
      fmt::format("(P14) recompute_layers {}: the longest virtual stage has {} layers; nearest: {}",
                  p.recomputeLayers, longest, p.recomputeLayers < 1 ? 1 : longest));
}

Status stackHasAName(const Plan& p, const ModelSpec&) {  // (P16)
  const auto isControl = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (!p.stack.empty() && spec::isValidUtf8(p.stack) &&
      std::none_of(p.stack.begin(), p.stack.end(), isControl))
    return {};
  return invalidArgument(
      fmt::format("(P16) stack {}: expected the name of a stack profile; nearest: trireme",
                  spec::quoteForMessage(p.stack)));
}

Status thereAreReductions(const Plan& p, const ModelSpec&) {  // (P17)
  if (!p.overlapReductions || p.dp() > 1 || p.tp > 1) return {};
  return invalidArgument(
      "(P17) overlap_reductions needs dp > 1 or tp > 1, but both are 1; nearest: "
      "overlap_reductions false");
}

Status ordersDiffer(const Plan& p, const ModelSpec&) {  // (P18)
  if (p.rankOrder == RankOrder::kTpCpDpPp || (p.pp > 1 && p.dp() > 1)) return {};
  return invalidArgument(fmt::format(
      "(P18) rank_order {} needs pp > 1 and dp > 1, but pp is {} and dp is {}; nearest: "
      "rank_order {}",
      rankOrderName(p.rankOrder), p.pp, p.dp(), rankOrderName(RankOrder::kTpCpDpPp)));
}

Status trainingFitsModel(const Plan& p, const ModelSpec& model) {  // (P13)
  const Status status = spec::verifyTraining(p.training, model);
  return status.ok() ? status : Status(status.code(), "(P13) training: " + status.message());
}

}  // namespace

Status verifyPlan(const Plan& plan, const ModelSpec& model) {
  // A rule may rely on the ones before it: the later ones divide by numbers that (P1) checks.
  constexpr Status (*kRules[])(const Plan&, const ModelSpec&) = {countsAreInRange,
                                                                 madeForThisModel,
                                                                 trainingFitsModel,
                                                                 batchDivides,
                                                                 tasksAreCountable,
                                                                 tpDividesHeads,
                                                                 tpDividesFfn,
                                                                 interleavingIsMeant,
                                                                 interleavedGroupsAreFull,
                                                                 layersCoverTheModel,
                                                                 recomputedLayersExist,
                                                                 contextDivides,
                                                                 sequenceParallelSplits,
                                                                 scatterGatherApplies,
                                                                 stateShardingHasRanks,
                                                                 thereAreNoExperts,
                                                                 stackHasAName,
                                                                 thereAreReductions,
                                                                 ordersDiffer};
  for (const auto rule : kRules) TRIREME_RETURN_IF_ERROR(rule(plan, model));
  return {};
}

}  // namespace trireme::plan
