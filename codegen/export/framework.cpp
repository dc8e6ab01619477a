#include "codegen/export/framework.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codegen/export/loss_scale.h"
#include "ir/plan/choices.h"
#include "ir/spec/load.h"

namespace trireme::codegen {
namespace {

using plan::StateSharding;
using spec::Fp8Recipe;
using spec::Precision;
using spec::StackChoice;
using spec::StackRule;

// megatron/training/arguments.py has a flag for each: --use-megatron-fsdp shards gradients and
// parameters, --num-distributed-optimizer-instances replicates shards. It has no GPipe, and
// Megatron-Core sends whole borders: the scatter-gather of its command line was the p2p code's
// before it. Megatron-Bridge has a key for each.
constexpr StackChoice kMegatronChoices[] = {
    StackChoice::kTensorParallel,   StackChoice::kSequenceParallel,
    StackChoice::kContextParallel,  StackChoice::kPipeline,
    StackChoice::kInterleaved,      StackChoice::kShardOptimizer,
    StackChoice::kShardGradients,   StackChoice::kShardParameters,
    StackChoice::kReplicatedShards, StackChoice::kRecomputeSelective,
    StackChoice::kRecomputeFull,    StackChoice::kRecomputeLayers,
    StackChoice::kRankOrder};
// FSDP2 that reshards after the forward (parameters) or never (gradients).
constexpr StackChoice kTorchtitanChoices[] = {StackChoice::kTensorParallel,
                                              StackChoice::kSequenceParallel,
                                              StackChoice::kContextParallel,
                                              StackChoice::kPipeline,
                                              StackChoice::kGpipe,
                                              StackChoice::kInterleaved,
                                              StackChoice::kShardGradients,
                                              StackChoice::kShardParameters,
                                              StackChoice::kReplicatedShards,
                                              StackChoice::kRecomputeSelective,
                                              StackChoice::kRecomputeFull};
// The JSON has ZeRO 1 to 3; tensor and pipeline parallelism are the training script's.
constexpr StackChoice kDeepspeedChoices[] = {
    StackChoice::kShardOptimizer, StackChoice::kShardGradients, StackChoice::kShardParameters,
    StackChoice::kRecomputeFull};
constexpr StackChoice kAccelerateChoices[] = {
    StackChoice::kShardGradients, StackChoice::kShardParameters, StackChoice::kReplicatedShards,
    StackChoice::kContextParallel, StackChoice::kRecomputeFull};

constexpr Precision kMegatronPrecisions[] = {Precision::kFp32, Precision::kFp16, Precision::kBf16,
                                             Precision::kFp8};
constexpr Precision kNemoPrecisions[] = {Precision::kFp16, Precision::kBf16, Precision::kFp8};
constexpr Precision kTorchtitanPrecisions[] = {Precision::kFp32, Precision::kBf16, Precision::kFp8};
constexpr Precision kPlainPrecisions[] = {Precision::kFp32, Precision::kFp16, Precision::kBf16};

constexpr Fp8Recipe kMegatronRecipes[] = {Fp8Recipe::kDelayed, Fp8Recipe::kCurrent, Fp8Recipe::kMx};
// torchao; it calls scales of the tensor itself tensorwise.
constexpr Fp8Recipe kTorchtitanRecipes[] = {Fp8Recipe::kCurrent, Fp8Recipe::kRowwise};

// What torchtitan's parallelize_llama does without being asked, or refuses: its tensor parallelism
// is sequence parallel, mixed_precision_param acts through fully_shard, or through autocast without
// model parallelism, sequences are of whole parts for tensor and context parallelism together
// (ParallelDims.seq_len_divisor), and its pipeline stages add gradients up whole, each with a
// microbatch at least. The first that is broken is named: what no other degrees mend comes before.
constexpr StackRule kTorchtitanRules[] = {
    StackRule::kSequenceWithTensor,   StackRule::kShardingWithContext,
    StackRule::kShardingWithReplicas, StackRule::kShardingWithShortFloats,
    StackRule::kWholeParts,           StackRule::kWholeGradientsInPipeline,
    StackRule::kEnoughMicrobatches,   StackRule::kAlikeHosts};
// torchrun starts as many processes on every node; so does every launcher.
constexpr StackRule kAccelerateRules[] = {StackRule::kShardingWithContext, StackRule::kAlikeHosts};
// Megatron-FSDP makes its mesh of all ranks by tp, cp and dp (mcore_fsdp_adapter.py), so that it
// ends at the start of a pipeline.
constexpr StackRule kMegatronRules[] = {StackRule::kOptimizerInPipeline, StackRule::kAlikeHosts};
// Without ZeRO bf16 goes through another optimizer (BF16_Optimizer), which keeps gradients in f32
// besides and shards the rest.
constexpr StackRule kDeepspeedRules[] = {StackRule::kShardingWithBf16, StackRule::kAlikeHosts};

constexpr FrameworkInfo kInfos[] = {
    {"megatron", "Megatron-LM", "megatron-core", kMegatronChoices, kMegatronPrecisions,
     kMegatronRecipes, kMegatronRules, true},
    {"nemo", "Megatron-Bridge", "nemo", kMegatronChoices, kNemoPrecisions, kMegatronRecipes,
     kMegatronRules, true},
    {"torchtitan", "torchtitan", "torchtitan", kTorchtitanChoices, kTorchtitanPrecisions,
     kTorchtitanRecipes, kTorchtitanRules, false},
    {"deepspeed",
     "DeepSpeed's JSON",
     "deepspeed",
     kDeepspeedChoices,
     kPlainPrecisions,
     {},
     kDeepspeedRules,
     false},
    {"accelerate",
     "Hugging Face Accelerate",
     "accelerate",
     kAccelerateChoices,
     kPlainPrecisions,
     {},
     kAccelerateRules,
     false}};

template <typename T>
bool has(std::span<const T> items, T item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

// The precision with the nearest number of bits among those that the framework has.
std::string nearestPrecision(Precision wanted, std::span<const Precision> known) {
  if (wanted == Precision::kFp64 && has(known, Precision::kFp32)) return "fp32";
  return has(known, Precision::kBf16) ? "bf16" : std::string(spec::precisionName(known.front()));
}

class Misfits {
 public:
  void addIf(bool isMisfit, std::string choice, std::string nearest) {
    if (isMisfit) found_.push_back({std::move(choice), std::move(nearest)});
  }
  void add(std::vector<Misfit> more) { found_.insert(found_.end(), more.begin(), more.end()); }
  std::vector<Misfit> take() { return std::move(found_); }

 private:
  std::vector<Misfit> found_;
};

// Megatron-Core's RotaryEmbedding has the numbers of Llama 3.1 but for the factor, for
// Megatron-Bridge as well; arguments.py divides positions by a whole number.
std::vector<Misfit> megatronRopeMisfits(const RopeScaling& scaling) {
  RopeScaling nearest = kLlama31Scaling;
  nearest.factor = scaling.factor;
  const bool isLlama3 = scaling.kind == RopeScalingKind::kLlama3;
  const std::string choice = "rope_scaling " + ropeScalingText(scaling);
  Misfits misfits;
  misfits.addIf(isLlama3 && scaling != nearest, choice, ropeScalingText(nearest));
  misfits.addIf(
      scaling.kind == RopeScalingKind::kLinear && scaling.factor != std::floor(scaling.factor),
      choice, fmt::format("a factor of {:.0f}", std::floor(scaling.factor)));
  return misfits.take();
}

// Megatron has one --hidden-dropout, for the embedding and the residual stream, and biases of all
// matrices, of the projections to queries, keys and values, or of none.
std::vector<Misfit> megatronMisfits(const spec::ModelSpec& model,
                                    const spec::TrainingSpec& training) {
  Misfits misfits;
  misfits.addIf(model.linearBias && !model.qkvBias, "biases of all matrices but qkv's",
                "biases of all, or of qkv's only");
  misfits.addIf(model.position == spec::PositionKind::kRotary &&
                    model.ropeTheta != std::floor(model.ropeTheta),
                fmt::format("rope_theta {}", model.ropeTheta),
                fmt::format("{:.0f}", std::floor(model.ropeTheta)));
  misfits.addIf(training.embeddingDropout != training.residualDropout,
                fmt::format("embedding dropout {} with residual dropout {}",
                            training.embeddingDropout, training.residualDropout),
                fmt::format("both {}", training.residualDropout));
  return misfits.take();
}

// Its GPTModelProvider makes as many learned positions as a sequence is long.
std::vector<Misfit> bridgeMisfits(const spec::ModelSpec& model,
                                  const spec::TrainingSpec& training) {
  Misfits misfits;
  misfits.addIf(model.position == spec::PositionKind::kLearned &&
                    model.maxSequence != training.sequenceLength,
                fmt::format("{} learned positions with sequences of {}", model.maxSequence,
                            training.sequenceLength),
                fmt::format("sequences of {}", model.maxSequence));
  return misfits.take();
}

struct Flavor {
  std::string_view name;
  int64_t layers, hidden, heads, kvHeads, ffn;
};

// torchtitan/models/llama3/__init__.py; the ffn sizes follow from its multipliers: 2/3 x 4 x hidden
// x 1.3 (405B: 1.2), rounded up to a multiple of 1024 (8B) or 4096.
constexpr Flavor kFlavors[] = {{"8B", 32, 4096, 32, 8, 14336},
                               {"70B", 80, 8192, 64, 8, 28672},
                               {"405B", 126, 16384, 128, 8, 53248}};

std::vector<Misfit> torchtitanMisfits(const spec::ModelSpec& model,
                                      const spec::TrainingSpec& training) {
  Misfits misfits;
  misfits.addIf(torchtitanFlavor(model).empty(),
                fmt::format("model {}, which it does not define", model.name),
                "Llama 3 of 8B, 70B or 405B");
  // Of every flavor, whatever the tokenizer has (models/llama3/model/args.py, v0.2.2).
  constexpr int64_t kVocabulary = 128256;
  misfits.addIf(model.vocabSize != kVocabulary, fmt::format("a vocabulary of {}", model.vocabSize),
                fmt::format("{}", kVocabulary));
  misfits.addIf(training.embeddingDropout > 0 || training.attentionDropout > 0 ||
                    training.residualDropout > 0,
                "dropout", "none");
  return misfits.take();
}

std::vector<Misfit> deepspeedMisfits(const spec::TrainingSpec& training) {
  Misfits misfits;
  // WarmupLR and WarmupCosineLR warm up over at least 2 steps.
  misfits.addIf(training.warmupSteps == 1 || (training.decaySteps > 0 && training.warmupSteps < 2),
                fmt::format("a learning rate with {} warm-up steps", training.warmupSteps),
                "2 steps");
  if (training.precision != Precision::kFp16 || hasFixedLossScale(training)) return misfits.take();
  // It has the exponent of the first scale, and the least one as a whole number.
  const double power = std::exp2(std::max(std::round(std::log2(training.initialLossScale)), 0.0));
  misfits.addIf(training.initialLossScale != power,
                fmt::format("initial_loss_scale {}", training.initialLossScale),
                fmt::format("{}", power));
  const double whole = std::clamp(std::round(training.minLossScale), 1.0, 0x1p53);
  misfits.addIf(training.minLossScale != whole,
                fmt::format("min_loss_scale {}", training.minLossScale), fmt::format("{}", whole));
  return misfits.take();
}

}  // namespace

const FrameworkInfo& infoOf(Framework framework) { return kInfos[static_cast<size_t>(framework)]; }

std::string_view frameworkName(Framework framework) { return infoOf(framework).name; }

std::string torchtitanFlavor(const spec::ModelSpec& m) {
  if (m.norm != spec::NormKind::kRmsNorm || m.activation != spec::ActivationKind::kSwiGlu ||
      m.position != spec::PositionKind::kRotary || m.ropeTheta != 500000 ||
      (m.ropeScaling != RopeScaling{} && m.ropeScaling != kLlama31Scaling) || m.tiedEmbeddings ||
      m.qkvBias || m.linearBias || m.normEpsilon != 1e-5)
    return "";
  for (const Flavor& f : kFlavors)
    if (m.numLayers == f.layers && m.hiddenSize == f.hidden && m.numHeads == f.heads &&
        m.numKvHeads == f.kvHeads && m.ffnSize == f.ffn && m.headSize * f.heads == f.hidden)
      return std::string(f.name);
  return "";
}

std::vector<Misfit> misfitsOf(const spec::ModelSpec& model, const spec::TrainingSpec& training,
                              Framework framework) {
  const FrameworkInfo& info = infoOf(framework);
  Misfits misfits;
  misfits.addIf(!has(info.precisions, training.precision),
                fmt::format("precision {}", spec::precisionName(training.precision)),
                nearestPrecision(training.precision, info.precisions));
  misfits.addIf(training.tf32, "tf32, which PyTorch takes from the script", "tf32 false");
  switch (framework) {
    case Framework::kMegatron:
    case Framework::kNemo:
      misfits.add(megatronMisfits(model, training));
      misfits.add(megatronRopeMisfits(model.ropeScaling));
      if (framework == Framework::kNemo) misfits.add(bridgeMisfits(model, training));
      break;
    case Framework::kTorchtitan:
      misfits.add(torchtitanMisfits(model, training));
      break;
    case Framework::kDeepspeed:
      misfits.add(deepspeedMisfits(training));
      break;
    case Framework::kAccelerate:
      break;
  }
  return misfits.take();
}

std::vector<Misfit> misfitsOf(const plan::Plan& plan, Framework framework) {
  Misfits misfits;
  for (const plan::ChoiceUse& use : plan::choicesUsed(plan)) {
    const bool sharesOptimizer = use.choice == StackChoice::kShardOptimizer;
    const bool isFsdp = framework == Framework::kTorchtitan || framework == Framework::kAccelerate;
    misfits.addIf(!has(infoOf(framework).choices, use.choice), use.value,
                  sharesOptimizer && isFsdp ? "state sharding parameters" : use.nearest);
  }
  return misfits.take();
}

std::vector<Misfit> misfitsOf(const plan::Plan& plan, const spec::ModelSpec& model,
                              Framework framework) {
  Misfits misfits;
  misfits.add(misfitsOf(plan, framework));
  const bool hasOrder = has(infoOf(framework).choices, StackChoice::kRankOrder);
  misfits.addIf(
      hasOrder && !plan::rankOrderGoesWithSharding(plan),
      fmt::format("rank order {} with state sharding {}", plan::rankOrderName(plan.rankOrder),
                  plan::stateShardingName(plan.stateSharding)),
      fmt::format("rank order {}", plan::rankOrderName(plan::RankOrder::kTpCpDpPp)));
  misfits.add(misfitsOf(model, plan.training, framework));
  for (const StackRule rule : infoOf(framework).rules)
    if (auto breach = plan::breachOf(plan, rule))
      misfits.add({{std::move(breach->value), std::move(breach->nearest)}});
  // Shards of equal size are what tp takes in any case.
  const int64_t padded = plan::paddedVocab(plan, model);
  const int64_t least = (model.vocabSize + plan.tp - 1) / plan.tp * plan.tp;
  misfits.addIf(!infoOf(framework).padsVocabulary && padded != least,
                fmt::format("a vocabulary of {} padded to {}", model.vocabSize, padded),
                "vocab_multiple 1 (--vocab-multiple 1)");
  // Blocks of fused attention are exchanged, which needs 16 bits (ir/spec/stack_on_device.h).
  const bool isMegatron = framework == Framework::kMegatron || framework == Framework::kNemo;
  misfits.addIf(isMegatron && plan.cp > 1 && plan.training.precision == Precision::kFp32,
                "cp in fp32", "bf16, or cp 1");
  return misfits.take();
}

std::vector<Misfit> misfitsOf(const plan::Plan& plan, const spec::ModelSpec& model,
                              const spec::StackSettings& settings, Framework framework) {
  const FrameworkInfo& info = infoOf(framework);
  if (plan.training.precision != Precision::kFp8 || info.recipes.empty() || !settings.fp8)
    return {};
  Misfits misfits;
  misfits.addIf(!has(info.recipes, *settings.fp8),
                fmt::format("fp8 with scales by the recipe {}", spec::fp8RecipeName(*settings.fp8)),
                std::string(spec::fp8RecipeName(info.recipes.front())));
  if (auto breach = plan::fp8Breach(plan, model, settings))
    misfits.add({{std::move(breach->value), std::move(breach->nearest)}});
  return misfits.take();
}

Status statusOf(const std::vector<Misfit>& misfits, Framework framework) {
  if (misfits.empty()) return {};
  std::string text;
  for (const Misfit& misfit : misfits)
    text +=
        fmt::format("{}{} (nearest: {})", text.empty() ? "" : "; ", misfit.choice, misfit.nearest);
  return invalidArgument(fmt::format("{} cannot express {}", infoOf(framework).title, text));
}

Result<spec::StackProfile> restrictedTo(spec::StackProfile stack, Framework framework) {
  const FrameworkInfo& info = infoOf(framework);
  std::erase_if(stack.choices, [&](StackChoice choice) { return !has(info.choices, choice); });
  stack.rules.assign(info.rules.begin(), info.rules.end());
  if (!info.padsVocabulary) stack.vocabMultiple = 1;
  const bool hasRecipe = !stack.settings.fp8 || has(info.recipes, *stack.settings.fp8);
  std::erase_if(stack.precisions, [&](Precision precision) {
    return !has(info.precisions, precision) || (precision == Precision::kFp8 && !hasRecipe);
  });
  if (stack.precisions.empty())
    return Error(invalidArgument(
        fmt::format("stack '{}' and {} have no precision in common", stack.name, info.title)));
  return stack;
}

Result<spec::StackProfile> restrictedTo(const spec::StackProfile& stack, Framework framework,
                                        const plan::Plan& plan) {
  TRIREME_ASSIGN_OR_RETURN(spec::StackProfile restricted, restrictedTo(stack, framework));
  for (const plan::ChoiceUse& use : plan::choicesUsed(plan))
    if (stack.supports(use.choice) && !restricted.supports(use.choice))
      restricted.choices.push_back(use.choice);
  std::erase_if(restricted.rules,
                [&](StackRule rule) { return plan::breachOf(plan, rule).has_value(); });
  return restricted;
}

}  // namespace trireme::codegen
