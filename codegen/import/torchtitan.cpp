#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "codegen/export/framework.h"
#include "codegen/import/config.h"
#include "codegen/import/formats.h"
#include "codegen/import/layout.h"
#include "ir/plan/nearest.h"

namespace trireme::codegen {
namespace {

using plan::Plan;
using plan::ScheduleKind;
using plan::StateSharding;
using spec::ModelSpec;
using spec::Node;
using spec::Precision;

// Part of every run, and of no plan.
constexpr const char* kNeutral[] = {
    "job",
    "profiling",
    "metrics",
    "checkpoint",
    "comm",
    "validation",
    "debug",
    "model.tokenizer_path",
    "model.hf_assets_path",
    "model.print_after_conversion",
    "optimizer.implementation",
    "training.dataset",
    "training.dataset_path",
    "training.gc_freq",
    "training.gc_debug",
    "training.deterministic",
    "training.mixed_precision_reduce",
    "training.seed",
    "parallelism.enable_compiled_autograd",
    "parallelism.context_parallel_rotate_method",
    "compile.backend",
    "float8.filter_fqns",
    "float8.enable_fsdp_float8_all_gather",
    "float8.precompute_float8_dynamic_scale_for_fsdp",
    "float8.force_recompute_fp8_weight_in_bwd",
    "quantize.linear.float8.filter_fqns",
    "quantize.linear.float8.enable_fsdp_float8_all_gather",
    "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp"};

// Of the layout of 2024, where the degrees were elsewhere.
constexpr std::pair<const char*, const char*> kMoved[] = {
    {"training.tensor_parallel_degree", "parallelism.tensor_parallel_degree"},
    {"training.data_parallel_degree", "parallelism.data_parallel_shard_degree"},
    {"training.data_parallel_shard_degree", "parallelism.data_parallel_shard_degree"},
    {"training.data_parallel_replicate_degree", "parallelism.data_parallel_replicate_degree"},
    {"training.fsdp_reshard_after_forward", "parallelism.fsdp_reshard_after_forward"},
    {"training.enable_float8_linear", "model.converters"},
    {"training.fp8_linear", "model.converters"},
    {"float8.enable_float8_linear", "model.converters"},
    {"experimental.pipeline_parallel_degree", "parallelism.pipeline_parallel_degree"},
    {"experimental.pipeline_parallel_schedule", "parallelism.pipeline_parallel_schedule"},
    {"experimental.pipeline_parallel_split_points", "parallelism.module_fqns_per_model_part"},
    {"experimental.pipeline_parallel_microbatches",
     "parallelism.pipeline_parallel_microbatch_size"},
    {"experimental.context_parallel_degree", "parallelism.context_parallel_degree"},
    {"experimental.enable_async_tensor_parallel", "parallelism.enable_async_tensor_parallel"}};

// What would be priced wrongly when it is on.
constexpr const char* kRefused[] = {"optimizer.early_step_in_backward",
                                    "training.enable_cpu_offload",
                                    "parallelism.disable_loss_parallel",
                                    "fault_tolerance.enable",
                                    "float8.emulate",
                                    "quantize.linear.float8.emulate",
                                    "memory_estimation.enabled",
                                    "liger_kernel.enable_fused_linear_cross_entropy"};

// Of versions that name the same differently, the setting that is there.
std::string present(Config& config, const std::string& name, const std::string& other) {
  return !config.has(name) && config.has(other) ? other : name;
}

void checkModel(Config& config, const ModelSpec& model) {
  const std::string name = config.text("model.name", "llama3");
  if (name != "llama3")
    return config.fail("model.name",
                       fmt::format("is '{}', which cannot be priced; nearest: llama3", name));
  const std::string flavor = config.text("model.flavor", "debugmodel");
  const std::string own = torchtitanFlavor(model);
  if (flavor == own) return;
  config.fail(
      "model.flavor",
      own.empty()
          ? fmt::format("is '{}', but the model {} is none of torchtitan's", flavor, model.name)
          : fmt::format("is '{}', but the model {} is '{}'", flavor, model.name, own));
}

// The converters: a list, or names between commas.
std::vector<std::string> convertersOf(Config& config) {
  std::vector<std::string> names;
  const Node* node = config.find("model.converters");
  if (!node) return names;
  if (node->kind == Node::Kind::kList) {
    for (const Node& item : node->items) names.push_back(item.text);
    return names;
  }
  const std::string& text = node->text;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

Precision precisionOf(Config& config) {
  bool isFp8 = false;
  for (const std::string& name : convertersOf(config)) {
    if (name == "float8" || name == "quantize.linear.float8")
      isFp8 = true;
    else
      config.fail("model.converters",
                  fmt::format("has '{}', which cannot be priced; nearest: float8", name));
  }
  if (config.choice("training.dtype", {"float32"}, "float32") != "float32") return Precision::kFp32;
  const std::string type =
      config.choice("training.mixed_precision_param", {"bfloat16", "float32"}, "bfloat16");
  if (isFp8) return Precision::kFp8;
  return type == "float32" ? Precision::kFp32 : Precision::kBf16;
}

// [compile] may leave the model out.
bool compilesModel(Config& config) {
  const bool isOn = config.isOn("training.compile", config.isOn("compile.enable", false));
  const Node* parts = config.find("compile.components");
  if (!isOn || !parts || parts->kind != Node::Kind::kList) return isOn;
  return std::any_of(parts->items.begin(), parts->items.end(),
                     [](const Node& part) { return part.text == "model"; });
}

// The shipped profile of torchtitan with these choices.
std::string stackOf(Config& config, Precision precision) {
  const bool isCompiled = compilesModel(config);
  // Only effective when compiled.
  const bool isAsync = config.isOn("parallelism.enable_async_tensor_parallel", false) && isCompiled;
  const std::string key =
      present(config, "float8.recipe_name", "quantize.linear.float8.recipe_name");
  const std::string recipe =
      config.choice(key, {"tensorwise", "rowwise", "rowwise_with_gw_hp"}, "tensorwise");
  if (precision == Precision::kFp8 && !isCompiled)
    config.fail("training.compile", "is needed beside float8, which is not priced without");
  if (precision == Precision::kFp8 && recipe == "rowwise_with_gw_hp")
    config.fail(key, "cannot be priced; nearest: rowwise");
  std::string stack = "torchtitan";
  if (isCompiled) stack += "-compiled";
  if (isAsync) stack += "-async-tp";
  if (precision == Precision::kFp8 && recipe == "rowwise") stack += "-fp8-rowwise";
  return stack;
}

// Devices that the file gives every degree of, or leaves to the launcher.
void readDegrees(Config& config, const std::string& file, const LaunchOptions& launch, Plan& plan,
                 Status& missing) {
  plan.tp = config.count("parallelism.tensor_parallel_degree", 1);
  plan.pp = config.count("parallelism.pipeline_parallel_degree", 1);
  plan.cp = config.count("parallelism.context_parallel_degree", 1);
  plan.dpReplicate = config.count("parallelism.data_parallel_replicate_degree", 1);
  plan.dpShard = config.count("parallelism.data_parallel_shard_degree", -1);
  for (const char* name : {"tensor_parallel", "pipeline_parallel", "context_parallel",
                           "data_parallel_replicate", "data_parallel_shard"}) {
    const std::string key = fmt::format("parallelism.{}_degree", name);
    const int64_t degree = config.count(key, 1);
    if (degree == 0 || (degree < 0 && std::string_view(name) != "data_parallel_shard"))
      return config.fail(key, fmt::format("is {}; expected at least 1", degree));
  }
  if (config.count("parallelism.expert_parallel_degree", 1) > 1)
    return config.fail("parallelism.expert_parallel_degree",
                       "cannot be priced: there are no experts");
  const int64_t others = plan.tp * plan.pp * plan.cp * plan.dpReplicate;
  if (plan.dpShard > 0) {
    if (launch.gpus && *launch.gpus != others * plan.dpShard)
      config.fail("parallelism.data_parallel_shard_degree",
                  fmt::format("and the other degrees make {} devices, but --gpus is {}",
                              others * plan.dpShard, *launch.gpus));
    return;
  }
  plan.dpShard = 1;
  if (!launch.gpus) {
    missing = askFor(file, {"the number of devices, of which data_parallel_shard_degree -1 takes "
                            "what is left (--gpus)"});
    return;
  }
  if (*launch.gpus % others != 0)
    return config.fail(
        "parallelism.tensor_parallel_degree",
        fmt::format("x pipeline x context x replicate is {}, which does not divide "
                    "{} devices{}",
                    others, *launch.gpus, plan::nearestDivisor(others, *launch.gpus)));
  plan.dpShard = *launch.gpus / others;
}

// fully_shard() acts where there is somebody to share with; "default" reshards after the forward,
// but under a pipeline keeps what its microbatches would gather again.
void readSharding(Config& config, Plan& plan) {
  const std::string when = config.choice("parallelism.fsdp_reshard_after_forward",
                                         {"default", "always", "never"}, "default");
  if (plan.dpShard * plan.cp == 1) return;
  plan.stateSharding = when == "never" ? StateSharding::kGradients : StateSharding::kParameters;
  if (when == "default" && plan.pp > 1)
    config.fail("parallelism.fsdp_reshard_after_forward",
                "is 'default', which under a pipeline keeps gathered parameters and whole "
                "gradients: that cannot be priced; nearest: \"always\"");
}

void readTraining(Config& config, const LaunchOptions& launch, Plan& plan) {
  spec::TrainingSpec& t = plan.training;
  t.sequenceLength = config.count("training.seq_len", 2048);
  const std::string key = present(config, "training.local_batch_size", "training.batch_size");
  const int64_t local = config.count(key, 8);
  const int64_t global = config.count("training.global_batch_size", -1);
  if (local < 1) return config.fail(key, fmt::format("is {}; expected at least 1", local));
  t.globalBatchSize = global > 0 ? global : local * plan.dp();
  for (const auto& [flag, asked, said] : {std::tuple("--seq", launch.sequence, t.sequenceLength),
                                          std::tuple("--batch", launch.batch, t.globalBatchSize)})
    if (asked && *asked != said)
      config.fail(std::string_view(flag) == "--seq" ? "training.seq_len" : key,
                  fmt::format("makes {}, but {} is {}", said, flag, *asked));
  plan.microbatchSize = local;
  const int64_t piece = config.count("parallelism.pipeline_parallel_microbatch_size", 1);
  if (plan.pp == 1) return;
  plan.microbatchSize = piece;
  if (t.globalBatchSize != local * plan.dp())
    config.fail("training.global_batch_size",
                fmt::format("is {}: several passes of the pipeline in a step cannot be priced; "
                            "nearest: {} with local_batch_size {}",
                            t.globalBatchSize, t.globalBatchSize,
                            std::max<int64_t>(t.globalBatchSize / plan.dp(), 1)));
}

void readOptimizer(Config& config, spec::TrainingSpec& t) {
  config.choice("optimizer.name", {"AdamW", "Adam"}, "AdamW");
  t.learningRate = config.real("optimizer.lr", 8e-4);
  t.beta1 = config.real("optimizer.beta1", 0.9);
  t.beta2 = config.real("optimizer.beta2", 0.95);
  t.epsilon = config.real("optimizer.eps", 1e-8);
  t.weightDecay = config.real("optimizer.weight_decay", 0.1);
  t.warmupSteps = config.count("lr_scheduler.warmup_steps", 200);
  config.choice("lr_scheduler.decay_type", {"linear", "sqrt", "cosine"}, "linear");
  const double least =
      config.real(present(config, "lr_scheduler.min_lr_factor", "lr_scheduler.lr_min"), 0);
  t.minLearningRate = least * t.learningRate;
  const int64_t steps = config.count("training.steps", 10000);
  const double ratio = config.real("lr_scheduler.decay_ratio", 1);
  if (ratio > 0) t.decaySteps = std::max<int64_t>(steps - t.warmupSteps, 0);
  const std::string clip = config.text("training.max_norm", "1");
  t.clipNorm = clip == "inf" ? 0 : config.real("training.max_norm", 1);
}

void readRecompute(Config& config, Plan& plan, const std::string& file, Status& missing) {
  const std::string mode =
      config.choice("activation_checkpoint.mode", {"none", "selective", "full"}, "selective");
  const std::string option = config.text("activation_checkpoint.selective_ac_option", "");
  if (mode == "none") return;
  plan.recompute = mode == "full" ? plan::Recompute::kFull : plan::Recompute::kSelective;
  if (mode == "full" || option == "op") return;
  if (option.empty())
    missing = askFor(file, {"activation_checkpoint.selective_ac_option, whose default is '2' or "
                            "'op', depending on torchtitan's version"});
  else
    config.fail("activation_checkpoint.selective_ac_option",
                fmt::format("is '{}': every n-th layer cannot be priced; nearest: 'op'", option));
}

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

std::vector<int64_t> countsOf(Config& config, const ModelSpec& model, const Plan& plan) {
  const std::string parts = "parallelism.module_fqns_per_model_part";
  const int64_t first = config.count("parallelism.pipeline_parallel_first_stage_less_layers", 1);
  const int64_t last = config.count("parallelism.pipeline_parallel_last_stage_less_layers", 1);
  const int64_t perStage = config.count("parallelism.pipeline_parallel_layers_per_stage", 0);
  if (const Node* node = config.find(parts)) {
    std::vector<int64_t> counts;
    for (const Node& part : node->items) counts.push_back(layersIn(part));
    return counts;
  }
  if (first < 0 || last < 0 || perStage < 0) {
    config.fail("parallelism.pipeline_parallel_layers_per_stage",
                "and its like must not be below 0");
    return {};
  }
  const int64_t perRank = plan.schedule == ScheduleKind::kInterleaved ? 2 : 1;
  const int64_t all = model.numLayers + first + last;
  const int64_t stages = perStage > 0 ? (all + perStage - 1) / perStage : plan.pp * perRank;
  return distributed(model.numLayers, stages, first, last);
}

void readStages(Config& config, const ModelSpec& model, Plan& plan) {
  const std::string schedule = config.choice("parallelism.pipeline_parallel_schedule",
                                             {"1F1B", "Interleaved1F1B", "GPipe"}, "1F1B");
  if (config.has("parallelism.pipeline_parallel_split_points"))
    config.fail("parallelism.pipeline_parallel_split_points",
                "is of an old version; nearest: module_fqns_per_model_part");
  if (plan.pp == 1) {
    plan.layers = plan::evenLayers(model.numLayers, 1, 1);
    config.passOver("parallelism.module_fqns_per_model_part");
    for (const char* name :
         {"first_stage_less_layers", "last_stage_less_layers", "layers_per_stage"})
      config.passOver(fmt::format("parallelism.pipeline_parallel_{}", name));
    return;
  }
  if (schedule == "Interleaved1F1B") plan.schedule = ScheduleKind::kInterleaved;
  if (schedule == "GPipe") plan.schedule = ScheduleKind::kGpipe;
  const std::vector<int64_t> counts = countsOf(config, model, plan);
  if (!config.error().ok()) return;
  const auto stages = static_cast<int64_t>(counts.size());
  const bool isWhole = std::accumulate(counts.begin(), counts.end(), int64_t{0}) == model.numLayers;
  if (stages == 0 || stages % plan.pp != 0 || !isWhole ||
      *std::min_element(counts.begin(), counts.end()) < 0)
    return config.fail(
        "parallelism.pipeline_parallel_degree",
        fmt::format("is {}, but there are {} stages of {} layers; expected a multiple of it that "
                    "holds all {}",
                    plan.pp, stages, std::accumulate(counts.begin(), counts.end(), int64_t{0}),
                    model.numLayers));
  plan.virtualStages = stages / plan.pp;
  plan.layers = layersOf(counts, plan.pp);
}

}  // namespace

Result<Imported> importTorchtitan(const std::string& text, const std::string& file,
                                  const ModelSpec& model, const LaunchOptions& launch) {
  TRIREME_ASSIGN_OR_RETURN(Node root, parseToml(text, file));
  Config config(file, std::move(root));
  for (const char* name : kNeutral) config.passOver(name);
  for (const char* name : kRefused)
    if (config.isOn(name, false)) config.fail(name, "cannot be priced");
  for (const auto& [old, now] : kMoved)
    if (config.has(old))
      config.fail(old, fmt::format("is of a version before 2025; nearest: {}", now));
  checkModel(config, model);
  Imported imported;
  Plan& plan = imported.plan = planFor(model, "torchtitan");
  plan.vocabMultiple = 1;
  Status missing;
  plan.training.precision = precisionOf(config);
  plan.stack = stackOf(config, plan.training.precision);
  readDegrees(config, file, launch, plan, missing);
  readSharding(config, plan);
  readTraining(config, launch, plan);
  readOptimizer(config, plan.training);
  readRecompute(config, plan, file, missing);
  readStages(config, model, plan);
  plan.sequenceParallel = plan.tp > 1;  // its tensor parallelism always is
  TRIREME_RETURN_IF_ERROR(config.error());
  TRIREME_RETURN_IF_ERROR(missing);
  imported.unpriced = config.unused();
  return imported;
}

}  // namespace trireme::codegen
