#include <fmt/ranges.h>

#include <algorithm>

#include "ir/spec/load.h"
#include "ir/spec/precision_names.h"
#include "ir/spec/shipped.h"
#include "ir/spec/sourced.h"
#include "ir/spec/stack_names.h"
#include "ir/spec/suggestion.h"

namespace trireme::spec {
namespace {

constexpr int64_t kMostVocabMultiple = int64_t{1} << 20;
constexpr EnumName<bool> kProgramsArray[] = {{"own", true}, {"described", false}};
constexpr std::span<const EnumName<bool>> kPrograms = kProgramsArray;
constexpr EnumName<Fp8Recipe> kRecipeArray[] = {{"delayed", Fp8Recipe::kDelayed},
                                                {"current", Fp8Recipe::kCurrent},
                                                {"rowwise", Fp8Recipe::kRowwise},
                                                {"mx", Fp8Recipe::kMx}};
constexpr std::span<const EnumName<Fp8Recipe>> kRecipes = kRecipeArray;

// A list of names, each at most once.
template <typename T>
void readList(MapReader& map, std::string_view key, std::span<const EnumName<T>> names,
              std::vector<T>* out) {
  const Node* list = map.requiredChild(key);
  if (!list) return;
  if (list->kind != Node::Kind::kList)
    return map.fail(*list, fmt::format("expected a list of names, got {}", describe(*list)));
  out->clear();
  std::vector<std::string> known;
  for (const EnumName<T>& entry : names) known.emplace_back(entry.name);
  const auto refuse = [&](const Node& item, const std::string& why) {
    map.merge(errorAt(map.file(), item.mark, fmt::format("{}: {}", key, why)));
  };
  for (const Node& item : list->items) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const EnumName<T>& entry) {
      return item.kind == Node::Kind::kScalar && item.text == entry.name;
    });
    if (found == names.end())
      return refuse(
          item, fmt::format("unknown value {}{}", describe(item), suggestion(item.text, known)));
    if (std::find(out->begin(), out->end(), found->value) != out->end())
      return refuse(item, fmt::format("{} is there twice", describe(item)));
    out->push_back(found->value);
  }
}

void readNames(MapReader& map, std::string_view key, std::vector<std::string>* out) {
  const Node* list = map.child(key);
  if (!list) return;
  const bool isList = list->kind == Node::Kind::kList;
  if (!isList || list->items.empty())
    return map.fail(*list, fmt::format("expected a list of names, got {}",
                                       isList ? "an empty one" : describe(*list)));
  for (const Node& item : list->items) {
    if (item.kind != Node::Kind::kScalar || item.text.empty())
      return map.fail(*list, fmt::format("expected names, got {}", describe(item)));
    out->push_back(item.text);
  }
}

void readShare(MapReader& map, std::string_view key, double* out) {
  readNotNegative(map, key, out);
  if (const Node* node = map.child(key); node && map.firstValueError().ok() && *out > 1)
    map.fail(*node, fmt::format("a share is at most 1, got {}", *out));
}

void readOwn(MapReader& map, StackProfile* stack) {
  map.required("flash_attention", &stack->flashAttention);
  bool overlapsReductions = false;
  map.required("overlap_reductions", &overlapsReductions);
  if (!overlapsReductions) std::erase(stack->choices, StackChoice::kOverlapReductions);
  map.required("overlap_pipeline_transfers", &stack->overlapPipelineTransfers);
  readNotNegative(map, "fixed_reserve", &stack->fixedReserve);
  readNotNegative(map, "gpu_reserve", &stack->gpuReserve);
  readNotNegative(map, "nccl_connection", &stack->ncclConnection);
  // Absent: derived from the precision.
  if (map.child("optimizer_bytes_per_parameter"))
    readPositive(map, "optimizer_bytes_per_parameter", &stack->optimizerBytesPerParameter);
}

void readBytes(MapReader& map, StackDescription* stack) {
  readPositive(map, "parameter_bytes", &stack->parameterBytes);
  readPositive(map, "gradient_bytes", &stack->gradientBytes);
  readPositive(map, "optimizer_bytes", &stack->optimizerBytes);
  readPositive(map, "reduced_gradient_bytes", &stack->reducedGradientBytes);
  readPositive(map, "gathered_parameter_bytes", &stack->gatheredParameterBytes);
  readNotNegative(map, "optimizer_traffic", &stack->optimizerTraffic);
  readNotNegative(map, "loss_bytes", &stack->lossBytes);
  readNotNegative(map, "reserve", &stack->reserve);
  readShare(map, "fragmentation", &stack->fragmentation);
}

// What a stack need not have. Without its key there is nothing of it: fields stay as they are made.
void readOptionals(MapReader& map, StackDescription* stack) {
  const auto notNegative = [&](std::string_view key, auto* out) {
    if (map.child(key)) readNotNegative(map, key, out);
  };
  const auto share = [&](std::string_view key, double* out) {
    if (map.child(key)) readShare(map, key, out);
  };
  const auto efficiency = [&](std::string_view key, double* out) {
    if (map.child(key)) readEfficiency(map, key, out);
  };
  map.optional("selective_recompute", kSelective, &stack->selective);
  map.optional("attention_elsewhere", kAttention, &stack->attentionElsewhere);
  readPositiveIfGiven(map, "matmul_factor", &stack->matmulFactor);
  readPositiveIfGiven(map, "f8_matmul_factor", &stack->f8MatmulFactor);
  map.optional("context_exchange", kExchanges, &stack->contextExchange);
  notNegative("ring_bytes", &stack->ringBytes);
  efficiency("block_attention_efficiency", &stack->blockAttentionEfficiency);
  notNegative("parameter_traffic", &stack->parameterTraffic);
  readPositiveIfGiven(map, "logit_bytes", &stack->logitBytes);
  readPositiveIfGiven(map, "eager_logit_bytes", &stack->eagerLogitBytes);
  map.optional("eager_layers", &stack->eagerLayers);
  map.optional("eager_norms", &stack->eagerNorms);
  map.optional("keeps_gathered_inputs", &stack->keepsGatheredInputs);
  map.optional("keeps_gathered_weights", &stack->keepsGatheredWeights);
  notNegative("working_layers", &stack->workingLayers);
  map.optional("keeps_f8", &stack->keepsNarrow);
  notNegative("bf16_gradient_bytes", &stack->bf16GradientBytes);
  notNegative("step_gradient_bytes", &stack->stepGradientBytes);
  notNegative("step_gradients_at_once", &stack->stepGradientsAtOnce);
  notNegative("f8_copy_bytes", &stack->f8CopyBytes);
  map.optional("gathers_f8", &stack->gathersF8);
  map.optional("gathers_f8_activations", &stack->gathersF8Activations);
  map.optional("pipeline_keeps_whole", &stack->pipelineKeepsWhole);
  map.optional("post_validation", &stack->postValidation);
  map.optional("replica_reduction", kReductions, &stack->replicaReduction);
  notNegative("bucket_bytes", &stack->bucketBytes);
  notNegative("autocast_bytes", &stack->autocastBytes);
  efficiency("sharded_port_efficiency", &stack->shardedPortEfficiency);
  share("gradient_exposed", &stack->gradientExposed);
  share("gather_exposed", &stack->gatherExposed);
  share("tensor_parallel_exposed", &stack->tensorParallelExposed);
  share("transfer_exposed", &stack->transferExposed);
  map.optional("hides_between_chunks", &stack->hidesBetweenChunks);
  map.optional("keeps_layer_buffers", &stack->keepsLayerBuffers);
  map.optional("loader_masks", &stack->loaderMasks);
  readPositiveIfGiven(map, "host_backward", &stack->hostBackward);
  notNegative("host_exponent", &stack->hostExponent);
  if (const Node* node = map.child("host_exponent");
      node && map.firstValueError().ok() && stack->hostExponent > 0 && stack->hostExponent < 1)
    map.fail(*node, fmt::format("must be 0 (the longer of both) or at least 1 (the sum), got {}",
                                stack->hostExponent));
  share("host_exposed", &stack->hostExposed);
  share("host_growth", &stack->hostGrowth);
  notNegative("transfer_sync", &stack->transferSync);
  efficiency("whole_head_efficiency", &stack->wholeHeadEfficiency);
  notNegative("host_microbatch", &stack->hostMicrobatch);
  notNegative("nccl_connection", &stack->ncclConnection);
  notNegative("host_step", &stack->hostStep);
  share("slowdown_per_doubling", &stack->slowdownPerDoubling);
  share("faster_runs", &stack->fasterRuns);
  notNegative("slower_runs", &stack->slowerRuns);
  share("faster_elsewhere", &stack->fasterElsewhere);
  notNegative("slower_elsewhere", &stack->slowerElsewhere);
  share("memory_doubt", &stack->memoryDoubt);
  readNames(map, "compared_on", &stack->comparedOn);
}

void readDescription(MapReader& map, bool hasF8, StackDescription* stack) {
  map.required("attention", kAttention, &stack->attention);
  map.required("gradient_accumulation", kAccumulation, &stack->gradientAccumulation);
  map.required("scatter_gather", &stack->scatterGather);
  readPositive(map, "elementwise_factor", &stack->elementwiseFactor);
  readNotNegative(map, "host_launch", &stack->hostLaunch);
  if (hasF8 || map.child("cast_bytes")) readNotNegative(map, "cast_bytes", &stack->castBytes);
  readBytes(map, stack);
  readOptionals(map, stack);
}

// Of fp8 it has to say which.
void readSettings(MapReader& map, bool hasF8, StackSettings* settings) {
  if (hasF8)
    map.required("fp8_recipe", kRecipes, &settings->fp8.emplace());
  else if (const Node* node = map.child("fp8_recipe"))
    map.fail(*node, "is of fp8, which is none of the precisions: add it there, or remove this");
  for (const auto& [key, multiple] :
       {std::pair{"fp8_rows", &settings->fp8Rows}, {"fp8_columns", &settings->fp8Columns}}) {
    const Node* node = map.child(key);
    if (node == nullptr) continue;
    if (!hasF8) map.fail(*node, "is of fp8, which is none of the precisions: add it there");
    double value = 1;
    readPositive(map, key, &value);
    *multiple = static_cast<int64_t>(value);
    if (static_cast<double>(*multiple) != value)
      map.fail(*node, fmt::format("must be a whole number, got {}", value));
  }
  map.optional("compiled", &settings->compiled);
  map.optional("async_tensor_parallel", &settings->asyncTensorParallel);
}

bool trainsIn(const StackProfile& stack, Precision precision) {
  return std::find(stack.precisions.begin(), stack.precisions.end(), precision) !=
         stack.precisions.end();
}

}  // namespace

// "NVIDIA GeForce RTX 3090" and "RTX-3090-24GB" begin with the same words.
static std::string wordsOf(std::string_view device) {
  std::string words = lowerCase(device) + " ";
  std::replace(words.begin(), words.end(), '-', ' ');
  for (const std::string_view maker : {"nvidia ", "tesla ", "geforce "})
    if (words.starts_with(maker)) words.erase(0, maker.size());
  return words;
}

bool StackDescription::isComparedOn(std::string_view device) const {
  const std::string words = wordsOf(device);
  return comparedOn.empty() ||
         std::any_of(comparedOn.begin(), comparedOn.end(),
                     [&](const std::string& name) { return words.starts_with(wordsOf(name)); });
}

std::string_view fp8RecipeName(Fp8Recipe recipe) { return nameOf(kRecipes, recipe); }

std::vector<StackChoice> ownChoices() {
  return {StackChoice::kTensorParallel,     StackChoice::kSequenceParallel,
          StackChoice::kPipeline,           StackChoice::kGpipe,
          StackChoice::kInterleaved,        StackChoice::kZeroBubble,
          StackChoice::kScatterGather,      StackChoice::kShardOptimizer,
          StackChoice::kRecomputeSelective, StackChoice::kRecomputeFull,
          StackChoice::kOverlapReductions,  StackChoice::kRankOrder};
}

std::vector<Precision> ownPrecisions() {
  return {Precision::kFp64, Precision::kFp32, Precision::kBf16, Precision::kFp16};
}

// Of the shipped profiles that begin with the same word the one with the shortest name that trains
// in it; empty: none does.
static std::string relativeIn(Precision precision, const std::string& stack) {
  const std::string family = stack.substr(0, stack.find('-'));
  std::string shortest;
  for (const std::string& name : shippedNames(ShippedKind::kStack)) {
    const bool isOfFamily = name == family || name.starts_with(family + "-");
    if (!isOfFamily || (!shortest.empty() && name.size() >= shortest.size())) continue;
    const Result<StackProfile> relative = loadStack(name);
    if (relative.has_value() && trainsIn(*relative, precision)) shortest = name;
  }
  return shortest;
}

Status checkPrecision(const StackProfile& stack, const TrainingSpec& training) {
  if (training.tf32 && !stack.ownPrograms)
    return invalidArgument(
        fmt::format("stack '{}' has no setting for tf32: its script says what PyTorch multiplies "
                    "in; nearest: tf32 false",
                    stack.name));
  const Precision precision = training.precision;
  if (trainsIn(stack, precision)) return {};
  std::vector<std::string_view> names;
  for (const Precision known : stack.precisions) names.push_back(precisionName(known));
  // bf16 replaces fp16 and fp8; what has no bf16 has been given its own first choice.
  const bool hasBf16 = trainsIn(stack, Precision::kBf16);
  const std::string relative = relativeIn(precision, stack.name);
  const char* const onGpus = precision == Precision::kFp8 ? " on GPUs that multiply in it" : "";
  return invalidArgument(fmt::format(
      "stack '{}' does not train in {}; valid: {}; nearest: {}{}", stack.name,
      precisionName(precision), fmt::join(names, ", "),
      hasBf16 ? precisionName(Precision::kBf16) : names.front(),
      relative.empty() ? "" : fmt::format(", or stack {} (--stack){}", relative, onGpus)));
}

Precision usualPrecision(const StackProfile& stack, const DeviceSpec& device) {
  if (stack.ownPrograms && device.kind != DeviceKind::kCuda) return Precision::kFp32;
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32})
    if (trainsIn(stack, precision) && device.peak(*mathFormatOf(computeDType(precision))))
      return precision;
  return stack.precisions.front();
}

Result<StackProfile> parseStack(const std::string& text, const std::string& name) {
  TRIREME_ASSIGN_OR_RETURN(const Node root, parseDocument(text, name));
  MapReader map(name, root);
  StackProfile stack;
  map.collectSources(&stack.sources);
  map.required("name", &stack.name);
  map.optional("programs", kPrograms, &stack.ownPrograms);
  map.optional("caution", &stack.caution);
  TRIREME_RETURN_IF_ERROR(map.firstValueError());  // which keys there are depends on it
  readPositiveIfGiven(map, "compute_capability", &stack.computeCapability);
  if (stack.ownPrograms) {
    readOwn(map, &stack);
  } else {
    readList(map, "choices", kChoices, &stack.choices);
    if (const Node* node = map.child("choices");
        node && stack.supports(StackChoice::kOverlapReductions))
      map.fail(
          *node,
          "overlap_reductions is a choice of programs: own; what a described stack overlaps is "
          "said by gradient_exposed and tensor_parallel_exposed");
    readList(map, "precisions", kPrecisions, &stack.precisions);
    TRIREME_RETURN_IF_ERROR(map.firstValueError());
    if (const Node* node = map.child("precisions"); node && stack.precisions.empty())
      map.fail(*node, "needs at least one");
    const bool hasF8 = trainsIn(stack, Precision::kFp8);
    readDescription(map, hasF8, &stack.description);
    readSettings(map, hasF8, &stack.settings);
    if (stack.description.pipelineKeepsWhole)
      stack.rules.push_back(StackRule::kWholeGradientsInPipeline);
    if (const Node* node = map.child("vocab_multiple")) {
      map.optional("vocab_multiple", &stack.vocabMultiple);
      if (stack.vocabMultiple < 1 || stack.vocabMultiple > kMostVocabMultiple)
        map.fail(*node,
                 fmt::format("must be 1 to {}, got {}", kMostVocabMultiple, stack.vocabMultiple));
    }
  }
  TRIREME_RETURN_IF_ERROR(map.finish());
  return stack;
}

}  // namespace trireme::spec
