// Flags: megatron/training/arguments.py of Megatron-LM, commit 000c4ac2.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/export/formats.h"
#include "codegen/export/loss_scale.h"

namespace trireme::codegen {
namespace {

using plan::Plan;
using plan::Recompute;
using plan::StateSharding;
using spec::ModelSpec;
using spec::Precision;

class Arguments {
 public:
  void add(std::string flag, std::string value) {
    found_.push_back({std::move(flag), std::move(value)});
  }
  void add(std::string flag, int64_t value) { add(std::move(flag), fmt::format("{}", value)); }
  void add(std::string flag, double value) { add(std::move(flag), number(value)); }
  void addIf(bool isOn, std::string flag) {
    if (isOn) found_.push_back({std::move(flag), std::nullopt});
  }
  std::vector<Argument> take() { return std::move(found_); }

 private:
  std::vector<Argument> found_;
};

// Of Llama 3.1's numbers Megatron has the factor; misfitsOf() refuses others.
void addRotary(Arguments& args, const ModelSpec& m) {
  args.add("--rotary-base", static_cast<int64_t>(m.ropeTheta));
  const bool isLlama3 = m.ropeScaling.kind == RopeScalingKind::kLlama3;
  args.addIf(isLlama3, "--use-rope-scaling");
  if (isLlama3) args.add("--rope-scaling-factor", m.ropeScaling.factor);
  if (m.ropeScaling.kind == RopeScalingKind::kLinear)
    args.add("--rotary-seq-len-interpolation-factor", static_cast<int64_t>(m.ropeScaling.factor));
}

void addModel(Arguments& args, const Plan& plan, const ModelSpec& m) {
  args.add("--num-layers", m.numLayers);
  args.add("--hidden-size", m.hiddenSize);
  args.add("--ffn-hidden-size", m.ffnSize);
  args.add("--num-attention-heads", m.numHeads);
  if (m.headSize * m.numHeads != m.hiddenSize) args.add("--kv-channels", m.headSize);
  args.addIf(m.numKvHeads < m.numHeads, "--group-query-attention");
  if (m.numKvHeads < m.numHeads) args.add("--num-query-groups", m.numKvHeads);
  args.add("--max-position-embeddings", m.maxSequence);
  const bool isRotary = m.position == spec::PositionKind::kRotary;
  args.add("--position-embedding-type", isRotary ? "rope" : "learned_absolute");
  if (isRotary) addRotary(args, m);
  args.add("--normalization", m.norm == spec::NormKind::kRmsNorm ? "RMSNorm" : "LayerNorm");
  args.add("--norm-epsilon", m.normEpsilon);
  args.addIf(m.activation == spec::ActivationKind::kSwiGlu, "--swiglu");
  args.addIf(!m.linearBias, "--disable-bias-linear");
  args.addIf(!m.linearBias && m.qkvBias, "--add-qkv-bias");
  args.addIf(!m.tiedEmbeddings, "--untie-embeddings-and-output-weights");
  args.add("--init-method-std", m.initStd);
  args.add("--vocab-size", m.vocabSize);
  args.add("--make-vocab-size-divisible-by", plan.vocabMultiple);
}

// --fp8-recipe: delayed is Megatron's own choice; MX has one format for both passes.
void addFp8(Arguments& args, const Plan& plan, const ExportOptions& options) {
  const spec::Fp8Recipe recipe = options.settings.fp8.value_or(spec::Fp8Recipe::kDelayed);
  args.add("--fp8-format", std::string(recipe == spec::Fp8Recipe::kMx ? "e4m3" : "hybrid"));
  if (recipe == spec::Fp8Recipe::kCurrent) args.add("--fp8-recipe", std::string("tensorwise"));
  if (recipe == spec::Fp8Recipe::kMx) args.add("--fp8-recipe", std::string("mxfp8"));
  if (!gathersF8(plan, options)) return;
  args.addIf(true, "--fp8-param-gather");
  args.addIf(gathersInGradients(plan, options), "--reuse-grad-buf-for-mxfp8-param-ag");
}

// Left to itself Megatron adds up bf16's gradients in fp32, and fp16's in fp16.
void addPrecision(Arguments& args, const Plan& plan, const ExportOptions& options) {
  const Precision precision = plan.training.precision;
  const bool inF32 = options.gradientBytes >= 4;
  const bool isBf16 = precision == Precision::kBf16 || precision == Precision::kFp8;
  args.addIf(isBf16, "--bf16");
  args.addIf(precision == Precision::kFp16, "--fp16");
  if (precision == Precision::kFp8) addFp8(args, plan, options);
  args.addIf(precision != Precision::kFp32 && inF32, "--accumulate-allreduce-grads-in-fp32");
  args.addIf(isBf16 && !inF32, "--grad-reduce-in-bf16");
}

void addLossScaling(Arguments& args, const spec::TrainingSpec& t) {
  if (hasFixedLossScale(t)) return args.add("--loss-scale", t.initialLossScale);
  args.add("--initial-loss-scale", t.initialLossScale);
  args.add("--loss-scale-window", t.lossScaleWindow);
  args.add("--min-loss-scale", t.minLossScale);
  args.add("--hysteresis", int64_t{1});  // every overflow halves the scale
}

void addTraining(Arguments& args, const Plan& plan, const ExportOptions& options) {
  const spec::TrainingSpec& t = plan.training;
  args.add("--seq-length", t.sequenceLength);
  args.add("--micro-batch-size", plan.microbatchSize);
  args.add("--global-batch-size", t.globalBatchSize);
  if (const std::optional<int64_t> steps = numSteps(plan, options))
    args.add("--train-iters", *steps);
  addPrecision(args, plan, options);
  if (t.precision == Precision::kFp16) addLossScaling(args, t);
  // Fused attention is causal without it; the loader would make s x s of them (arguments.py).
  args.addIf(true, "--no-create-attention-mask-in-dataloader");
  args.add("--seed", fmt::format("{}", t.seed));
  args.add("--attention-dropout", t.attentionDropout);
  args.add("--hidden-dropout", t.residualDropout);
  args.add("--lr", t.learningRate);
  args.add("--min-lr", t.minLearningRate);
  args.add("--lr-decay-style", t.decaySteps > 0 ? "cosine" : "constant");
  args.add("--lr-warmup-iters", t.warmupSteps);
  // Megatron counts the decay from the start of training.
  if (t.decaySteps > 0) args.add("--lr-decay-iters", t.warmupSteps + t.decaySteps);
  args.add("--weight-decay", t.weightDecay);
  args.add("--adam-beta1", t.beta1);
  args.add("--adam-beta2", t.beta2);
  args.add("--adam-eps", t.epsilon);
  args.add("--clip-grad", t.clipNorm);
}

bool isEven(const Plan& plan) {
  const std::vector<plan::LayerRange> stages = virtualStageLayers(plan);
  for (const plan::LayerRange& stage : stages)
    if (stage.count != stages.front().count) return false;
  return true;
}

// "Ett|ttt|ttL": E the embedding, t a layer, L the loss, one part per virtual stage; "t*12" for
// twelve layers (pipeline_parallel_layer_layout.py).
std::string layoutOf(const Plan& plan) {
  std::vector<std::string> stages;
  for (const plan::LayerRange& stage : virtualStageLayers(plan))
    stages.push_back(stage.count <= 2 ? std::string(static_cast<size_t>(stage.count), 't')
                                      : fmt::format("t*{}", stage.count));
  stages.front() = "E" + stages.front();
  stages.back() += "L";
  return fmt::format("{}", fmt::join(stages, "|"));
}

void addParallelism(Arguments& args, const Plan& plan, const ExportOptions& options) {
  args.add("--tensor-model-parallel-size", plan.tp);
  args.add("--pipeline-model-parallel-size", plan.pp);
  args.add("--context-parallel-size", plan.cp);
  if (plan.pp > 1 && !isEven(plan))
    args.add("--pipeline-model-parallel-layout", layoutOf(plan));
  else if (plan.virtualStages > 1)
    args.add("--num-virtual-stages-per-pipeline-rank", plan.virtualStages);
  args.addIf(plan.sequenceParallel, "--sequence-parallel");
  args.addIf(overlapsTensorParallel(plan, options), "--tp-comm-overlap");
  args.addIf(plan.rankOrder == plan::RankOrder::kTpCpPpDp, "--use-tp-pp-dp-mapping");
}

void addState(Arguments& args, const Plan& plan) {
  const bool shards = plan.stateSharding != StateSharding::kNone;
  const bool isFsdp = plan.stateSharding >= StateSharding::kGradients;
  args.addIf(shards, "--use-distributed-optimizer");
  args.addIf(isFsdp, "--use-megatron-fsdp");
  args.addIf(isFsdp, "--no-gradient-accumulation-fusion");
  if (isFsdp) {
    args.add("--data-parallel-sharding-strategy", plan.stateSharding == StateSharding::kGradients
                                                      ? "optim_grads"
                                                      : "optim_grads_params");
    args.add("--ckpt-format", "fsdp_dtensor");
  }
  if (shards && plan.dpReplicate > 1)
    args.add("--num-distributed-optimizer-instances", plan.dpReplicate);
  args.addIf(plan.dp() * plan.cp > 1, "--overlap-grad-reduce");
  args.addIf(shards, "--overlap-param-gather");
}

void addRecompute(Arguments& args, const Plan& plan) {
  if (plan.recompute == Recompute::kNone) return;
  args.add("--recompute-granularity", std::string(plan::recomputeName(plan.recompute)));
  if (plan.recompute != Recompute::kFull) return;
  args.add("--recompute-method", plan.recomputeLayers > 0 ? "block" : "uniform");
  args.add("--recompute-num-layers", std::max<int64_t>(plan.recomputeLayers, 1));
}

// The arguments overlap them whatever the profile says.
void noteReductions(const Plan& plan, const ExportOptions& options, Exported& exported) {
  if (options.overlapsGradients || plan.dp() * plan.cp == 1) return;
  exported.notes.push_back(fmt::format(
      "stack {} counts reductions and gathers in full that the --overlap flags hide: steps may be "
      "shorter",
      plan.stack));
}

// gpt_builders.py, which older versions build the model by, passes neither number on.
void noteRopeScaling(const RopeScaling& scaling, Exported& exported) {
  if (scaling.kind == RopeScalingKind::kLlama3 && scaling.factor != kLlama31Scaling.factor)
    exported.notes.push_back(
        "Megatron-LM before its pull request 6306 (2026) ignores --rope-scaling-factor and scales "
        "by 8: look whether yours passes rope_scaling_factor on to the model");
  if (scaling.kind == RopeScalingKind::kLinear)
    exported.notes.push_back(
        "Megatron-LM before its pull request 4741 (2026) ignores "
        "--rotary-seq-len-interpolation-factor: look whether yours passes "
        "seq_len_interpolation_factor on to the model");
}

}  // namespace

// Megatron-FSDP has no such buffer.
bool gathersInGradients(const Plan& plan, const ExportOptions& options) {
  return gathersF8(plan, options) && options.settings.fp8 == spec::Fp8Recipe::kMx &&
         plan.stateSharding == StateSharding::kOptimizer;
}

bool mayShareIsland(const Plan& plan) {
  const bool mayBeRack = plan.devicesPerHost > 0 && plan.devicesPerHost < plan::kUsualHost;
  return mayBeRack || plan.tp <= std::max(plan.devicesPerHost, plan::kUsualHost);
}

// As the plan is priced (cost::hidesTensors), as far as it says where its ranks are.
bool overlapsTensorParallel(const Plan& plan, const ExportOptions& options) {
  return options.overlapsTensorParallel && plan.tp > 1 && plan.sequenceParallel &&
         mayShareIsland(plan);
}

void noteFsdp(const Plan& plan, Exported& exported) {
  if (plan.stateSharding < StateSharding::kGradients) return;
  exported.notes.push_back(
      "Megatron-FSDP adds up gradients of weights in a pass of their own, which the plan is priced "
      "without: steps take a little longer");
}

void noteTensorParallel(const Plan& plan, const ExportOptions& options, Exported& exported) {
  if (overlapsTensorParallel(plan, options)) exported.notes.push_back(kIslandNote);
}

std::vector<Argument> megatronArguments(const Plan& plan, const ModelSpec& model,
                                        const ExportOptions& options) {
  Arguments args;
  addModel(args, plan, model);
  addTraining(args, plan, options);
  addParallelism(args, plan, options);
  addState(args, plan);
  addRecompute(args, plan);
  return args.take();
}

// TransformerConfig fuses GELU, by tanh, with a bias alone; products of three tensors in float32
// are TF32 (Transformer Engine, common/gemm/cublaslt_gemm.cu).
void noteCore(const Plan& plan, const ModelSpec& model, Exported& exported) {
  if (model.activation == spec::ActivationKind::kGeluTanh && !model.linearBias)
    exported.notes.push_back(
        "Megatron computes GELU without biases by erf, not by the plan's tanh");
  if (plan.training.precision == Precision::kFp32)
    exported.notes.push_back(
        "Transformer Engine multiplies float32 in TF32, on GPUs that have it: less exact, and "
        "faster than the plan's products");
}

Exported toMegatron(const Plan& plan, const ModelSpec& model, const ExportOptions& options) {
  Exported exported;
  // arguments.py asserts it for tensor and context parallelism, and forbids it under FSDP.
  if (plan.tp * plan.cp > 1 && plan.stateSharding < StateSharding::kGradients)
    exported.environment.push_back("CUDA_DEVICE_MAX_CONNECTIONS=1");
  const std::vector<Argument> arguments = megatronArguments(plan, model, options);
  exported.command = {"pretrain_gpt.py"};
  for (const Argument& argument : arguments)
    exported.text += argument.flag + (argument.value ? " " + quoted(*argument.value) : "") + "\n";
  exported.notes.push_back(
      "data, tokenizer and checkpoints are yours: --data-path, --tokenizer-type, --save, --load");
  noteTensorParallel(plan, options, exported);
  noteFsdp(plan, exported);
  noteReductions(plan, options, exported);
  noteRopeScaling(model.ropeScaling, exported);
  if (!numSteps(plan, options))
    exported.notes.push_back("the plan has no number of steps: give --steps or --train-iters");
  noteCore(plan, model, exported);
  return exported;
}

}  // namespace trireme::codegen
