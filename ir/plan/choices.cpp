#include "ir/plan/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ir/base/status.h"
#include "ir/spec/load.h"

namespace trireme::plan {

using spec::StackChoice;

std::vector<ChoiceUse> choicesUsed(const Plan& p) {
  std::vector<ChoiceUse> uses;
  const auto add = [&](bool isUsed, StackChoice choice, std::string value, std::string nearest) {
    if (isUsed) uses.push_back({choice, std::move(value), std::move(nearest)});
  };
  const auto degree = [&](const char* name, int64_t value, StackChoice choice) {
    add(value > 1, choice, fmt::format("{} {}", name, value), fmt::format("{} 1", name));
  };
  const auto schedule = [&](ScheduleKind kind, StackChoice choice) {
    add(p.schedule == kind, choice, fmt::format("schedule {}", scheduleName(kind)),
        "schedule 1f1b");
  };
  const auto sharding = [&](StateSharding kind, StackChoice choice) {
    add(p.stateSharding == kind, choice, fmt::format("state sharding {}", stateShardingName(kind)),
        "state sharding none");
  };
  const auto recompute = [&](Recompute kind, StackChoice choice) {
    add(p.recompute == kind, choice, fmt::format("recompute {}", recomputeName(kind)),
        "recompute none");
  };
  degree("tp", p.tp, StackChoice::kTensorParallel);
  degree("cp", p.cp, StackChoice::kContextParallel);
  degree("pp", p.pp, StackChoice::kPipeline);
  schedule(ScheduleKind::kGpipe, StackChoice::kGpipe);
  schedule(ScheduleKind::kInterleaved, StackChoice::kInterleaved);
  schedule(ScheduleKind::kZeroBubbleH1, StackChoice::kZeroBubble);
  schedule(ScheduleKind::kZeroBubbleH2, StackChoice::kZeroBubble);
  add(p.sequenceParallel, StackChoice::kSequenceParallel, "sequence parallel on", "off");
  add(p.scatterGather, StackChoice::kScatterGather, "scatter-gather on", "off");
  sharding(StateSharding::kOptimizer, StackChoice::kShardOptimizer);
  sharding(StateSharding::kGradients, StackChoice::kShardGradients);
  sharding(StateSharding::kParameters, StackChoice::kShardParameters);
  add(p.stateSharding != StateSharding::kNone && p.dpReplicate > 1, StackChoice::kReplicatedShards,
      fmt::format("sharded state in {} replicas", p.dpReplicate), "1");
  recompute(Recompute::kSelective, StackChoice::kRecomputeSelective);
  recompute(Recompute::kFull, StackChoice::kRecomputeFull);
  add(p.recomputeLayers > 0, StackChoice::kRecomputeLayers,
      fmt::format("recompute of {} layers per virtual stage", p.recomputeLayers), "of all layers");
  add(p.overlapReductions, StackChoice::kOverlapReductions, "overlapped reductions", "off");
  add(p.rankOrder != RankOrder::kTpCpDpPp, StackChoice::kRankOrder,
      fmt::format("rank order {}", rankOrderName(p.rankOrder)),
      std::string(rankOrderName(RankOrder::kTpCpDpPp)));
  return uses;
}

namespace {

int64_t hostOf(const Plan& plan) {
  return plan.devicesPerHost > 0 ? plan.devicesPerHost : kUsualHost;
}

// With fewer replicas or, where that helps nothing, fewer ranks.
std::string nearestAlike(Plan plan) {
  const int64_t ranks = plan.numRanks();
  plan.dpReplicate = plan.dp();
  plan.dpShard = 1;
  while (plan.dpReplicate > 1) {
    --plan.dpReplicate;
    if (ranksPerHost(plan)) return fmt::format("dp {}", plan.dpReplicate);
  }
  return fmt::format("{} ranks", ranks / hostOf(plan) * hostOf(plan));
}

// Fewer tensor-parallel ranks or, where that helps nothing, a longer sequence.
std::string nearestWithWholeParts(const Plan& plan) {
  const int64_t sequence = plan.training.sequenceLength, ofContext = 2 * plan.cp;
  if (sequence % ofContext == 0)
    return fmt::format("tp {}", std::gcd(plan.tp, sequence / ofContext));
  const int64_t all = ofContext * plan.tp;
  return fmt::format("sequence {}", (sequence / all + 1) * all);
}

// Of a replica's sequences, the largest microbatches that leave one to every stage; fewer stages if
// there are not as many sequences.
std::string nearestWithEnoughMicrobatches(const Plan& plan) {
  const int64_t sequences = plan.training.globalBatchSize / plan.dp();
  if (sequences < plan.pp) return fmt::format("pp {}", std::max<int64_t>(sequences, 1));
  int64_t size = std::min(plan.microbatchSize, sequences / plan.pp);
  while (sequences % size != 0) --size;
  return fmt::format("microbatches of {}", size);
}

// PyTorch's schedules of one stage a rank refuse fewer (PipelineScheduleSingle, Schedule1F1B of
// torch/distributed/pipelining/schedules.py). Interleaved ones have as many (P7).
std::optional<RuleBreach> breachOfMicrobatches(const Plan& p) {
  if (p.pp == 1 || p.virtualStages > 1 || p.numMicrobatches() >= p.pp) return std::nullopt;
  return RuleBreach{fmt::format("{} microbatch{} in {} stages", p.numMicrobatches(),
                                p.numMicrobatches() == 1 ? "" : "es", p.pp),
                    nearestWithEnoughMicrobatches(p)};
}

}  // namespace

std::optional<int64_t> ranksPerHost(int64_t ranks, int64_t tp, int64_t host) {
  if (ranks <= host) return ranks;
  if (ranks % host == 0) return host;
  const int64_t hosts = (ranks + host - 1) / host;
  if (ranks % hosts != 0 || ranks / hosts % tp != 0) return std::nullopt;
  return ranks / hosts;
}

std::optional<int64_t> ranksPerHost(const Plan& plan) {
  return ranksPerHost(plan.numRanks(), plan.tp, hostOf(plan));
}

std::optional<int64_t> alikeOfHost(int64_t ranks, int64_t tp, int64_t host, int64_t devices) {
  for (int64_t part = host; part > 0; --part) {
    const auto each = ranksPerHost(ranks, tp, part);
    if (!each || ranks / *each > devices / host + (devices % host >= *each ? 1 : 0)) continue;
    if (part == host) return host;
    if (*each % tp == 0) return *each;
  }
  return std::nullopt;
}

std::optional<RuleBreach> breachOf(const Plan& p, spec::StackRule rule) {
  using spec::StackRule;
  constexpr const char* kNearest = "state sharding parameters";
  const bool shares = p.stateSharding != StateSharding::kNone;
  const bool isSplitUnshared = p.cp == 1 && !shares && p.tp * p.pp > 1;
  switch (rule) {
    case StackRule::kSequenceWithTensor:
      if (p.tp == 1 || p.sequenceParallel) return std::nullopt;
      return RuleBreach{"tp without sequence parallel", "sequence parallel on"};
    case StackRule::kShardingWithContext:
      if (p.cp == 1 || shares) return std::nullopt;
      return RuleBreach{"cp without sharded parameters", kNearest};
    case StackRule::kShardingWithReplicas:
      if (!isSplitUnshared || p.dpReplicate == 1) return std::nullopt;
      return RuleBreach{fmt::format("{} unsharded replicas beside tp or pp", p.dpReplicate),
                        kNearest};
    case StackRule::kShardingWithShortFloats:
      if (!isSplitUnshared || p.dpReplicate > 1) return std::nullopt;
      if (p.training.precision == spec::Precision::kFp32) return std::nullopt;
      return RuleBreach{fmt::format("{} without sharded parameters beside tp or pp",
                                    spec::precisionName(p.training.precision)),
                        fmt::format("{}, or fp32", kNearest)};
    case StackRule::kWholeGradientsInPipeline:
      if (p.pp == 1 || p.stateSharding != StateSharding::kGradients) return std::nullopt;
      return RuleBreach{"state sharding gradients beside a pipeline", kNearest};
    case StackRule::kEnoughMicrobatches:
      return breachOfMicrobatches(p);
    case StackRule::kOptimizerInPipeline:
      if (p.pp == 1 || p.stateSharding <= StateSharding::kOptimizer) return std::nullopt;
      return RuleBreach{
          fmt::format("state sharding {} beside a pipeline", stateShardingName(p.stateSharding)),
          "state sharding optimizer, or pp 1"};
    case StackRule::kShardingWithBf16:
      if (shares || p.dp() == 1 || p.training.precision != spec::Precision::kBf16)
        return std::nullopt;
      return RuleBreach{"bf16 without sharded state", "state sharding optimizer, or fp16"};
    case StackRule::kWholeParts:
      if (p.training.sequenceLength % (2 * p.tp * p.cp) == 0) return std::nullopt;
      return RuleBreach{fmt::format("sequence {} with tp {} and cp {}, which 2 x tp x cp does not "
                                    "divide",
                                    p.training.sequenceLength, p.tp, p.cp),
                        nearestWithWholeParts(p)};
    case StackRule::kAlikeHosts:
      if (ranksPerHost(p)) return std::nullopt;
      return RuleBreach{
          fmt::format("{} ranks, not as many on each host of {}", p.numRanks(), hostOf(p)),
          nearestAlike(p)};
  }
  return std::nullopt;
}

// Inputs of the projections of queries, keys and values and of the first of the MLP are hidden
// wide, those of the others heads x head size and ffn; outputs of the latter are hidden wide.
std::optional<Fp8Misfit> fp8Misfit(const spec::ModelSpec& model, spec::Precision precision,
                                   int64_t tp, const spec::StackSettings& settings) {
  if (precision != spec::Precision::kFp8) return std::nullopt;
  const int64_t heads = model.numHeads * model.headSize / tp, ffn = model.ffnSize / tp;
  const int64_t queriesKeysValues = (model.numHeads + 2 * model.numKvHeads) * model.headSize / tp;
  const bool isGated = model.activation == spec::ActivationKind::kSwiGlu;
  const Fp8Misfit sizes[] = {
      {"hidden size", model.hiddenSize, settings.fp8Columns},
      {"heads x head size / tp", heads, settings.fp8Columns},
      {"ffn / tp", ffn, settings.fp8Columns},
      {"hidden size", model.hiddenSize, settings.fp8Rows},
      {"queries, keys and values / tp", queriesKeysValues, settings.fp8Rows},
      {isGated ? "2 ffn / tp" : "ffn / tp", isGated ? 2 * ffn : ffn, settings.fp8Rows}};
  for (const Fp8Misfit& size : sizes)
    if (size.size % size.multiple != 0) return size;
  return std::nullopt;
}

bool hasFp8Tokens(int64_t tokensOfRank, spec::Precision precision,
                  const spec::StackSettings& settings) {
  return precision != spec::Precision::kFp8 || tokensOfRank % settings.fp8Rows == 0;
}

std::optional<RuleBreach> fp8Breach(const Plan& p, const spec::ModelSpec& model,
                                    const spec::StackSettings& settings) {
  const spec::Precision precision = p.training.precision;
  if (const auto misfit = fp8Misfit(model, precision, p.tp, settings)) {
    int64_t nearest = p.tp - 1;
    while (nearest > 0 &&
           (p.tp % nearest != 0 || fp8Misfit(model, precision, nearest, settings).has_value()))
      --nearest;
    return RuleBreach{fmt::format("fp8 products of {} {} at tp {}, which is no multiple of {}",
                                  misfit->what, misfit->size, p.tp, misfit->multiple),
                      nearest > 0 ? fmt::format("tp {}", nearest) : "bf16"};
  }
  const int64_t tokens =
      p.microbatchSize * p.training.sequenceLength / p.cp / (p.sequenceParallel ? p.tp : 1);
  if (hasFp8Tokens(tokens, precision, settings)) return std::nullopt;
  return RuleBreach{fmt::format("fp8 products of {} tokens on a rank", tokens),
                    fmt::format("a multiple of {}", settings.fp8Rows)};
}

bool rankOrderGoesWithSharding(const Plan& p) {
  return p.rankOrder == RankOrder::kTpCpDpPp || p.stateSharding < StateSharding::kGradients;
}

}  // namespace trireme::plan
