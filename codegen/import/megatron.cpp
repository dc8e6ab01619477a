#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "codegen/export/framework.h"
#include "codegen/export/loss_scale.h"
#include "codegen/import/formats.h"
#include "codegen/import/layout.h"
#include "codegen/import/megatron_attention.h"
#include "codegen/import/megatron_flags.h"
#include "codegen/import/megatron_launch.h"
#include "codegen/import/megatron_model.h"
#include "codegen/import/megatron_refusals.h"
#include "codegen/import/mpi.h"
#include "codegen/import/script_ways.h"
#include "codegen/import/slurm.h"
#include "ir/base/format.h"
#include "ir/plan/choices.h"
#include "ir/plan/nearest.h"
#include "ir/spec/yaml_node.h"

namespace trireme::codegen {
namespace {

using plan::Plan;
using spec::ModelSpec;
using spec::Precision;

constexpr size_t kMostText = size_t{1} << 20;

struct Source {
  const std::string& file;
  const ModelSpec& model;
  const LaunchOptions& launch;
};

// Part of every run, and of no plan.
constexpr std::array<std::string_view, 55> kNeutralFlags = {
    "--accumulate-allreduce-grads-in-fp32",
    "--train-iters",
    "--ckpt-format",
    "--use-mcore-models",
    "--data-path",
    "--tokenizer-type",
    "--tokenizer-model",
    "--save",
    "--load",
    "--save-interval",
    "--log-interval",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--standalone",
    "--mock-data",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--rdzv-id",
    "--rdzv-conf",
    "--max-restarts",
    "--monitor-interval",
    "--log-dir",
    "--tee",
    "--redirects",
    "--local-addr",
    "--role",
    "--split",
    "--vocab-file",
    "--merge-file",
    "--data-cache-path",
    "--num-workers",
    "--eval-iters",
    "--eval-interval",
    "--tensorboard-dir",
    "--tensorboard-queue-size",
    "--wandb-project",
    "--wandb-exp-name",
    "--wandb-save-dir",
    "--log-throughput",
    "--log-params-norm",
    "--log-num-zeros-in-grad",
    "--exit-interval",
    "--exit-duration-in-mins",
    "--distributed-backend",
    "--distributed-timeout-minutes",
    "--no-load-optim",
    "--no-load-rng",
    "--manual-gc",
    "--profile",
    "--profile-step-start",
    "--profile-step-end",
    "--tiktoken-pattern",
    "--no-mmap-bin-files",
    "--no-scatter-gather-tensors-in-pipeline"};

constexpr std::pair<const char*, const char*> kPricedOtherwise[] = {
    {"--rampup-batch-size", "steps of the full batch are priced"},
    {"--use-torch-optimizer-for-cpu-offload",
     "does nothing without --optimizer-cpu-offload, which is not given"},
    {"--deterministic-mode", "its kernels are slower; priced without it"},
    {"--no-gradient-accumulation-fusion",
     "gradients of weights take a pass more; priced without it"},
    {"--first-last-layers-bf16", "priced with all layers in fp8"},
    {"--no-fp8-wgrad", "priced with all products of layers in fp8"},
    {"--no-bias-gelu-fusion", "takes passes more over activations; priced without it"},
    {"--no-bias-swiglu-fusion", "takes passes more over activations; priced without it"},
    {"--no-bias-dropout-fusion", "takes passes more over activations; priced without it"},
    {"--no-rope-fusion", "takes passes more over queries and keys; priced without it"}};

// What a ModelSpec or a Plan cannot say, and would be priced wrongly without.
constexpr std::array<std::string_view, 16> kRefusedFlags = {"--num-experts",
                                                            "--xielu",
                                                            "--multi-latent-attention",
                                                            "--mtp-num-layers",
                                                            "--window-size",
                                                            "--squared-relu",
                                                            "--quick-geglu",
                                                            "--use-torch-fsdp2",
                                                            "--use-custom-fsdp",
                                                            "--fp32-residual-connection",
                                                            "--optimizer-cpu-offload",
                                                            "--cpu-offloading-num-layers",
                                                            "--use-legacy-models",
                                                            "--distribute-saved-activations",
                                                            "--fp4-format",
                                                            "--use-precision-aware-optimizer"};

// The values that are priced: Megatron's own.
struct OneValue {
  const char *name, *value;
};
constexpr OneValue kOneValue[] = {
    {"--transformer-impl", "transformer_engine"},
    {"--softmax-type", "vanilla"},
    {"--optimizer", "adam"},
    {"--exp-avg-dtype", "fp32"},
    {"--exp-avg-sq-dtype", "fp32"},
    {"--main-grads-dtype", "fp32"},
    {"--main-params-dtype", "fp32"},
};

void refuseOtherValues(Flags& flags) {
  for (const auto& [name, value] : kOneValue)
    if (const auto given = flags.text(name); given && *given != value)
      flags.fail(name, fmt::format("is {}, which cannot be priced; nearest: {}",
                                   spec::quoteForMessage(*given), value));
}

// Of MXFP8 what is gathered is bf16: both forms are made of it.
bool isMx(Flags& flags) { return flags.text("--fp8-recipe") == "mxfp8"; }

// Gradients are added up and reduced in the compute dtype, and weights that are fp8 already are
// gathered as that. They take as much memory as before: 16 bits, or 8 and 8 transposed.
ParameterWidths widthsOf(Flags& flags) {
  ParameterWidths widths;
  const bool inF32 = flags.has("--accumulate-allreduce-grads-in-fp32");  // by default in bf16
  const bool narrow = flags.has("--grad-reduce-in-bf16");
  const bool isBf16 = flags.has("--bf16"), isFp16 = flags.has("--fp16");
  if (isBf16 || isFp16)  // whichever the profile of the recipe has
    widths.gradient = widths.reducedGradient = (isBf16 ? narrow : !inF32) ? 2 : 4;
  if (flags.has("--fp8-param-gather")) {
    if (!flags.has("--fp8-format"))
      flags.fail("--fp8-param-gather",
                 "needs --fp8-format: without it there are no weights in fp8");
    if (!flags.has("--use-distributed-optimizer") && !flags.has("--use-megatron-fsdp"))
      flags.fail("--fp8-param-gather",
                 "needs --use-distributed-optimizer: without it nothing is "
                 "gathered");
    if (!isMx(flags)) widths.gatheredParameter = 1;
  }
  if (flags.has("--reuse-grad-buf-for-mxfp8-param-ag")) {
    if (!isMx(flags) || !flags.has("--fp8-param-gather"))
      flags.fail("--reuse-grad-buf-for-mxfp8-param-ag",
                 "needs --fp8-recipe mxfp8 and --fp8-param-gather");
    if (flags.has("--use-megatron-fsdp"))
      flags.fail("--reuse-grad-buf-for-mxfp8-param-ag",
                 "goes not with --use-megatron-fsdp, which has no such buffer");
  }
  if (flags.has("--fp8-format")) widths.gathersF8 = flags.has("--fp8-param-gather");
  return widths;
}

// Megatron's FSDP, which shares parameters, overlaps both whatever the flags say. Without anything
// that is gathered the flag is refused.
MissingOverlap missingOverlap(Flags& flags) {
  const bool reduces = flags.has("--overlap-grad-reduce");
  const bool gathers = flags.has("--overlap-param-gather");
  const bool isFsdp = flags.has("--use-megatron-fsdp");
  const std::string ofTensors = flags.has("--tp-comm-overlap") ? "" : "--tp-comm-overlap";
  if (isFsdp && flags.text("--data-parallel-sharding-strategy") == "optim_grads_params")
    return {"", "", ofTensors};
  const bool mayGather = isFsdp || flags.has("--use-distributed-optimizer");
  return {reduces ? "" : "--overlap-grad-reduce",
          gathers     ? ""
          : mayGather ? "--overlap-param-gather"
                      : "--overlap-param-gather (beside --use-distributed-optimizer)",
          ofTensors};
}

Precision precisionOf(Flags& flags) {
  const bool isBf16 = flags.has("--bf16"), isFp16 = flags.has("--fp16");
  if (isBf16 && isFp16) flags.fail("--fp16", "goes not with --bf16");
  if (flags.has("--fp8-format")) return Precision::kFp8;
  if (isBf16) return Precision::kBf16;
  return isFp16 ? Precision::kFp16 : Precision::kFp32;
}

// The shipped profile with this recipe and sharding: NeMo runs Megatron-Core, and has all of them.
std::string stackOf(Flags& flags, const Plan& plan) {
  const std::string recipe = flags.choice("--fp8-recipe", {"delayed", "tensorwise", "mxfp8"},
                                          "delayed", {"blockwise", "custom"});
  const bool sharesMore = plan.stateSharding > plan::StateSharding::kOptimizer;
  if (!flags.has("--fp8-format") || recipe == "delayed")
    return sharesMore ? "nemo" : "megatron-core";
  return recipe == "mxfp8" ? "nemo-fp8-mx" : "nemo-fp8-current";
}

// Megatron's own defaults. A scale of --loss-scale never changes.
void readLossScaling(Flags& flags, spec::TrainingSpec& t, std::vector<std::string>& notes) {
  if (const double fixed = flags.real("--loss-scale", 0); fixed > 0) return fixLossScale(fixed, t);
  t.initialLossScale = flags.real("--initial-loss-scale", 4294967296);
  t.lossScaleWindow = flags.count("--loss-scale-window", 1000);
  t.minLossScale = flags.real("--min-loss-scale", 1);
  if (flags.has("--hysteresis") && flags.count("--hysteresis", 2) != 1)
    notes.push_back(
        "--hysteresis is not kept: every overflow halves the scale, as if it were 1; no price "
        "depends on it");
}

void readTraining(Flags& flags, spec::TrainingSpec& t, std::vector<std::string>& notes) {
  for (const char* name : {"--seq-length", "--micro-batch-size"})
    if (!flags.has(name)) flags.fail(name, "is missing: the plan needs it");
  t.sequenceLength = flags.count("--seq-length", 0);
  t.globalBatchSize = flags.count("--global-batch-size", 0);
  t.precision = precisionOf(flags);
  if (t.precision == Precision::kFp16) readLossScaling(flags, t, notes);
  t.seed = static_cast<uint64_t>(flags.count("--seed", 1234));
  t.attentionDropout = flags.real("--attention-dropout", 0.1);
  t.residualDropout = t.embeddingDropout = flags.real("--hidden-dropout", 0.1);
  t.learningRate = flags.real("--lr", t.learningRate);
  t.minLearningRate = flags.real("--min-lr", 0);
  t.warmupSteps = flags.count("--lr-warmup-iters", 0);
  const int64_t end = flags.count("--lr-decay-iters", flags.count("--train-iters", 0));
  // Of the decay, as get_optimizer_param_scheduler() of training.py has it.
  if (const double fraction = flags.real("--lr-warmup-fraction", 0); fraction > 0)
    t.warmupSteps = static_cast<int64_t>(std::min(fraction, 1.0) * static_cast<double>(end));
  const std::string style = flags.choice(
      "--lr-decay-style", {"constant", "linear", "cosine", "inverse-square-root", "WSD"}, "linear");
  if (style != "constant") t.decaySteps = std::max<int64_t>(end - t.warmupSteps, 0);
  if (t.decaySteps > 0 && style != "cosine")
    notes.push_back(fmt::format(
        "--lr-decay-style is {}: the plan has a cosine; no price depends on it", style));
  t.weightDecay = flags.real("--weight-decay", 0.01);
  t.beta1 = flags.real("--adam-beta1", 0.9);
  t.beta2 = flags.real("--adam-beta2", 0.999);
  t.epsilon = flags.real("--adam-eps", 1e-8);
  t.clipNorm = flags.real("--clip-grad", 1);
}

// Of the loader, for every microbatch: of sequences longer than a few thousand a large tensor.
void readMask(Flags& flags, const spec::TrainingSpec& t, int64_t microbatchSize,
              Imported& imported) {
  imported.loaderMasks = !flags.has("--no-create-attention-mask-in-dataloader");
  if (!imported.loaderMasks) return;
  constexpr double kTold = 64 << 20;
  const double bytes = static_cast<double>(t.sequenceLength) *
                       static_cast<double>(t.sequenceLength) * static_cast<double>(microbatchSize);
  if (bytes < kTold) return;
  imported.notes.push_back(fmt::format(
      "--no-create-attention-mask-in-dataloader is missing: the loader makes an attention mask of "
      "{} for every microbatch, on the first and last stage, which recomputation keeps while the "
      "microbatch is in flight; stacks of Megatron count its memory, for the optimum as well",
      formatBytes(Bytes(bytes))));
}

// Layers of the virtual stages: of the layout, or as many as their number gives.
void readLayout(Flags& flags, const std::string& text, const ModelSpec& model, Plan& plan) {
  const char* const kLayout = "--pipeline-model-parallel-layout";
  Result<std::vector<int64_t>> counts = parseLayout(text, model.numLayers);
  if (!counts.has_value()) return flags.fail(kLayout, counts.error().message());
  const auto stages = static_cast<int64_t>(counts->size());
  if (stages % plan.pp != 0)
    return flags.fail(kLayout,
                      fmt::format("has {} parts, no multiple of {} stages", stages, plan.pp));
  plan.virtualStages = stages / plan.pp;
  plan.layers = layersOf(*counts, plan.pp);
}

StageSplit readSplit(Flags& flags, const ModelSpec& model, int64_t pp) {
  StageSplit split{model.numLayers, pp, 1, {}, {}, false, false};
  split.countsEmbedding = flags.has("--account-for-embedding-in-pipeline-split");
  split.countsLoss = flags.has("--account-for-loss-in-pipeline-split");
  for (const auto& [name, count] : {std::pair{"--decoder-first-pipeline-num-layers", &split.first},
                                    std::pair{"--decoder-last-pipeline-num-layers", &split.last}})
    if (flags.has(name)) *count = flags.count(name, 0);
  return split;
}

void readStages(Flags& flags, const ModelSpec& model, Plan& plan) {
  const char* const kLayout = "--pipeline-model-parallel-layout";
  const char* const kStagesPerRank = "--num-virtual-stages-per-pipeline-rank";
  const char* const kLayersPerStage = "--num-layers-per-virtual-pipeline-stage";
  StageSplit split = readSplit(flags, model, plan.pp);
  const char* const splitName = split.first  ? "--decoder-first-pipeline-num-layers"
                                : split.last ? "--decoder-last-pipeline-num-layers"
                                : split.countsEmbedding
                                    ? "--account-for-embedding-in-pipeline-split"
                                : split.countsLoss ? "--account-for-loss-in-pipeline-split"
                                                   : "--pipeline-model-parallel-size";
  const bool isUneven = split.first || split.last;
  const bool isSplit = isUneven || split.countsEmbedding || split.countsLoss;
  if (flags.has(kStagesPerRank) + flags.has(kLayersPerStage) + flags.has(kLayout) > 1)
    return flags.fail(
        flags.has(kLayersPerStage) ? kLayersPerStage : kStagesPerRank,
        fmt::format("goes not with {}", flags.has(kLayout) ? kLayout : kStagesPerRank));
  if (isSplit && flags.has(kLayout))
    return flags.fail(splitName, fmt::format("goes not with {}", kLayout));
  if (isUneven && (split.countsEmbedding || split.countsLoss))
    return flags.fail(splitName, "goes not with --account-for-...-in-pipeline-split");
  if (isUneven && flags.has(kLayersPerStage))
    return flags.fail(splitName,
                      fmt::format("goes not with {}: give {}", kLayersPerStage, kStagesPerRank));
  if (const auto text = flags.text(kLayout)) return readLayout(flags, *text, model, plan);
  split.virtualStages = std::max<int64_t>(flags.count(kStagesPerRank, 1), 1);
  if (const int64_t perStage = flags.count(kLayersPerStage, 0); perStage > 0) {
    const int64_t all = model.numLayers + split.countsEmbedding + split.countsLoss;
    if (all % (plan.pp * perStage) != 0)
      return flags.fail(kLayersPerStage,
                        fmt::format("is {}, which does not divide the {} layers of {} stages",
                                    perStage, all, plan.pp));
    split.virtualStages = all / plan.pp / perStage;
  }
  plan.virtualStages = split.virtualStages;
  const char* const kGroup = "--microbatch-group-size-per-virtual-pipeline-stage";
  if (const int64_t group = flags.count(kGroup, plan.pp);
      group != plan.pp && plan.virtualStages > 1)
    flags.fail(kGroup,
               fmt::format("is {}: other groups than of one microbatch per stage keep other "
                           "numbers in flight, which cannot be priced; nearest: {}",
                           group, plan.pp));
  if (!isSplit) {
    const int64_t parts = plan.pp * plan.virtualStages;
    if (parts < 1 || parts > model.numLayers || model.numLayers % parts != 0)
      return flags.fail(
          "--pipeline-model-parallel-size",
          fmt::format("x virtual stages is {}, which does not divide {} layers{}", parts,
                      model.numLayers,
                      plan::nearestDivisor(std::max<int64_t>(parts, 1), model.numLayers)));
  }
  const Result<std::vector<int64_t>> counts = splitLayers(split);
  if (!counts.has_value()) return flags.fail(splitName, counts.error().message());
  plan.layers = layersOf(*counts, plan.pp);
}

void readState(Flags& flags, int64_t numRanks, Plan& plan) {
  const bool isFsdp = flags.has("--use-megatron-fsdp");
  // Without FSDP nobody reads the strategy, which is then among what does not count.
  const std::string strategy =
      isFsdp ? flags.choice("--data-parallel-sharding-strategy",
                            {"no_shard", "optim", "optim_grads", "optim_grads_params"}, "no_shard")
             : "";
  const bool isDistributed = flags.has("--use-distributed-optimizer");
  if (isFsdp && strategy == "optim_grads_params")
    plan.stateSharding = plan::StateSharding::kParameters;
  else if (isFsdp && strategy == "optim_grads")
    plan.stateSharding = plan::StateSharding::kGradients;
  else if (isFsdp ? strategy == "optim" : isDistributed)
    plan.stateSharding = plan::StateSharding::kOptimizer;
  const int64_t instances = flags.count("--num-distributed-optimizer-instances", 1);
  if (instances > 1 && !isDistributed && !isFsdp)
    flags.fail("--num-distributed-optimizer-instances", "needs --use-distributed-optimizer");
  const int64_t model = plan.tp * plan.pp * plan.cp;
  if (model < 1 || numRanks % model != 0)
    return flags.fail(
        "--tensor-model-parallel-size",
        fmt::format("x pipeline x context is {}, which does not divide {} ranks{}", model, numRanks,
                    model < 1 ? "" : plan::nearestMultiple(numRanks, model)));
  const int64_t dp = numRanks / model;
  if (dp * plan.cp == 1) plan.stateSharding = plan::StateSharding::kNone;  // nobody to share with
  if (plan.stateSharding == plan::StateSharding::kNone) {
    plan.dpReplicate = dp;
    return;
  }
  if (instances < 1 || dp % instances != 0)
    return flags.fail("--num-distributed-optimizer-instances",
                      fmt::format("is {}, which does not divide dp {}{}", instances, dp,
                                  plan::nearestDivisor(std::max<int64_t>(instances, 1), dp)));
  plan.dpReplicate = instances;
  plan.dpShard = dp / instances;
}

// As TransformerConfig refuses them.
void checkRecompute(Flags& flags, const std::string& granularity) {
  const char *const kMethod = "--recompute-method", *const kLayers = "--recompute-num-layers";
  if (granularity == "full") {
    for (const char* name : {kMethod, kLayers})
      if (!flags.has(name))
        flags.fail(name, "is missing: Megatron refuses --recompute-granularity full without it");
    return;
  }
  if (granularity != "selective") return;
  for (const char* name : {kMethod, kLayers})
    if (flags.has(name)) flags.fail(name, "goes not with --recompute-granularity selective");
  for (const std::string& module : flags.texts("--recompute-modules"))
    if (module != "core_attn")
      flags.fail("--recompute-modules", fmt::format("has {}, which cannot be priced; nearest: "
                                                    "core_attn",
                                                    spec::quoteForMessage(module)));
}

// Of a block that is longer than the stage Megatron recomputes what there is.
void readBlock(int64_t layers, Plan& plan, std::vector<std::string>& notes) {
  int64_t longest = 0;
  for (const std::vector<plan::LayerRange>& stage : plan.layers)
    for (const plan::LayerRange& chunk : stage) longest = std::max(longest, chunk.count);
  plan.recomputeLayers = layers;
  if (layers <= longest || longest == 0) return;
  plan.recomputeLayers = longest;
  notes.push_back(fmt::format(
      "--recompute-num-layers is {}: virtual stages have at most {}, and all are recomputed",
      layers, longest));
}

void readRecompute(Flags& flags, Plan& plan, std::vector<std::string>& notes) {
  const std::string granularity =
      flags.choice("--recompute-granularity", {"full", "selective"},
                   flags.has("--recompute-activations") ? "selective" : "none");
  checkRecompute(flags, granularity);
  if (granularity == "selective") plan.recompute = plan::Recompute::kSelective;
  const std::string method = flags.choice("--recompute-method", {"uniform", "block"}, "uniform");
  const bool isBlock = method == "block";
  const int64_t layers = flags.count("--recompute-num-layers", 1);
  if (granularity != "full" || (isBlock && layers == 0)) return;  // then no layer of a block is
  plan.recompute = plan::Recompute::kFull;
  if (isBlock) readBlock(layers, plan, notes);
  if (!isBlock && layers != 1)
    flags.fail("--recompute-num-layers",
               fmt::format("is {}: units of several layers cannot be priced; nearest: 1", layers));
}

// The padded vocabulary is what is computed; Megatron pads it to the plan's multiple, too.
void checkVocabulary(Flags& flags, const ModelSpec& model, const Plan& plan) {
  const int64_t asked = flags.count("--vocab-size", model.vocabSize);
  const int64_t multiple = std::max<int64_t>(plan.vocabMultiple * plan.tp, 1);
  const auto padded = [&](int64_t size) { return (size + multiple - 1) / multiple * multiple; };
  expectModel(flags, "--vocab-size", padded(asked) == padded(model.vocabSize),
              fmt::format("{}", asked), fmt::format("{}", model.vocabSize));
}

// What a launcher is told; 0 if it is said elsewhere: a variable that is not known, "gpu", or the
// least and the most nodes of an elastic run, 1:8.
int64_t launched(Flags& flags, const std::string& name, int64_t absent) {
  const std::optional<std::string> given = flags.textOrOpen(name);
  if (given && (hasOpenPart(*given) || *given == "gpu" || *given == "auto" ||
                (name == "--nnodes" && given->find(':') != std::string::npos)))
    return 0;
  return flags.count(name, absent);
}

struct Ranks {
  int64_t all = 0;
  int64_t perHost = 0;  // 0: it is not said
};

std::vector<std::string> textsOf(const std::vector<ShellText>& words) {
  std::vector<std::string> texts;
  for (const ShellText& word : words) texts.push_back(word.text);
  return texts;
}

// Of torchrun, mpirun, Slurm or whoever launches it, which have to agree.
Result<Ranks> ranksOf(Flags& flags, const MegatronLaunch& found, SlurmNumbers slurm,
                      const std::string& file, const LaunchOptions& launch) {
  const std::string place = fmt::format("{}:{}", file, found.line);
  TRIREME_RETURN_IF_ERROR(readSrun(textsOf(found.slurm), place, slurm));
  TRIREME_ASSIGN_OR_RETURN(MpiRanks mpi, readMpirun(textsOf(found.mpi), place));
  if (found.hasLauncher) mpi = {};  // its processes are launchers
  TRIREME_ASSIGN_OR_RETURN(const int64_t bySlurm, slurmDevices(slurm, !found.hasLauncher, file));
  const char* const kNodes = flags.has("--nnodes") ? "--nnodes" : "--num-nodes";
  const int64_t nodes = launched(flags, kNodes, 1);
  const int64_t devices =
      launched(flags, flags.has("--nproc-per-node") ? "--nproc-per-node" : "--num-gpus", 0);
  const bool isKnown = flags.openLauncherWord().empty();
  const int64_t byLauncher = mpi.all > 0 ? mpi.all : isKnown ? nodes * devices : 0;
  const int64_t perHost = mpi.perHost > 0          ? mpi.perHost
                          : isKnown && devices > 0 ? devices
                                                   : slurmDevicesPerNode(slurm, !found.hasLauncher);
  const char* const who = mpi.all > 0 ? "mpirun -np" : kNodes;
  const char* const what = mpi.all > 0 ? "" : "x devices ";
  if (byLauncher > 0 && bySlurm > 0 && byLauncher != bySlurm)
    flags.fail(who, fmt::format("{}is {}, but Slurm is asked for {}", what, byLauncher, bySlurm));
  const int64_t said = byLauncher > 0 ? byLauncher : bySlurm;
  if (said > 0 && launch.gpus && *launch.gpus != said)
    flags.fail(who, fmt::format("{}is {}, but --gpus is {}", what, said, *launch.gpus));
  if (said > 0) return Ranks{said, perHost};
  if (launch.gpus) return Ranks{*launch.gpus, perHost};
  TRIREME_RETURN_IF_ERROR(flags.error());
  if (!isKnown) return Error(invalidArgument(flags.openLauncherWord()));
  return Error(askFor(file, {"the number of devices (--gpus)"}));
}

void readPlan(Flags& flags, const ModelSpec& model, int64_t numRanks, Imported& imported) {
  Plan& plan = imported.plan;
  plan.tp = flags.count("--tensor-model-parallel-size", 1);
  plan.pp = std::max<int64_t>(flags.count("--pipeline-model-parallel-size", 1), 1);
  plan.cp = flags.count("--context-parallel-size", 1);
  plan.microbatchSize = flags.count("--micro-batch-size", 1);
  plan.vocabMultiple = flags.count("--make-vocab-size-divisible-by", 128);
  readState(flags, numRanks, plan);
  // Megatron's default: one microbatch of each replica.
  if (!flags.has("--global-batch-size"))
    plan.training.globalBatchSize = plan.microbatchSize * plan.dp();
  checkVocabulary(flags, model, plan);
  readStages(flags, model, plan);
  if (plan.virtualStages > 1) plan.schedule = plan::ScheduleKind::kInterleaved;
  // Megatron turns it off where there is nothing to shard.
  plan.sequenceParallel = flags.has("--sequence-parallel") && plan.tp > 1;
  const bool isReordered = flags.has("--use-tp-pp-dp-mapping");
  if (const auto breach = plan::breachOf(plan, spec::StackRule::kOptimizerInPipeline))
    flags.fail("--use-megatron-fsdp",
               fmt::format("{}: it makes its mesh of all ranks by tp, cp and dp, and ends at the "
                           "start; nearest: {}",
                           breach->value, breach->nearest));
  if (isReordered && flags.has("--use-megatron-fsdp"))
    flags.fail("--use-tp-pp-dp-mapping", "excludes --use-megatron-fsdp");
  if (isReordered && plan.pp > 1 && plan.dp() > 1) plan.rankOrder = plan::RankOrder::kTpCpPpDp;
  refuseCombinations(flags, plan);
  readRecompute(flags, plan, imported.notes);
}

// The plan of one way through the script; absent if it launches nothing.
Result<std::optional<Imported>> importRun(const ShellRun& run, const SlurmNumbers& slurm,
                                          const Source& source) {
  TRIREME_ASSIGN_OR_RETURN(const std::optional<MegatronLaunch> found,
                           findMegatron(run, source.file));
  if (!found) return std::nullopt;
  Flags flags(*found, source.file);
  flags.imply("--use-megatron-fsdp-v2", "--use-megatron-fsdp");
  for (const std::string_view name : kRefusedFlags)
    if (flags.has(std::string(name)))
      flags.fail(std::string(name), "cannot be priced: no model or plan here says it");
  refuseOtherValues(flags);
  refuseOtherFlags(flags);
  for (const std::string_view name : kNeutralFlags) flags.has(std::string(name));
  Imported imported;
  imported.plan = planFor(source.model, "megatron-core");
  checkModel(flags, source.model);
  readTraining(flags, imported.plan.training, imported.notes);
  readAttention(flags, found->kernelVariables, imported.notes);
  readMask(flags, imported.plan.training, flags.count("--micro-batch-size", 1), imported);
  for (const auto& [name, what] : kPricedOtherwise)
    if (flags.has(name)) imported.notes.push_back(fmt::format("{}: {}", name, what));
  for (const char* name :
       {"--rampup-batch-size", "--train-samples", "--lr-decay-samples", "--lr-warmup-samples"})
    if (flags.isGiven(name) && flags.isGiven("--train-iters"))
      imported.notes.push_back(
          fmt::format("Megatron refuses {} beside --train-iters, and will not start", name));
  imported.widths = widthsOf(flags);
  if (flags.has(kCheckpointArgs))
    imported.notes.push_back(fmt::format(
        "{}: what the script does not say of the model is taken from --model, as if the checkpoint "
        "had it",
        kCheckpointArgs));
  TRIREME_ASSIGN_OR_RETURN(const Ranks ranks,
                           ranksOf(flags, *found, slurm, source.file, source.launch));
  imported.ranksPerHost = std::min(ranks.all, ranks.perHost);
  readPlan(flags, source.model, ranks.all, imported);
  imported.missing = missingOverlap(flags);
  imported.plan.stack = stackOf(flags, imported.plan);
  if (flags.has("--tp-comm-overlap") && imported.plan.stack == "megatron-core")
    imported.notes.emplace_back(
        "--tp-comm-overlap: stack megatron-core hides no collectives of tensor parallelism behind "
        "products; --stack nemo hides as many as in NVIDIA's own runs");
  imported.exposesTransfers = flags.has("--no-overlap-p2p-communication");
  if (imported.exposesTransfers && imported.plan.virtualStages > 1)
    imported.notes.emplace_back(
        "--no-overlap-p2p-communication: transfers between stages are counted in full, for the "
        "optimum as well");
  TRIREME_RETURN_IF_ERROR(flags.verdict());
  imported.unpriced = flags.unused();
  return imported;
}

// The line that names what no command has.
Status noLaunch(const std::string& text, const std::string& file) {
  const size_t at = text.find("--micro-batch-size");
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(std::min(at, text.size())),
                     '\n');
  return invalidArgument(
      fmt::format("{}:{}: no command of this file launches Megatron-LM with it: give the script "
                  "that does, or the command line that Megatron prints",
                  file, line));
}

}  // namespace

Result<Imported> importMegatron(const std::string& text, const std::string& file,
                                const ModelSpec& model, const LaunchOptions& launch) {
  TRIREME_RETURN_IF_ERROR(spec::checkText(text, file));
  if (text.size() > kMostText)
    return Error(invalidArgument(fmt::format(
        "{}: has {} bytes; expected a launch script of at most {}", file, text.size(), kMostText)));
  TRIREME_ASSIGN_OR_RETURN(const SlurmNumbers slurm, readSbatch(text, file));
  TRIREME_ASSIGN_OR_RETURN(const ShellList script, parseShell(text, file, 1));
  std::map<std::string, ShellValue> variables;
  for (const auto& [name, value] : slurmVariables(slurm))
    variables[name] = {{fmt::format("{}", value), slurm.line}};
  const Source source{file, model, launch};
  Ways ways(file);
  while (const std::optional<std::vector<size_t>> choices = ways.next()) {
    const Result<ShellRun> run = runShell({script, file, variables}, *choices);
    if (run.has_value())
      ways.add(*run, importRun(*run, slurm, source));
    else
      ways.add({}, Error(run.error()));
  }
  TRIREME_ASSIGN_OR_RETURN(std::optional<Imported> imported, ways.result());
  if (!imported) return Error(noLaunch(text, file));
  return *std::move(imported);
}

}  // namespace trireme::codegen
