#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "codegen/import/formats.h"
#include "codegen/import/layout.h"
#include "codegen/import/shell_words.h"
#include "ir/plan/nearest.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/quantity.h"
#include "ir/spec/yaml_node.h"

namespace trireme::codegen {
namespace {

using plan::Plan;
using spec::ModelSpec;
using spec::Precision;

// Part of every run, and of no plan.
constexpr std::array<std::string_view, 18> kNeutral = {"--overlap-grad-reduce",
                                                       "--overlap-param-gather",
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
                                                       "--mock-data"};

// What a ModelSpec or a Plan cannot say, and would be priced wrongly without.
constexpr std::array<std::string_view, 16> kRefused = {"--num-experts",
                                                       "--multi-latent-attention",
                                                       "--mtp-num-layers",
                                                       "--window-size",
                                                       "--squared-relu",
                                                       "--quick-geglu",
                                                       "--use-torch-fsdp2",
                                                       "--optimizer-cpu-offload",
                                                       "--cpu-offloading-num-layers",
                                                       "--use-legacy-models",
                                                       "--use-tp-pp-dp-mapping",
                                                       "--distribute-saved-activations",
                                                       "--decoder-first-pipeline-num-layers",
                                                       "--decoder-last-pipeline-num-layers",
                                                       "--account-for-embedding-in-pipeline-split",
                                                       "--account-for-loss-in-pipeline-split"};

struct Flag {
  std::vector<std::string> values;
  int line = 1;
};

// The flags of a text by name; reading one ticks it off. Keeps the first error.
class Flags {
 public:
  Flags(const std::string& text, std::string file) : file_(std::move(file)) {
    Flag* last = nullptr;
    for (Word& word : shellWords(text)) {
      if (!word.text.starts_with("--") || word.text.size() == 2) {
        if (last) last->values.push_back(std::move(word.text));
        continue;
      }
      const size_t equals = word.text.find('=');
      last = &flags_[word.text.substr(0, equals)];
      *last = Flag{{}, word.line};
      if (equals != std::string::npos) last->values.push_back(word.text.substr(equals + 1));
    }
  }

  bool has(const std::string& name) {
    used_.insert(name);
    return flags_.contains(name);
  }
  std::optional<std::string> text(const std::string& name) {
    if (!has(name)) return std::nullopt;
    const Flag& flag = flags_.at(name);
    if (!flag.values.empty()) return flag.values.front();
    fail(name, "has no value");
    return std::nullopt;
  }
  // A whole number of 0 .. 2^30.
  int64_t count(const std::string& name, int64_t absent) {
    return value<int64_t>(
        name, absent, [](int64_t v) { return v >= 0 && v <= (1 << 30); },
        "a whole number of at most 2^30");
  }
  double real(const std::string& name, double absent) {
    return value<double>(name, absent, [](double v) { return v >= 0; }, "a number of at least 0");
  }
  std::string choice(const std::string& name, const std::vector<std::string>& choices,
                     const std::string& absent) {
    const std::optional<std::string> given = text(name);
    if (!given) return absent;
    if (std::find(choices.begin(), choices.end(), *given) == choices.end())
      fail(name, fmt::format("is {}{}", spec::quoteForMessage(*given),
                             spec::suggestion(*given, choices)));
    return *given;
  }
  void fail(const std::string& name, const std::string& message) {
    if (!error_.ok()) return;
    const auto flag = flags_.find(name);
    error_ = invalidArgument(fmt::format(
        "{}:{}: {} {}", file_, flag == flags_.end() ? 1 : flag->second.line, name, message));
  }
  const Status& error() const { return error_; }

  std::vector<std::string> unused() const {
    std::vector<std::string> names;
    for (const auto& [name, flag] : flags_)
      if (!used_.contains(name)) names.push_back(name);
    return names;
  }

 private:
  template <typename T, typename IsValid>
  T value(const std::string& name, T absent, IsValid isValid, const char* expected) {
    const std::optional<std::string> given = text(name);
    if (!given) return absent;
    T parsed{};
    const char* end = given->data() + given->size();
    const auto [stop, code] = std::from_chars(given->data(), end, parsed);
    if (code == std::errc{} && stop == end && isValid(parsed)) return parsed;
    fail(name, fmt::format("is {}; expected {}", spec::quoteForMessage(*given), expected));
    return absent;
  }

  std::string file_;
  std::map<std::string, Flag> flags_;
  std::set<std::string> used_;
  Status error_;
};

void expect(Flags& flags, const std::string& name, bool isSame, const std::string& asked,
            const std::string& model) {
  if (!isSame) flags.fail(name, fmt::format("is {}, but the model has {}", asked, model));
}

void checkSize(Flags& flags, const std::string& name, int64_t size, int64_t absent) {
  const int64_t asked = flags.count(name, absent);
  expect(flags, name, asked == size, fmt::format("{}", asked), fmt::format("{}", size));
}

void checkSwitch(Flags& flags, const std::string& name, bool isOn) {
  const bool asked = flags.has(name);
  expect(flags, name, asked == isOn, asked ? "given" : "missing", isOn ? "it" : "it not");
}

// Megatron reads --num-query-groups only beside --group-query-attention.
void checkKvHeads(Flags& flags, const ModelSpec& m) {
  if (flags.has("--group-query-attention"))
    return checkSize(flags, "--num-query-groups", m.numKvHeads, 1);
  if (m.numKvHeads == m.numHeads) {
    flags.has("--num-query-groups");
    return;
  }
  flags.fail("--num-query-groups",
             fmt::format("does nothing without --group-query-attention: all {} heads have keys and "
                         "values of their own, but those of the model {}",
                         m.numHeads, m.numKvHeads));
}

// That the command trains `m`. What only initialises or labels is not compared.
void checkModel(Flags& flags, const ModelSpec& m) {
  const bool isSwiGlu = m.activation == spec::ActivationKind::kSwiGlu;
  const bool isRotary = m.position == spec::PositionKind::kRotary;
  const int64_t ffn = isSwiGlu ? 8 * m.hiddenSize / 3 / 64 * 64 : 4 * m.hiddenSize;
  for (const char* name :
       {"--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings"})
    if (!flags.has(name)) flags.fail(name, "is missing: Megatron-LM needs it");
  checkSize(flags, "--num-layers", m.numLayers, m.numLayers);
  checkSize(flags, "--hidden-size", m.hiddenSize, m.hiddenSize);
  checkSize(flags, "--num-attention-heads", m.numHeads, m.numHeads);
  checkSize(flags, "--ffn-hidden-size", m.ffnSize, ffn);
  checkSize(flags, "--kv-channels", m.headSize, m.hiddenSize / m.numHeads);
  checkKvHeads(flags, m);
  checkSwitch(flags, "--swiglu", isSwiGlu);
  checkSwitch(flags, "--untie-embeddings-and-output-weights", !m.tiedEmbeddings);
  checkSwitch(flags, "--disable-bias-linear", !m.linearBias);
  checkSwitch(flags, "--add-qkv-bias", m.qkvBias && !m.linearBias);
  const std::string position =
      flags.choice("--position-embedding-type", {"learned_absolute", "rope"}, "learned_absolute");
  const bool asksRotary = position == "rope" || flags.has("--use-rotary-position-embeddings");
  expect(flags, "--position-embedding-type", asksRotary == isRotary, position,
         isRotary ? "rope" : "learned_absolute");
  const std::string norm = flags.choice("--normalization", {"LayerNorm", "RMSNorm"}, "LayerNorm");
  expect(flags, "--normalization", (norm == "RMSNorm") == (m.norm == spec::NormKind::kRmsNorm),
         norm, m.norm == spec::NormKind::kRmsNorm ? "RMSNorm" : "LayerNorm");
  // As many learned positions as the model has; rotary ones need none.
  const int64_t positions = flags.count("--max-position-embeddings", m.maxSequence);
  if (!isRotary) checkSize(flags, "--max-position-embeddings", m.maxSequence, m.maxSequence);
  if (positions < flags.count("--seq-length", 0))
    flags.fail("--max-position-embeddings",
               fmt::format("is {}, less than --seq-length", positions));
  if (isRotary) {
    const double base = flags.real("--rotary-base", 10000),
                 share = flags.real("--rotary-percent", 1);
    expect(flags, "--rotary-base", base == m.ropeTheta, fmt::format("{}", base),
           fmt::format("{}", m.ropeTheta));
    if (share != 1) flags.fail("--rotary-percent", "cannot be priced; nearest: 1");
  }
  for (const char* name :
       {"--norm-epsilon", "--init-method-std", "--rotary-base", "--rotary-percent"})
    flags.has(name);
}

Precision precisionOf(Flags& flags) {
  const bool isBf16 = flags.has("--bf16"), isFp16 = flags.has("--fp16");
  if (isBf16 && isFp16) flags.fail("--fp16", "goes not with --bf16");
  if (flags.has("--fp8-format")) return Precision::kFp8;
  if (isBf16) return Precision::kBf16;
  return isFp16 ? Precision::kFp16 : Precision::kFp32;
}

// The shipped profile with this recipe: NeMo runs Megatron-Core, and has one of each.
std::string stackOf(Flags& flags) {
  const std::string recipe =
      flags.choice("--fp8-recipe", {"delayed", "tensorwise", "mxfp8"}, "delayed");
  if (!flags.has("--fp8-format") || recipe == "delayed") return "megatron-core";
  return recipe == "mxfp8" ? "nemo-fp8-mx" : "nemo-fp8-current";
}

void readTraining(Flags& flags, spec::TrainingSpec& t) {
  for (const char* name : {"--seq-length", "--micro-batch-size"})
    if (!flags.has(name)) flags.fail(name, "is missing: the plan needs it");
  t.sequenceLength = flags.count("--seq-length", 0);
  t.globalBatchSize = flags.count("--global-batch-size", 0);
  t.precision = precisionOf(flags);
  t.seed = static_cast<uint64_t>(flags.count("--seed", 1234));
  t.attentionDropout = flags.real("--attention-dropout", 0.1);
  t.residualDropout = t.embeddingDropout = flags.real("--hidden-dropout", 0.1);
  t.learningRate = flags.real("--lr", t.learningRate);
  t.minLearningRate = flags.real("--min-lr", 0);
  t.warmupSteps = flags.count("--lr-warmup-iters", 0);
  const int64_t end = flags.count("--lr-decay-iters", flags.count("--train-iters", 0));
  const std::string style = flags.choice(
      "--lr-decay-style", {"constant", "linear", "cosine", "inverse-square-root", "WSD"}, "linear");
  if (style != "constant") t.decaySteps = std::max<int64_t>(end - t.warmupSteps, 0);
  t.weightDecay = flags.real("--weight-decay", 0.01);
  t.beta1 = flags.real("--adam-beta1", 0.9);
  t.beta2 = flags.real("--adam-beta2", 0.999);
  t.epsilon = flags.real("--adam-eps", 1e-8);
  t.clipNorm = flags.real("--clip-grad", 1);
}

// Layers of the virtual stages: of the layout, or even.
void readStages(Flags& flags, const ModelSpec& model, Plan& plan) {
  const char* const kStagesPerRank = "--num-virtual-stages-per-pipeline-rank";
  const char* const kLayersPerStage = "--num-layers-per-virtual-pipeline-stage";
  const bool hasLayout = flags.has("--pipeline-model-parallel-layout");
  if (flags.has(kStagesPerRank) + flags.has(kLayersPerStage) + hasLayout > 1)
    return flags.fail(flags.has(kLayersPerStage) ? kLayersPerStage : kStagesPerRank,
                      fmt::format("goes not with {}",
                                  hasLayout ? "--pipeline-model-parallel-layout" : kStagesPerRank));
  if (const auto text = flags.text("--pipeline-model-parallel-layout")) {
    Result<std::vector<int64_t>> counts = parseLayout(*text, model.numLayers);
    if (!counts.has_value())
      return flags.fail("--pipeline-model-parallel-layout", counts.error().message());
    const auto stages = static_cast<int64_t>(counts->size());
    if (stages % plan.pp != 0)
      return flags.fail("--pipeline-model-parallel-layout",
                        fmt::format("has {} parts, no multiple of {} stages", stages, plan.pp));
    plan.virtualStages = stages / plan.pp;
    plan.layers = layersOf(*counts, plan.pp);
    return;
  }
  plan.virtualStages = std::max<int64_t>(flags.count(kStagesPerRank, 1), 1);
  const int64_t perStage = flags.count(kLayersPerStage, 0);
  if (perStage > 0) {
    if (model.numLayers % (plan.pp * perStage) != 0)
      return flags.fail(kLayersPerStage,
                        fmt::format("is {}, which does not divide the {} layers of {} stages",
                                    perStage, model.numLayers, plan.pp));
    plan.virtualStages = model.numLayers / plan.pp / perStage;
  }
  const int64_t parts = plan.pp * plan.virtualStages;
  if (parts < 1 || parts > model.numLayers || model.numLayers % parts != 0)
    return flags.fail(
        "--pipeline-model-parallel-size",
        fmt::format("x virtual stages is {}, which does not divide {} layers{}", parts,
                    model.numLayers,
                    plan::nearestDivisor(std::max<int64_t>(parts, 1), model.numLayers)));
  plan.layers = plan::evenLayers(model.numLayers, plan.pp, plan.virtualStages);
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
  const int64_t model = plan.tp * plan.pp * plan.cp;
  if (model < 1 || numRanks % model != 0)
    return flags.fail(
        "--tensor-model-parallel-size",
        fmt::format("x pipeline x context is {}, which does not divide {} ranks", model, numRanks));
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

void readRecompute(Flags& flags, Plan& plan) {
  const std::string granularity =
      flags.choice("--recompute-granularity", {"full", "selective"},
                   flags.has("--recompute-activations") ? "selective" : "none");
  if (granularity == "selective") plan.recompute = plan::Recompute::kSelective;
  if (granularity == "full") plan.recompute = plan::Recompute::kFull;
  const std::string method = flags.choice("--recompute-method", {"uniform", "block"}, "uniform");
  const int64_t layers = flags.count("--recompute-num-layers", 1);
  if (granularity == "full" && method == "block") plan.recomputeLayers = layers;
  if (granularity == "full" && method == "uniform" && layers != 1)
    flags.fail("--recompute-num-layers",
               fmt::format("is {}: units of several layers cannot be priced; nearest: 1", layers));
}

// The padded vocabulary is what is computed; Megatron pads it to the plan's multiple, too.
void checkVocabulary(Flags& flags, const ModelSpec& model, const Plan& plan) {
  const int64_t asked = flags.count("--vocab-size", model.vocabSize);
  const int64_t multiple = std::max<int64_t>(plan.vocabMultiple * plan.tp, 1);
  const auto padded = [&](int64_t size) { return (size + multiple - 1) / multiple * multiple; };
  expect(flags, "--vocab-size", padded(asked) == padded(model.vocabSize), fmt::format("{}", asked),
         fmt::format("{}", model.vocabSize));
}

// What a launcher is told; 0 if only the shell that runs it knows ("$SLURM_NNODES").
int64_t launched(Flags& flags, const std::string& name, int64_t absent) {
  const std::optional<std::string> given = flags.text(name);
  if (given && given->find('$') != std::string::npos) return 0;
  return flags.count(name, absent);
}

// The number behind `key` in the #SBATCH lines: "--nodes=16", "--gres=gpu:h100:8"; 0 if none.
int64_t slurmNumber(const std::string& text, const std::string& key) {
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t at = line.starts_with("#SBATCH") ? line.find(key) : std::string::npos;
    if (at == std::string::npos) continue;
    std::string value = line.substr(at + key.size());
    value.erase(std::min(value.find_first_of(" \t\r#"), value.size()));
    value.erase(0, value.rfind(':') + 1);
    const Result<int64_t> parsed = spec::parseCount(value, 1);
    if (parsed.has_value()) number = std::min<int64_t>(*parsed, 1 << 30);
  }
  return number;
}

// Nodes x devices of the #SBATCH lines; 0 if they do not say both.
int64_t slurmRanks(const std::string& text) {
  const int64_t nodes = std::max(slurmNumber(text, "--nodes="), slurmNumber(text, "-N "));
  int64_t devices = slurmNumber(text, "--gpus-per-node=");
  if (devices == 0) devices = slurmNumber(text, "--gres=gpu:");
  return std::min<int64_t>(nodes * devices, 1 << 30);
}

// Of torchrun or #SBATCH in the same text, or of whoever launches it.
Result<int64_t> numRanksOf(Flags& flags, const std::string& text, const std::string& file,
                           const LaunchOptions& launch) {
  const int64_t nodes = launched(flags, flags.has("--nnodes") ? "--nnodes" : "--num-nodes", 1);
  const int64_t devices =
      launched(flags, flags.has("--nproc-per-node") ? "--nproc-per-node" : "--nproc_per_node", 0);
  int64_t said = nodes * devices;
  if (said == 0) said = slurmRanks(text);
  if (said > 0 && launch.gpus && *launch.gpus != said)
    flags.fail("--nnodes", fmt::format("x devices is {}, but --gpus is {}", said, *launch.gpus));
  if (said > 0) return said;
  if (launch.gpus) return *launch.gpus;
  return Error(flags.error().ok() ? askFor(file, {"the number of devices (--gpus)"})
                                  : flags.error());
}

void readPlan(Flags& flags, const ModelSpec& model, int64_t numRanks, Plan& plan) {
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
  const bool scatters = !flags.has("--no-scatter-gather-tensors-in-pipeline");
  plan.scatterGather = scatters && plan.tp > 1 && plan.pp > 1 && !plan.sequenceParallel;
  readRecompute(flags, plan);
}

}  // namespace

Result<Imported> importMegatron(const std::string& text, const std::string& file,
                                const ModelSpec& model, const LaunchOptions& launch) {
  TRIREME_RETURN_IF_ERROR(spec::checkText(text, file));
  Flags flags(text, file);
  for (const std::string_view name : kRefused)
    if (flags.has(std::string(name)))
      flags.fail(std::string(name), "cannot be priced: no model or plan here says it");
  for (const std::string_view name : kNeutral) flags.has(std::string(name));
  Imported imported;
  imported.plan = planFor(model, "megatron-core");
  checkModel(flags, model);
  readTraining(flags, imported.plan.training);
  imported.plan.stack = stackOf(flags);
  TRIREME_ASSIGN_OR_RETURN(const int64_t numRanks, numRanksOf(flags, text, file, launch));
  readPlan(flags, model, numRanks, imported.plan);
  TRIREME_RETURN_IF_ERROR(flags.error());
  imported.unpriced = flags.unused();
  return imported;
}

}  // namespace trireme::codegen
