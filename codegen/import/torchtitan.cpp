#include "codegen/import/torchtitan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/export/framework.h"
#include "codegen/import/config.h"
#include "codegen/import/formats.h"
#include "ir/plan/choices.h"
#include "ir/plan/nearest.h"

namespace trireme::codegen {
namespace {

using plan::Plan;
using plan::StateSharding;
using spec::ModelSpec;
using spec::Node;
using spec::Precision;

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

// Before there were converters it was a switch.
bool asksForFp8(Config& config) {
  const Node* const converters = config.find("model.converters");
  bool isAsked = false;
  for (const std::string& name : converters ? namesIn(*converters) : std::vector<std::string>{})
    if (name == "float8" || name == "quantize.linear.float8")
      isAsked = true;
    else
      config.fail("model.converters",
                  fmt::format("has '{}', which cannot be priced; nearest: float8", name));
  const std::string kind =
      config.choice("training.fp8_linear", {"", "dynamic", "true", "false"}, "");
  for (const auto& [key, isOn] :
       {std::pair("training.fp8_linear", kind == "dynamic" || kind == "true"),
        std::pair("float8.enable_float8_linear",
                  config.isOn("float8.enable_float8_linear", false))}) {
    if (!config.has(key)) continue;
    if (converters && isOn != isAsked)
      config.fail(key, fmt::format("is {}, but model.converters {} float8", isOn ? "on" : "off",
                                   isAsked ? "has" : "has not"));
    isAsked = isAsked || isOn;
  }
  return isAsked;
}

// What the file says, wherever it acts.
Precision askedPrecision(Config& config) {
  const bool isFp8 = asksForFp8(config);
  if (config.choice("training.dtype", {"float32"}, "float32", {"bfloat16"}) != "float32")
    return Precision::kFp32;
  const std::string type =
      config.choice("training.mixed_precision_param", {"bfloat16", "float32"}, "bfloat16");
  config.choice("training.mixed_precision_reduce", {"float32"}, "float32", {"bfloat16"});
  if (isFp8) return Precision::kFp8;
  return type == "float32" ? Precision::kFp32 : Precision::kBf16;
}

// FSDP casts what it shards. Without it maybe_enable_amp() of torchtitan/distributed/utils.py uses
// autocast if there is neither tensor nor pipeline parallelism, and else leaves all in fp32; until
// early 2025 there was no autocast. parallelize_llama() refuses replicas beside those two.
void readPrecision(Config& config, Plan& plan, std::vector<std::string>& notes) {
  Precision& precision = plan.training.precision;
  const bool isModelParallel = plan.tp * plan.pp > 1;
  if (plan.dpShard * plan.cp > 1 || (!isModelParallel && !hasLayoutOf2024(config))) return;
  if (isModelParallel && plan.dpReplicate > 1)
    return config.fail("parallelism.data_parallel_replicate_degree",
                       fmt::format("is {}, but torchtitan refuses replicas of which nothing is "
                                   "sharded beside tp or pp; nearest: data_parallel_shard_degree "
                                   "{} and data_parallel_replicate_degree 1",
                                   plan.dpReplicate, plan.dpReplicate));
  const char* const where = isModelParallel ? "nothing is sharded beside tp or pp"
                                            : "nothing is sharded in a version without autocast";
  if (precision == Precision::kFp8)
    return config.fail(
        config.has("model.converters") ? "model.converters" : "float8.enable_float8_linear",
        fmt::format("asks for float8, but {}, so that the rest is in fp32: that "
                    "cannot be priced; nearest: data_parallel_shard_degree 2",
                    where));
  if (precision == Precision::kBf16)
    notes.push_back(fmt::format(
        "training.mixed_precision_param has no effect, since {}: priced in fp32, as torchtitan "
        "computes",
        where));
  precision = Precision::kFp32;
}

// [compile] may leave out one of its parts, "model" and "loss".
bool compiles(Config& config, const char* what) {
  const bool isOn = config.isOn("compile.enable", false);
  const Node* parts = config.find("compile.components");
  if (!isOn || !parts || parts->kind != Node::Kind::kList) return isOn;
  return std::any_of(parts->items.begin(), parts->items.end(),
                     [&](const Node& part) { return part.text == what; });
}

// Until April 2025 (pull request 1033) it never was.
void noteLoss(Config& config, Imported& imported) {
  imported.compilesLoss = compiles(config, "loss") && !hasLayoutOf2024(config);
  if (imported.compilesLoss || !compiles(config, "model")) return;
  imported.notes.push_back(fmt::format(
      "{}, so that it keeps copies of the logits in f32: their memory is counted, for the optimum "
      "as well",
      hasLayoutOf2024(config) ? "in this version the loss is not compiled"
                              : "compile.components leave out \"loss\""));
}

// The shipped profile of torchtitan with these choices.
std::string stackOf(Config& config, Precision precision, int64_t tp) {
  const bool isCompiled = compiles(config, "model");
  const char* const kAsync = "parallelism.enable_async_tensor_parallel";
  const bool isAsked = config.isOn(kAsync, false);
  const bool isAsync = isAsked && isCompiled;
  const std::string key = "quantize.linear.float8.recipe_name";
  const std::string recipe =
      config.choice(key, {"tensorwise", "rowwise", "rowwise_with_gw_hp"}, "tensorwise");
  if (precision == Precision::kFp8 && !isCompiled)
    config.fail("compile.enable", "is needed beside float8, which is not priced without");
  if (precision == Precision::kFp8 && recipe == "rowwise_with_gw_hp")
    config.fail(key, "cannot be priced; nearest: rowwise");
  if (isAsked && !isCompiled && tp > 1)
    config.fail(kAsync,
                "needs the model compiled: torchtitan refuses it without [compile] enable = true "
                "and \"model\" among its components");
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
  int64_t others = 1;  // of at most 2^30, as each of them
  for (const int64_t degree : {plan.tp, plan.pp, plan.cp, plan.dpReplicate})
    others = std::min(others * degree, int64_t{1} << 30);
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

// fully_shard() acts where there is somebody to share with. Under a pipeline "default" and "never"
// are one: gathered once per step (StackDescription::pipelineKeepsWhole).
void readSharding(Config& config, Plan& plan) {
  const std::string when = config.choice("parallelism.fsdp_reshard_after_forward",
                                         {"default", "always", "never"}, "default");
  if (plan.dpShard * plan.cp == 1) return;
  const bool keeps = when == "never" && plan.pp == 1;
  plan.stateSharding = keeps ? StateSharding::kGradients : StateSharding::kParameters;
  if (when == "always" && plan.pp > 1)
    config.fail("parallelism.fsdp_reshard_after_forward",
                "is 'always', which under a pipeline gathers parameters for every microbatch: that "
                "cannot be priced; nearest: \"default\"");
}

// A local batch goes through a pipeline in pieces of this size. Until early 2025 their number was
// given, by default the pipeline's degree.
int64_t pieceOf(Config& config, int64_t local, int64_t pp) {
  const std::string size = "parallelism.pipeline_parallel_microbatch_size";
  const std::string number = "parallelism.pipeline_parallel_microbatches";
  const int64_t piece = config.count(size, 1);
  const int64_t pieces = config.count(number, pp);
  const bool isSize = config.has(size) || (!config.has(number) && !hasLayoutOf2024(config));
  if (isSize && (!config.has(number) || piece * pieces == local)) return piece;
  if (isSize)
    config.fail(number, fmt::format("is {}, but pieces of {} make a local batch of {}", pieces,
                                    piece, local));
  else if (!config.has(number) && local % pieces != 0)
    config.fail("training.local_batch_size",
                fmt::format("is {}, which goes through the pipeline in {} pieces{}", local, pieces,
                            plan::nearestMultiple(local, pieces)));
  else if (pieces < 1 || local % pieces != 0)
    config.fail(number, fmt::format("is {}, which does not divide a local batch of {}{}", pieces,
                                    local, plan::nearestDivisor(pieces, local)));
  return pieces < 1 ? 1 : std::max<int64_t>(local / pieces, 1);
}

void readTraining(Config& config, const LaunchOptions& launch, Plan& plan) {
  spec::TrainingSpec& t = plan.training;
  t.sequenceLength = config.count("training.seq_len", 2048);
  const std::string key = "training.local_batch_size";
  const int64_t local = config.count(key, 8);
  const int64_t global = config.count("training.global_batch_size", -1);
  if (local < 1) return config.fail(key, fmt::format("is {}; expected at least 1", local));
  t.globalBatchSize = global > 0 ? global : local * plan.dp();
  for (const auto& [flag, asked, said] : {std::tuple("--seq", launch.sequence, t.sequenceLength),
                                          std::tuple("--batch", launch.batch, t.globalBatchSize)})
    if (asked && *asked != said)
      config.fail(std::string_view(flag) == "--seq" ? "training.seq_len" : key,
                  fmt::format("makes {}, but {} is {}", said, flag, *asked));
  const bool hasDegrees = plan.tp > 0 && plan.cp > 0;  // or they are refused already
  const auto breach =
      hasDegrees ? plan::breachOf(plan, spec::StackRule::kWholeParts) : std::nullopt;
  if (breach)
    config.fail("training.seq_len",
                fmt::format("gives a {}; nearest: {}", breach->value, breach->nearest));
  plan.microbatchSize = plan.pp == 1 ? local : pieceOf(config, local, plan.pp);
  if (plan.pp == 1) return;
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
  const double least = config.real("lr_scheduler.min_lr_factor", 0);
  t.minLearningRate = least * t.learningRate;
  const int64_t steps =
      config.count("lr_scheduler.total_steps", config.count("training.steps", 10000));
  const double ratio = config.real("lr_scheduler.decay_ratio", 1);
  if (ratio > 0) t.decaySteps = std::max<int64_t>(steps - t.warmupSteps, 0);
  const std::string clip = config.text("training.max_norm", "1");
  t.clipNorm = clip == "inf" ? 0 : config.real("training.max_norm", 1);
}

void readRecompute(Config& config, const LaunchOptions& launch, Plan& plan, const std::string& file,
                   Status& missing) {
  const std::string mode = config.choice(
      "activation_checkpoint.mode", {"none", "selective", "full"}, "selective", {"memory_budget"});
  const std::string option = config.text("activation_checkpoint.selective_ac_option", "");
  if (mode == "none") return;
  plan.recompute = mode == "full" ? plan::Recompute::kFull : plan::Recompute::kSelective;
  if (mode == "full" || option == "op") return;
  if (option.empty() && launch.recompute == plan::Recompute::kSelective) return;
  if (option.empty())
    missing = askFor(file, {"activation_checkpoint.selective_ac_option, whose default is '2' or "
                            "'op', depending on torchtitan's version (--recompute selective says "
                            "that it is 'op')"});
  else
    config.fail("activation_checkpoint.selective_ac_option",
                fmt::format("is '{}': every n-th layer cannot be priced; nearest: 'op'", option));
}

// What PyTorch refuses of the stages and their microbatches, when all of them are read.
void checkPipeline(Config& config, const ModelSpec& model, const Plan& plan) {
  if (!config.error().ok() || !plan::verifyPlan(plan, model).ok()) return;
  if (const auto breach = plan::breachOf(plan, spec::StackRule::kEnoughMicrobatches))
    config.fail("training.local_batch_size",
                fmt::format("gives {}, which PyTorch refuses; nearest: {}", breach->value,
                            breach->nearest));
}

// torchtitan's own files keep the output out of fp8, as it is priced; by default nothing is.
void noteFilter(Config& config, std::vector<std::string>& notes) {
  if (config.has("float8.enable_float8_linear")) return;  // of 2024: it left the output out itself
  const std::string key = "quantize.linear.float8.filter_fqns";
  const Node* node = config.find(key);
  const std::vector<std::string> names = node ? namesIn(*node) : std::vector<std::string>();
  if (names == std::vector<std::string>{"output"}) return;
  notes.push_back(fmt::format(
      "{} is {}: priced as [\"output\"], with all products of layers in fp8 and that of the output "
      "in 16 bits",
      config.spelled(key),
      !names.empty()
          ? fmt::format("[\"{}\"]", fmt::join(names, "\", \""))
          : fmt::format("{}, which puts the output in fp8 as well", node ? "[]" : "missing")));
}

void noteExchange(Config& config, int64_t cp, std::vector<std::string>& notes) {
  const char* const kMethod = "parallelism.context_parallel_rotate_method";
  const std::string method = config.choice(kMethod, {"allgather", "alltoall"}, "allgather");
  if (cp > 1 && method != "allgather")
    notes.push_back(fmt::format("{} is {}: priced as allgather", config.spelled(kMethod), method));
}

}  // namespace

Result<Imported> importTorchtitan(const std::string& text, const std::string& file,
                                  const ModelSpec& model, const LaunchOptions& launch) {
  TRIREME_ASSIGN_OR_RETURN(Node root, parseToml(text, file));
  Config config(file, std::move(root));
  nameTorchtitanSettings(config);
  checkModel(config, model);
  Imported imported;
  Plan& plan = imported.plan = planFor(model, "torchtitan");
  plan.vocabMultiple = 1;
  Status missing;
  plan.training.precision = askedPrecision(config);
  readDegrees(config, file, launch, plan, missing);
  if (missing.ok()) readPrecision(config, plan, imported.notes);
  noteExchange(config, plan.cp, imported.notes);
  if (plan.training.precision == Precision::kFp8) noteFilter(config, imported.notes);
  plan.stack = stackOf(config, plan.training.precision, plan.tp);
  noteLoss(config, imported);
  readSharding(config, plan);
  readTraining(config, launch, plan);
  readOptimizer(config, plan.training);
  readRecompute(config, launch, plan, file, missing);
  readTorchtitanStages(config, model, plan);
  plan.sequenceParallel = plan.tp > 1;  // its tensor parallelism always is
  if (missing.ok()) checkPipeline(config, model, plan);
  config.refuseMisspelt();
  TRIREME_RETURN_IF_ERROR(config.error());
  TRIREME_RETURN_IF_ERROR(missing);
  const std::vector<std::string> ofFp8 = uncountedOfFp8(config);
  imported.unpriced = config.unused();
  if (plan.training.precision == Precision::kFp8)
    imported.unpriced.insert(imported.unpriced.end(), ofFp8.begin(), ofFp8.end());
  return imported;
}

}  // namespace trireme::codegen
