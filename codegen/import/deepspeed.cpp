#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "codegen/export/loss_scale.h"
#include "codegen/import/config.h"
#include "codegen/import/formats.h"
#include "ir/plan/nearest.h"
#include "ir/spec/load.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/suggestion.h"

namespace trireme::codegen {
namespace {

using plan::Plan;
using plan::StateSharding;
using spec::Node;
using spec::Precision;

// Part of every run, and of no plan: logs, buckets, checks.
constexpr const char* kNeutralKeys[] = {
    "steps_per_print",
    "wall_clock_breakdown",
    "dump_state",
    "tensorboard",
    "wandb",
    "csv_monitor",
    "comms_logger",
    "flops_profiler",
    "aio",
    "checkpoint",
    "scheduler",
    "activation_checkpointing",
    "prescale_gradients",
    "gradient_predivide_factor",
    "memory_breakdown",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "fp16.auto_cast",
    "bf16.check_grad_overflow",
    "zero_optimization.allgather_partitions",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.reduce_scatter",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.overlap_comm",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.sub_group_size",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
    "zero_optimization.stage3_max_live_parameters",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save",
    "zero_optimization.ignore_unused_parameters",
    "zero_optimization.elastic_checkpoint"};

// What would be priced wrongly when it is on.
constexpr const char* kRefusedKeys[] = {"zero_optimization.zero_quantized_weights",
                                        "zero_optimization.zero_quantized_gradients",
                                        "zero_optimization.cpu_offload",
                                        "zero_optimization.cpu_offload_params",
                                        "amp.enabled",
                                        "elasticity.enabled",
                                        "sparse_attention.enabled",
                                        "progressive_layer_drop.enabled",
                                        "hybrid_engine.enabled",
                                        "fp16.fp16_master_weights_and_grads",
                                        "bf16.immediate_grad_update",
                                        "bf16.bf16_master_weights_and_grads",
                                        "bf16.bf16_optimizer_states",
                                        "torch_autocast.enabled",
                                        "sparse_gradients",
                                        "activation_checkpointing.cpu_checkpointing"};

// Numbers of which only 1 can be priced, and of what they are.
constexpr std::pair<const char*, const char*> kOnlyOne[] = {
    {"zero_optimization.zero_hpz_partition_size", "shards within nodes"},
    {"zero_optimization.mics_shard_size", "shards within nodes"},
    {"sequence_parallel_size", "sequences that ranks share (Ulysses)"},
    {"pipeline.stages", "a pipeline of DeepSpeed"}};

// "auto" is filled in by Hugging Face's Trainer, from arguments that the file does not hold.
bool isGiven(Config& config, const std::string& name) {
  const Node* node = config.find(name);
  return node && !(node->kind == Node::Kind::kScalar && node->text == "auto");
}

std::optional<int64_t> countOf(Config& config, const std::string& name) {
  if (!isGiven(config, name)) return std::nullopt;
  const int64_t value = config.count(name, 1);
  if (value < 1) config.fail(name, fmt::format("is {}; expected at least 1", value));
  return std::max<int64_t>(value, 1);
}

// Of the file or, where that leaves it open, of the command line; both have to agree.
std::optional<int64_t> agreed(Config& config, const std::string& name, const char* flag,
                              const std::optional<int64_t>& asked) {
  const std::optional<int64_t> said = countOf(config, name);
  if (said && asked && *said != *asked)
    config.fail(name, fmt::format("is {}, but {} is {}", *said, flag, *asked));
  return said ? said : asked;
}

void refuseWhatCannotBePriced(Config& config, std::vector<std::string>& missing) {
  for (const char* name : kRefusedKeys)
    if (isGiven(config, name) && config.isOn(name, false)) config.fail(name, "cannot be priced");
  for (const char* name : {"offload_optimizer", "offload_param"}) {
    const std::string key = fmt::format("zero_optimization.{}.device", name);
    const std::string device = config.text(key, "none");
    if (device == "auto")  // Accelerate's, from its own arguments
      missing.push_back(fmt::format("{}, which is 'auto' (write 'none')", key));
    else if (device != "none")
      config.fail(key,
                  fmt::format("is '{}': offloading cannot be priced; nearest: 'none'", device));
    config.passOver(fmt::format("zero_optimization.{}", name));
  }
  for (const auto& [name, what] : kOnlyOne)
    if (isGiven(config, name) && config.count(name, 1) > 1)
      config.fail(name, fmt::format("cannot be priced: {}; nearest: 1", what));
  // In any case, as _initialize_params() of runtime/config.py takes its own optimizers.
  const std::string optimizer = config.text("optimizer.type", "AdamW");
  const std::string lower = spec::lowerCase(optimizer);
  if (lower != "adamw" && lower != "adam")
    config.fail("optimizer.type", fmt::format("is {}, which cannot be priced; nearest: 'AdamW'",
                                              spec::quoteForMessage(optimizer)));
}

// Sizes are in elements. The profile was compared with usual ones.
void checkCommunication(Config& config, Imported& imported) {
  constexpr double kMostWhole = 1e7, kMostInBucket = 1e9;
  const char* const kOverlap = "zero_optimization.overlap_comm";
  const char* const kScatter = "zero_optimization.reduce_scatter";
  const char* const kWhole = "zero_optimization.stage3_param_persistence_threshold";
  if (imported.plan.stateSharding == StateSharding::kNone) return;
  const bool gathers = imported.plan.stateSharding == StateSharding::kParameters;
  const bool overlaps = isGiven(config, kOverlap) ? config.isOn(kOverlap, gathers) : gathers;
  if (!overlaps) imported.missing = {kOverlap, gathers ? kOverlap : ""};
  if (isGiven(config, kScatter) && !config.isOn(kScatter, true))
    config.fail(kScatter,
                "is false: gradients that every rank reduces whole cannot be priced; nearest: "
                "true");
  if (gathers && isGiven(config, kWhole) && config.real(kWhole, 0) > kMostWhole)
    config.fail(kWhole, fmt::format("is {}: parameters of up to so many elements stay whole on "
                                    "every rank, which cannot be priced; nearest: {}",
                                    config.real(kWhole, 0), kMostWhole));
  for (const char* name :
       {"reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size"}) {
    const std::string key = fmt::format("zero_optimization.{}", name);
    if (isGiven(config, key) && config.real(key, 0) > kMostInBucket)
      imported.notes.push_back(
          fmt::format("{} is {}: the memory of buckets above {} elements is not counted", key,
                      config.real(key, 0), kMostInBucket));
  }
}

Precision precisionOf(Config& config, std::vector<std::string>& missing) {
  bool isOpen = false;
  const auto isOn = [&](const char* name) {
    const bool given = isGiven(config, name);
    isOpen |= config.has(name) && !given;
    return given && config.isOn(name, false);
  };
  // bfloat16: the section's older name.
  const bool isBf16 = isOn("bf16.enabled") || isOn("bfloat16.enabled");
  const bool isFp16 = isOn("fp16.enabled");
  if (isBf16 && isFp16) config.fail("fp16.enabled", "goes not with bf16");
  if (isBf16) return Precision::kBf16;
  if (isFp16) return Precision::kFp16;
  if (isOpen) missing.emplace_back("the precision, which is 'auto' (write true or false)");
  return Precision::kFp32;
}

// Gradients are priced in the type of the computation.
void checkAccumulation(Config& config, Precision precision) {
  const char* const kType = "data_types.grad_accum_dtype";
  if (!isGiven(config, kType)) return;
  const std::string own(spec::precisionName(precision));
  if (config.choice(kType, {"fp32", "fp16", "bf16"}, own) != own)
    config.fail(kType, fmt::format("cannot be priced beside {}; nearest: \"{}\"", own, own));
}

// Of a gradient on its way; without a value that of the computation.
std::optional<double> reducedBytes(Config& config) {
  if (!isGiven(config, "communication_data_type")) return std::nullopt;
  return config.choice("communication_data_type", {"fp32", "fp16", "bf16"}, "fp32") == "fp32" ? 4
                                                                                              : 2;
}

// Of fp16, with the defaults of runtime/precision_config.py, commit 0ac46845. Where nothing is
// scaled nobody looks at them.
constexpr const char* kLossScaling[] = {"fp16.loss_scale",        "fp16.initial_scale_power",
                                        "fp16.loss_scale_window", "fp16.min_loss_scale",
                                        "fp16.hysteresis",        "fp16.consecutive_hysteresis"};
constexpr int64_t kMostPower = 126;  // (T7)

int64_t countWithin(Config& config, const std::string& name, int64_t absent, int64_t least,
                    int64_t most) {
  const int64_t value = config.count(name, absent);
  if (value >= least && value <= most) return value;
  config.fail(name, fmt::format("is {}; expected {} to {}", value, least, most));
  return absent;
}

double scaleOf(Config& config, const std::string& name, double absent, double most) {
  const double scale = config.real(name, absent);
  if (scale > 0 && scale <= most) return scale;
  config.fail(name, fmt::format("is {}; expected more than 0 and at most {}", scale, most));
  return absent;
}

// A loss_scale other than 0 never changes.
void readLossScaling(Config& config, spec::TrainingSpec& t, std::vector<std::string>& notes) {
  for (const char* name : kLossScaling) config.passOver(name);
  if (t.precision != Precision::kFp16) return;
  if (config.real("fp16.loss_scale", 0) != 0)
    return fixLossScale(scaleOf(config, "fp16.loss_scale", 1, std::exp2(kMostPower)), t);
  const int64_t power = countWithin(config, "fp16.initial_scale_power", 16, 0, kMostPower);
  t.initialLossScale = std::exp2(power);
  t.lossScaleWindow = countWithin(config, "fp16.loss_scale_window", 1000, 1, 1 << 30);
  t.minLossScale = scaleOf(config, "fp16.min_loss_scale", 1, t.initialLossScale);
  if (config.has("fp16.hysteresis") && config.count("fp16.hysteresis", 1) > 1)
    notes.emplace_back(
        "fp16.hysteresis is not kept: every overflow halves the scale, as if it were 1; no price "
        "depends on it");
}

// Without an optimizer, or with torch_adam, it is PyTorch's AdamW instead of DeepSpeed's own
// (runtime/engine.py, _configure_basic_optimizer), which holds the roots of all second moments at
// once (torch/optim/adam.py, foreach), unless it is fused.
void readStepWork(Config& config, Imported& imported) {
  constexpr double kRoots = 4;  // B a parameter
  const bool hasOptimizer = isGiven(config, "optimizer.type");
  const bool isTorch = !hasOptimizer || config.isOn("optimizer.params.torch_adam", false);
  if (!isTorch || (hasOptimizer && config.isOn("optimizer.params.fused", false))) return;
  imported.widths.stepWork = kRoots;
  imported.notes.push_back(
      hasOptimizer
          ? "torch.optim.AdamW holds more memory in its step than DeepSpeed's own, but with "
            "\"fused\": true"
          : "it has no optimizer: the script's is taken to be torch.optim.AdamW, which holds more "
            "memory in its step than DeepSpeed's own, but with fused=True (adamw_torch_fused of "
            "transformers)");
}

void readOptimizer(Config& config, spec::TrainingSpec& t) {
  const auto real = [&](const std::string& name, double absent) {
    return isGiven(config, name) ? config.real(name, absent) : absent;
  };
  t.learningRate = real("optimizer.params.lr", t.learningRate);
  t.epsilon = real("optimizer.params.eps", t.epsilon);
  t.weightDecay = real("optimizer.params.weight_decay", t.weightDecay);
  if (isGiven(config, "optimizer.params.betas")) {
    const Node& betas = *config.find("optimizer.params.betas");
    double* const values[] = {&t.beta1, &t.beta2};
    bool isGood = betas.kind == Node::Kind::kList && betas.items.size() == 2;
    for (size_t i = 0; isGood && i < 2; ++i)
      isGood = spec::readValue(betas.items[i], values[i]).ok();
    if (!isGood) config.fail("optimizer.params.betas", "is no list of two numbers");
  }
  t.clipNorm = real("gradient_clipping", 0);
  config.passOver("optimizer.params");
}

// train_batch_size = micro batch x accumulation steps x replicas: of three any two give the third,
// and a lone one stands with 1 step.
void readBatch(Config& config, const LaunchOptions& launch, int64_t dp, Plan& plan,
               std::vector<std::string>& missing) {
  const auto batch = agreed(config, "train_batch_size", "--batch", launch.batch);
  const auto micro =
      agreed(config, "train_micro_batch_size_per_gpu", "--microbatch", launch.microbatch);
  const bool isOpen = config.has("gradient_accumulation_steps");
  const auto steps = countOf(config, "gradient_accumulation_steps");
  if (!batch && !(micro && (steps || !isOpen))) {
    missing.emplace_back("the batch size (--batch)");
    return;
  }
  if (!micro && !steps && isOpen) {
    missing.emplace_back("the microbatch size (--microbatch)");
    return;
  }
  plan.microbatchSize = micro.value_or(batch.value_or(0) / dp / steps.value_or(1));
  plan.training.globalBatchSize = batch.value_or(plan.microbatchSize * steps.value_or(1) * dp);
  const int64_t pieces = plan.microbatchSize * steps.value_or(1) * dp;
  const bool divides =
      plan.microbatchSize > 0 && plan.training.globalBatchSize % (plan.microbatchSize * dp) == 0;
  if (!divides || (steps && plan.training.globalBatchSize != pieces))
    config.fail("train_batch_size",
                fmt::format("is {}, but micro batch {} x accumulation {} x {} replicas is {}",
                            plan.training.globalBatchSize, plan.microbatchSize, steps.value_or(1),
                            dp, pieces));
}

void readLaunch(Config& config, const LaunchOptions& launch, Plan& plan,
                std::vector<std::string>& missing) {
  plan.tp = agreed(config, "tensor_parallel.autotp_size", "--tp", launch.tp).value_or(0);
  if (!launch.gpus) missing.emplace_back("the number of devices (--gpus)");
  if (plan.tp == 0) missing.emplace_back("whether the script splits tensors (--tp, 1 if not)");
  if (!launch.sequence) missing.emplace_back("the sequence length (--seq)");
  if (!launch.recompute)
    missing.emplace_back("whether the model recomputes activations (--recompute none or full)");
  plan.training.sequenceLength = launch.sequence.value_or(0);
  plan.recompute = launch.recompute.value_or(plan::Recompute::kNone);
  if (!launch.gpus || plan.tp == 0) return;
  if (*launch.gpus % plan.tp != 0)
    return config.fail("tensor_parallel.autotp_size",
                       fmt::format("(or --tp) {} does not divide {} devices{}", plan.tp,
                                   *launch.gpus, plan::nearestDivisor(plan.tp, *launch.gpus)));
  readBatch(config, launch, *launch.gpus / plan.tp, plan, missing);
}

void readZero(Config& config, int64_t dp, Plan& plan, std::vector<std::string>& missing) {
  const char* const kStage = "zero_optimization.stage";
  if (config.has(kStage) && !isGiven(config, kStage))
    missing.emplace_back("the ZeRO stage, which is 'auto' (write 0 to 3)");
  const int64_t stage = isGiven(config, kStage) ? config.count(kStage, 0) : 0;
  if (stage < 0 || stage > 3) config.fail(kStage, fmt::format("is {}; expected 0 to 3", stage));
  const bool addsUpInF32 = !isGiven(config, "data_types.grad_accum_dtype");
  if (stage == 0 && missing.empty() && addsUpInF32 &&
      plan.training.precision == spec::Precision::kBf16)
    config.fail(kStage,
                "is 0: bf16 without ZeRO goes through BF16_Optimizer, which keeps gradients in f32 "
                "besides and cannot be priced; nearest: 1, or data_types.grad_accum_dtype bf16");
  const bool shares = stage > 0 && stage <= 3 && dp > 1;
  plan.stateSharding = shares ? static_cast<StateSharding>(stage) : StateSharding::kNone;
  (shares ? plan.dpShard : plan.dpReplicate) = dp;
}

void checkActivations(Config& config, const Plan& plan) {
  const char* const kPartition = "activation_checkpointing.partition_activations";
  if (plan.tp > 1 && isGiven(config, kPartition) && config.isOn(kPartition, false))
    config.fail(kPartition,
                fmt::format("is true: activations that {} tensor-parallel ranks share cannot be "
                            "priced; nearest: false",
                            plan.tp));
}

// Where a comment that begins at `at` ends; `at` if none does.
size_t endOfComment(const std::string& text, size_t at) {
  if (text[at] == '#' || text.compare(at, 2, "//") == 0)
    return std::min(text.find('\n', at), text.size());
  if (text.compare(at, 2, "/*") != 0) return at;
  const size_t end = text.find("*/", at + 2);
  return end == std::string::npos ? at : end + 2;
}

}  // namespace

std::string plainJson(std::string text) {
  bool isQuoted = false;
  size_t comma = std::string::npos;  // that only blanks stand behind
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (isQuoted && c == '\\') {
      ++at;
    } else if (const size_t end = isQuoted ? at : endOfComment(text, at); end > at) {
      for (; at < end; ++at)
        if (text[at] != '\n') text[at] = ' ';
      --at;
    } else if (!isQuoted && c == ',') {
      comma = at;
    } else if (isQuoted || std::isspace(static_cast<unsigned char>(c)) == 0) {
      if (c == '"') isQuoted = !isQuoted;
      if (comma != std::string::npos && (c == '}' || c == ']')) text[comma] = ' ';
      comma = std::string::npos;
    }
  }
  return text;
}

Result<Imported> importDeepspeed(const std::string& text, const std::string& file,
                                 const spec::ModelSpec& model, const LaunchOptions& launch) {
  // JSON, whatever the file is called.
  Result<Node> root =
      spec::parseDocument(plainJson(text), file.ends_with(".json") ? file : file + ".json");
  if (!root.has_value()) return Error(root.error());
  if (root->kind != Node::Kind::kMap)
    return Error(spec::errorAt(file, root->mark, "expected a JSON object"));
  if (const Node* const zero = root->find("zero_optimization");
      zero && zero->kind != Node::Kind::kMap && zero->kind != Node::Kind::kNull)
    return Error(
        spec::errorAt(file, zero->mark,
                      fmt::format("zero_optimization is {}, an old form that is not read; nearest: "
                                  "{{\"stage\": {}}}",
                                  spec::describe(*zero), zero->text == "false" ? 0 : 1)));
  Config config(file, *std::move(root));
  for (const char* name : kNeutralKeys) config.passOver(name);
  Imported imported;
  Plan& plan = imported.plan = planFor(model, "deepspeed");
  plan.vocabMultiple = 1;
  std::vector<std::string> missing;
  refuseWhatCannotBePriced(config, missing);
  plan.training.precision = precisionOf(config, missing);
  readLossScaling(config, plan.training, imported.notes);
  checkAccumulation(config, plan.training.precision);
  imported.widths.reducedGradient = reducedBytes(config);
  readStepWork(config, imported);
  readOptimizer(config, plan.training);
  readLaunch(config, launch, plan, missing);
  readZero(config,
           launch.gpus ? std::max<int64_t>(*launch.gpus / std::max<int64_t>(plan.tp, 1), 1) : 1,
           plan, missing);
  checkCommunication(config, imported);
  checkActivations(config, plan);
  plan.layers = plan::evenLayers(model.numLayers, 1, 1);
  config.refuseMisspelt();
  TRIREME_RETURN_IF_ERROR(config.error());
  TRIREME_RETURN_IF_ERROR(askFor(file, missing));
  imported.unpriced = config.unused();
  return imported;
}

}  // namespace trireme::codegen
