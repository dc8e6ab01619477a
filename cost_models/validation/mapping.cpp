#include "cost_models/validation/mapping.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cost_models/validation/row_model.h"
#include "ir/spec/load.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/suggestion.h"

namespace trireme::cost {
namespace {

using plan::Recompute;
using plan::ScheduleKind;
using plan::StateSharding;
using Assumptions = std::vector<std::string>;

constexpr int64_t kMostLayers = 1 << 16;  // a cut takes memory for each

bool containsAny(const std::string& text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != std::string::npos; });
}

Status checkComplete(const Row& row) {  // (R1), (R2)
  const std::pair<std::string_view, bool> needed[] = {{"stack", !row.stack.empty()},
                                                      {"gpu", !row.gpu.empty()},
                                                      {"gpus", row.gpus.has_value()},
                                                      {"model", !row.model.empty()},
                                                      {"layers", row.layers.has_value()},
                                                      {"hidden", row.hidden.has_value()},
                                                      {"heads", row.heads.has_value()},
                                                      {"seq", row.seq.has_value()},
                                                      {"global_batch", row.globalBatch.has_value()},
                                                      {"micro_batch", row.microBatch.has_value()},
                                                      {"tp", row.tp.has_value()},
                                                      {"pp", row.pp.has_value()},
                                                      {"precision", !row.precision.empty()}};
  std::vector<std::string_view> missing;
  for (const auto& [name, isThere] : needed)
    if (!isThere) missing.push_back(name);
  if (row.experts.value_or(1) > 1)
    return invalidArgument(
        fmt::format("a model with {} experts; only dense ones are known", *row.experts));
  if (row.ep.value_or(1) > 1)
    return invalidArgument(
        fmt::format("ep {} of a dense model, which has no experts to share", *row.ep));
  if (missing.empty()) return {};
  return invalidArgument(fmt::format("unpublished: {}", fmt::join(missing, ", ")));
}

Status checkTime(const Row& row) {  // (R15)
  constexpr double kRounding = 0.02;
  Row untimed = row;
  untimed.iterTime.reset();
  const std::optional<double> followed = measuredSeconds(untimed);
  if (!row.iterTime || !followed || std::abs(*followed / *row.iterTime - 1) <= kRounding) return {};
  return invalidArgument(
      fmt::format("iter_time_s {} contradicts tokens_per_s_per_gpu {}, from which {:.4g} s follow",
                  *row.iterTime, *row.tokensPerSecondPerGpu, *followed));
}

Result<spec::Precision> precisionOf(const Row& row) {  // (R13)
  const std::string name = spec::lowerCase(row.precision);
  if (containsAny(name, {"fp4"}))
    return Error(invalidArgument(fmt::format("precision {}: four bits are not known",
                                             spec::quoteForMessage(row.precision))));
  if (containsAny(name, {"fp8"})) return spec::Precision::kFp8;
  const std::string word = name.substr(0, name.find_first_of("( -+"));
  constexpr std::pair<std::string_view, spec::Precision> kNames[] = {
      {"bf16", spec::Precision::kBf16},
      {"fp16", spec::Precision::kFp16},
      {"fp32", spec::Precision::kFp32},
      {"fp64", spec::Precision::kFp64}};
  for (const auto& [known, precision] : kNames)
    if (word == known) return precision;
  return Error(invalidArgument(
      fmt::format("precision {}: unknown{}", spec::quoteForMessage(row.precision),
                  spec::suggestion(word, {"bf16", "fp16", "fp32", "fp64", "fp8"}))));
}

Status setDegrees(const Row& row, plan::Plan& plan) {
  plan.tp = *row.tp;
  plan.pp = *row.pp;
  plan.cp = row.cp.value_or(1);
  const __int128 inner = static_cast<__int128>(plan.tp) * plan.pp * plan.cp;
  const int64_t dp =
      row.dp.value_or(inner <= *row.gpus ? *row.gpus / static_cast<int64_t>(inner) : int64_t{1});
  if (inner * dp != *row.gpus)
    return invalidArgument(fmt::format("tp {} x pp {} x cp {} x dp {} are not the {} GPUs", plan.tp,
                                       plan.pp, plan.cp, dp, *row.gpus));
  plan.dpReplicate = dp;
  return {};
}

void setSharding(const Row& row, Assumptions& assumptions, plan::Plan& plan) {  // (R8)
  const int64_t unpublished = row.stack == "alpa" ? 1 : 0;
  if (!row.zero) assumptions.push_back(fmt::format("(R8) zero unpublished: {}", unpublished));
  constexpr StateSharding kKinds[] = {StateSharding::kNone, StateSharding::kOptimizer,
                                      StateSharding::kGradients, StateSharding::kParameters};
  const StateSharding kind = kKinds[row.zero.value_or(unpublished)];
  if (kind == StateSharding::kNone || plan.dpReplicate * plan.cp == 1) return;
  plan.stateSharding = kind;
  std::swap(plan.dpShard, plan.dpReplicate);
}

bool isKnownSchedule(const Row& row, const std::string& name) {
  if (name.empty() || isZeroBubble(row) || name.starts_with("gpipe") ||
      name.starts_with("interleaved"))
    return true;
  return !containsAny(name, {"bubble"}) &&
         containsAny(name, {"1f1b", "fsdp", "zero", "ddp", "none"});
}

Status checkSchedule(const Row& row, const std::string& name) {  // (R7)
  if (!isKnownSchedule(row, name))
    return invalidArgument(fmt::format(
        "schedule {}: unknown{}", spec::quoteForMessage(row.schedule),
        spec::suggestion(
            name, {"1f1b", "interleaved 1f1b", "zb-1p", "zb-2p", "gpipe", "fsdp1", "fsdp2"})));
  if (*row.pp == 1 || !row.vp) return {};
  const bool isInterleaved = name.starts_with("interleaved");
  if (*row.vp == 1 && isInterleaved)
    return invalidArgument(fmt::format("vp 1 contradicts schedule {}, which takes at least 2",
                                       spec::quoteForMessage(row.schedule)));
  if (*row.vp > 1 && !name.empty() && !containsAny(name, {"interleaved", "1f1b"}))
    return invalidArgument(
        fmt::format("vp {} contradicts schedule {}: only interleaved 1F1B has virtual stages",
                    *row.vp, spec::quoteForMessage(row.schedule)));
  return {};
}

Status setSchedule(const Row& row, Assumptions& assumptions, plan::Plan& plan) {  // (R7)
  const std::string name = spec::lowerCase(row.schedule);
  const bool isInterleaved = name.starts_with("interleaved");
  TRIREME_RETURN_IF_ERROR(checkSchedule(row, name));
  if (!row.vp && isInterleaved && plan.pp > 1)
    return invalidArgument("unpublished: vp, of an interleaved schedule");
  plan.virtualStages = row.vp.value_or(1);
  if (!row.vp && plan.pp > 1) {
    const bool isRecipe = row.stack == "nemo" && name.empty() && *row.layers % plan.pp == 0;
    if (isRecipe) plan.virtualStages = *row.layers / plan.pp;
    assumptions.push_back(isRecipe ? "(R7) vp unpublished: NeMo's recipe, a layer per chunk"
                                   : "(R7) vp unpublished: 1");
  }
  if (isZeroBubble(row)) {
    plan.schedule = name == "zb-1p" ? ScheduleKind::kZeroBubbleH1 : ScheduleKind::kZeroBubbleH2;
    assumptions.push_back("(R7) the schedule drawn by hand instead of the published search's");
  } else if (plan.virtualStages > 1)
    plan.schedule = ScheduleKind::kInterleaved;
  else if (name.starts_with("gpipe"))
    plan.schedule = ScheduleKind::kGpipe;
  return {};
}

Status setLayers(const Row& row, Assumptions& assumptions, plan::Plan& plan) {  // (R6)
  const __int128 stages = static_cast<__int128>(plan.pp) * plan.virtualStages;
  const int64_t layers = *row.layers;
  if (layers > kMostLayers)
    return invalidArgument(fmt::format("{} layers; at most {} are known", layers, kMostLayers));
  if (stages > 1 && layers % stages != 0 && (layers + 2) % stages == 0) {
    assumptions.push_back("(R6) the first and the last virtual stage have one layer less");
    // The even cut of two more layers, the first of which is the embedding and the last the head.
    plan.layers = plan::evenLayers(layers + 2, plan.pp, plan.virtualStages);
    for (auto& stage : plan.layers)
      for (plan::LayerRange& range : stage) --range.first;
    plan.layers[0][0] = {0, plan.layers[0][0].count - 1};
    --plan.layers.back().back().count;
    return {};
  }
  if (stages > layers)
    return invalidArgument(fmt::format("pp {} x {} virtual stages are more than {} layers", plan.pp,
                                       plan.virtualStages, layers));
  plan.layers = plan::evenLayers(layers, plan.pp, plan.virtualStages);
  return {};
}

Status setRecompute(const Row& row, Assumptions& assumptions, plan::Plan& plan) {  // (R10)
  const std::string name = spec::lowerCase(row.recompute);
  const std::string word = name.substr(0, name.find_first_of("( "));
  if (word.empty()) {
    assumptions.push_back("(R10) recompute unpublished: none");
  } else if (row.source.find("ground_truth_single") != std::string::npos) {
    assumptions.push_back("(R10) recompute full of a simulator's configuration: none");
  } else if (word == "full") {
    plan.recompute = Recompute::kFull;
  } else if (word == "selective") {
    plan.recompute = Recompute::kSelective;
  } else if (word != "none") {
    return invalidArgument(fmt::format("recompute {}: unknown{}",
                                       spec::quoteForMessage(row.recompute),
                                       spec::suggestion(word, {"none", "selective", "full"})));
  }
  return {};
}

void setTensorParallel(const Row& row, Assumptions& assumptions, const RunQuery& query,
                       plan::Plan& plan) {
  if (plan.tp == 1) return;
  plan.sequenceParallel = row.seqParallel.value_or(false);
  if (!row.seqParallel) {  // (R9)
    plan.sequenceParallel = row.stack == "nemo" || row.stack == "torchtitan";
    assumptions.push_back(
        fmt::format("(R9) seq_parallel unpublished: {}", plan.sequenceParallel ? "on" : "off"));
  }
  // (R12)
  const bool divides = *row.hidden % plan.tp == 0 || *row.seq / plan.cp % plan.tp == 0;
  plan.scatterGather = query.stack.supports(spec::StackChoice::kScatterGather) && plan.pp > 1 &&
                       !plan.sequenceParallel && divides;
}

bool isMegatron(const Row& row) {
  return row.stack.starts_with("megatron") || row.stack == "nemo" || row.stack == "trireme";
}

void setLoss(const Row& row, Assumptions& assumptions, spec::StackDescription& stack) {  // (R16)
  if (!row.stack.starts_with("torchtitan") || !row.year || *row.year > 2024 ||
      stack.eagerLogitBytes == 0)
    return;
  stack.logitBytes = stack.eagerLogitBytes;
  assumptions.push_back("(R16) a loss that is not compiled, as until 2024");
}

void setDropout(const Row& row, ModelKind kind, Assumptions& assumptions,
                spec::TrainingSpec& training) {  // (R14)
  const bool isTrainedSo = row.stack.starts_with("megatron") ||
                           row.stack.starts_with("deepspeed") || row.stack == "alpa";
  if (kind != ModelKind::kGpt || !isTrainedSo) return;
  training.embeddingDropout = training.attentionDropout = training.residualDropout = 0.1;
  assumptions.push_back("(R14) dropout unpublished: 0.1, as in the scripts");
}

}  // namespace

Result<RunQuery> queryOf(const Row& row, const Catalogue& catalogue) {
  TRIREME_RETURN_IF_ERROR(checkComplete(row));
  TRIREME_RETURN_IF_ERROR(checkTime(row));
  RunQuery query;
  Assumptions& assumptions = query.assumptions;
  TRIREME_ASSIGN_OR_RETURN(ChosenStack stack, stackFor(row, catalogue.stacks));
  query.stack = std::move(stack.profile);
  if (!stack.assumption.empty()) assumptions.push_back(std::move(stack.assumption));
  setLoss(row, assumptions, query.stack.description);
  TRIREME_ASSIGN_OR_RETURN(RowModel model, modelFor(row, assumptions));
  query.model = std::move(model.spec);

  plan::Plan& plan = query.plan;
  plan.model = query.model.name;
  plan.fingerprint = plan::fingerprintOf(query.model);
  plan.stack = query.stack.name;
  TRIREME_ASSIGN_OR_RETURN(plan.training.precision, precisionOf(row));
  TRIREME_RETURN_IF_ERROR(spec::checkPrecision(query.stack, plan.training));
  plan.training.sequenceLength = *row.seq;
  plan.training.globalBatchSize = *row.globalBatch;
  setDropout(row, model.kind, assumptions, plan.training);
  plan.microbatchSize = *row.microBatch;
  plan.vocabMultiple = isMegatron(row) ? 128 : 1;  // (R11)
  TRIREME_RETURN_IF_ERROR(setDegrees(row, plan));
  setSharding(row, assumptions, plan);
  TRIREME_RETURN_IF_ERROR(setSchedule(row, assumptions, plan));
  TRIREME_RETURN_IF_ERROR(setLayers(row, assumptions, plan));
  TRIREME_RETURN_IF_ERROR(setRecompute(row, assumptions, plan));
  setTensorParallel(row, assumptions, query, plan);
  TRIREME_RETURN_IF_ERROR(plan::verifyPlan(plan, query.model));
  TRIREME_ASSIGN_OR_RETURN(query.cluster, clusterFor(row, catalogue.clusters));
  return query;
}

}  // namespace trireme::cost
