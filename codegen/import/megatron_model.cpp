#include "codegen/import/megatron_model.h"

#include <fmt/format.h>

#include "codegen/export/framework.h"
#include "ir/base/format.h"

namespace trireme::codegen {
namespace {

using spec::ModelSpec;

// Of a flag of the model that is missing: load_args_from_checkpoint() sets it.
bool isOfCheckpoint(const Flags& flags, const std::string& name) {
  return flags.isGiven(kCheckpointArgs) && !flags.isGiven(name);
}

}  // namespace

void expectModel(Flags& flags, const std::string& name, bool isSame, const std::string& asked,
                 const std::string& model) {
  if (isSame || isOfCheckpoint(flags, name)) return;
  flags.fail(name,
             flags.isGiven(name)
                 ? fmt::format("is {}, but the model has {}", asked, model)
                 : fmt::format("is missing, which means {}, but the model has {}", asked, model));
}

namespace {

void checkSize(Flags& flags, const std::string& name, int64_t size, int64_t absent) {
  const int64_t asked = flags.count(name, absent);
  expectModel(flags, name, asked == size, fmt::format("{}", asked), fmt::format("{}", size));
}

void checkSwitch(Flags& flags, const std::string& name, bool isOn) {
  const bool asked = flags.has(name);
  if (asked != isOn && !isOfCheckpoint(flags, name))
    flags.fail(name,
               asked ? "is given, but the model has it not" : "is missing, but the model has it");
}

// Megatron reads --num-query-groups only beside --group-query-attention.
void checkKvHeads(Flags& flags, const ModelSpec& m) {
  if (flags.has("--group-query-attention"))
    return checkSize(flags, "--num-query-groups", m.numKvHeads, 1);
  if (m.numKvHeads == m.numHeads || isOfCheckpoint(flags, "--group-query-attention")) {
    flags.has("--num-query-groups");
    return;
  }
  flags.fail("--num-query-groups",
             fmt::format("does nothing without --group-query-attention: all {} heads have keys and "
                         "values of their own, but those of the model {}",
                         m.numHeads, m.numKvHeads));
}

// As RotaryEmbedding of Megatron-Core scales: --rope-scaling-factor counts beside
// --use-rope-scaling only, and a factor of 1 scales nothing.
void checkRopeScaling(Flags& flags, const ModelSpec& m) {
  constexpr const char *kLlama3 = "--use-rope-scaling",
                       *kLinear = "--rotary-seq-len-interpolation-factor";
  RopeScaling llama3 = kLlama31Scaling;
  llama3.factor = flags.real("--rope-scaling-factor", llama3.factor);
  const double divisor = static_cast<double>(flags.count(kLinear, 1));
  const bool isLlama3 = flags.has(kLlama3) && llama3.factor != 1;
  if (isLlama3 && divisor != 1)
    return flags.fail(kLinear, "cannot be priced beside --use-rope-scaling");
  RopeScaling asked;
  if (isLlama3) asked = llama3;
  if (divisor != 1) asked = {.kind = RopeScalingKind::kLinear, .factor = divisor};
  const RopeScalingKind kind = isLlama3 || divisor != 1 ? asked.kind : m.ropeScaling.kind;
  expectModel(flags, kind == RopeScalingKind::kLinear ? kLinear : kLlama3, asked == m.ropeScaling,
              ropeScalingText(asked), ropeScalingText(m.ropeScaling));
}

void checkRotary(Flags& flags, const ModelSpec& m) {
  const double base = flags.real("--rotary-base", 10000), share = flags.real("--rotary-percent", 1);
  expectModel(flags, "--rotary-base", base == m.ropeTheta, fmt::format("{}", base),
              fmt::format("{}", m.ropeTheta));
  if (share != 1) flags.fail("--rotary-percent", "cannot be priced; nearest: 1");
  checkRopeScaling(flags, m);
}

}  // namespace

void checkModel(Flags& flags, const ModelSpec& m) {
  const bool isSwiGlu = m.activation == spec::ActivationKind::kSwiGlu;
  const bool isRotary = m.position == spec::PositionKind::kRotary;
  // What Megatron takes of a script that says nothing depends on the script, not on the model.
  const int64_t ffn = flags.has("--swiglu") ? 8 * m.hiddenSize / 3 / 64 * 64 : 4 * m.hiddenSize;
  for (const char* name :
       {"--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings"})
    if (!flags.has(name) && !isOfCheckpoint(flags, name))
      flags.fail(name, "is missing: Megatron-LM needs it");
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
      flags.choice("--position-embedding-type", {"learned_absolute", "rope"}, "learned_absolute",
                   {"mrope", "yarn", "relative", "none"}, isRotary ? "rope" : "learned_absolute");
  const bool isSwitched = flags.has("--use-rotary-position-embeddings");  // the older flag
  const bool asksRotary = position == "rope" || isSwitched;
  expectModel(flags, "--position-embedding-type", asksRotary == isRotary, position,
              isRotary ? "rope" : "learned_absolute");
  const std::string norm = flags.choice("--normalization", {"LayerNorm", "RMSNorm"}, "LayerNorm");
  expectModel(flags, "--normalization", (norm == "RMSNorm") == (m.norm == spec::NormKind::kRmsNorm),
              norm, m.norm == spec::NormKind::kRmsNorm ? "RMSNorm" : "LayerNorm");
  // As many learned positions as the model has; rotary ones need none.
  const int64_t positions = flags.count("--max-position-embeddings", m.maxSequence);
  if (!isRotary) checkSize(flags, "--max-position-embeddings", m.maxSequence, m.maxSequence);
  if (positions < flags.count("--seq-length", 0))
    flags.fail("--max-position-embeddings",
               fmt::format("is {}, less than --seq-length", positions));
  if (isRotary) checkRotary(flags, m);
  for (const char* name :
       {"--norm-epsilon", "--init-method-std", "--rotary-base", "--rotary-percent",
        "--use-rope-scaling", "--rope-scaling-factor", "--rotary-seq-len-interpolation-factor"})
    flags.has(name);
}

}  // namespace trireme::codegen
