#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "ir/spec/checks.h"
#include "ir/spec/hugging_face.h"
#include "ir/spec/load.h"
#include "ir/spec/print.h"
#include "ir/spec/rope_scaling.h"

namespace trireme::spec {
namespace {

constexpr EnumName<ModelFamily> kFamilyArray[] = {{"gpt", ModelFamily::kGpt},
                                                  {"llama", ModelFamily::kLlama}};
constexpr EnumName<NormKind> kNormArray[] = {{"layer_norm", NormKind::kLayerNorm},
                                             {"rms_norm", NormKind::kRmsNorm}};
constexpr EnumName<ActivationKind> kActivationArray[] = {{"gelu_tanh", ActivationKind::kGeluTanh},
                                                         {"swiglu", ActivationKind::kSwiGlu}};
constexpr EnumName<PositionKind> kPositionArray[] = {{"learned", PositionKind::kLearned},
                                                     {"rotary", PositionKind::kRotary}};
constexpr std::span<const EnumName<ModelFamily>> kFamilies = kFamilyArray;
constexpr std::span<const EnumName<NormKind>> kNorms = kNormArray;
constexpr std::span<const EnumName<ActivationKind>> kActivations = kActivationArray;
constexpr std::span<const EnumName<PositionKind>> kPositions = kPositionArray;

// The choices that a family's name stands for.
ModelSpec defaultsOf(ModelFamily family) {
  ModelSpec model;
  model.family = family;
  if (family == ModelFamily::kLlama) {
    model.norm = NormKind::kRmsNorm;
    model.activation = ActivationKind::kSwiGlu;
    model.position = PositionKind::kRotary;
    model.linearBias = false;
  }
  return model;
}

// A model as it is printed: key and line. Some keys are there only where they say something.
using Line = std::pair<std::string, std::string>;
using Lines = std::vector<Line>;

Lines linesOf(ModelSpec model) {
  model.name.clear();
  Lines lines;
  std::istringstream text(printModel(model));
  for (std::string line; std::getline(text, line);)
    lines.emplace_back(line.substr(0, line.find(": ")), line);
  return lines;
}

std::string lineOf(const Lines& lines, const std::string& key) {
  const auto found = std::ranges::find(lines, key, &Line::first);
  return found == lines.end() ? "no " + key : found->second;
}

// Llama's descendants differ in these, so that a file must say; GPT's do not.
template <typename T>
void requiredIf(bool condition, MapReader& map, std::string_view key, T* out) {
  if (condition)
    map.required(key, out);
  else
    map.optional(key, out);
}

ModelSpec readModel(MapReader& map) {
  ModelFamily family = ModelFamily::kGpt;
  map.required("family", kFamilies, &family);
  ModelSpec m = defaultsOf(family);
  map.optional("name", &m.name);
  map.required("layers", &m.numLayers);
  map.required("hidden_size", &m.hiddenSize);
  map.required("heads", &m.numHeads);
  m.numKvHeads = m.numHeads;
  map.optional("kv_heads", &m.numKvHeads);
  if (map.child("head_size"))
    map.required("head_size", &m.headSize);
  else if (m.numHeads > 0 && m.hiddenSize % m.numHeads == 0)
    m.headSize = m.hiddenSize / m.numHeads;
  else if (const Node* heads = map.child("heads"); heads && m.numHeads > 0)
    map.fail(*heads, fmt::format("{} does not divide hidden_size ({}) and head_size is not given",
                                 m.numHeads, m.hiddenSize));
  map.required("ffn_size", &m.ffnSize);
  map.required("vocab_size", &m.vocabSize);
  map.required("max_sequence", &m.maxSequence);
  const bool isLlama = family == ModelFamily::kLlama;
  map.optional("norm", kNorms, &m.norm);
  requiredIf(isLlama, map, "norm_epsilon", &m.normEpsilon);
  map.optional("activation", kActivations, &m.activation);
  map.optional("position", kPositions, &m.position);
  requiredIf(m.position == PositionKind::kRotary, map, "rope_theta", &m.ropeTheta);
  readRopeScaling(map, &m.ropeScaling);
  requiredIf(isLlama, map, "tied_embeddings", &m.tiedEmbeddings);
  requiredIf(isLlama, map, "qkv_bias", &m.qkvBias);
  map.optional("linear_bias", &m.linearBias);
  map.optional("init_std", &m.initStd);
  return m;
}

}  // namespace

Result<ModelSpec> parseModel(const std::string& text, const std::string& name) {
  TRIREME_ASSIGN_OR_RETURN(const Node root, parseDocument(text, name));
  if (root.find("model_type") || root.find("architectures")) return importHuggingFace(root, name);
  MapReader map(name, root);
  ModelSpec model = readModel(map);
  TRIREME_RETURN_IF_ERROR(map.finish());
  if (const std::optional<Problem> problem = findProblem(model))
    return Error(map.errorFor(*problem));
  return model;
}

std::string printModel(const ModelSpec& m) {
  std::string text;
  auto line = [&](std::string_view key, const auto& value) {
    text += fmt::format("{}: {}\n", key, value);
  };
  line("name", printText(m.name));
  line("family", nameOf(kFamilies, m.family));
  line("layers", m.numLayers);
  line("hidden_size", m.hiddenSize);
  line("heads", m.numHeads);
  line("kv_heads", m.numKvHeads);
  line("head_size", m.headSize);
  line("ffn_size", m.ffnSize);
  line("vocab_size", m.vocabSize);
  line("max_sequence", m.maxSequence);
  line("norm", nameOf(kNorms, m.norm));
  line("norm_epsilon", m.normEpsilon);
  line("activation", nameOf(kActivations, m.activation));
  line("position", nameOf(kPositions, m.position));
  if (m.position == PositionKind::kRotary) line("rope_theta", m.ropeTheta);
  if (m.ropeScaling != RopeScaling{}) line("rope_scaling", ropeScalingText(m.ropeScaling));
  line("tied_embeddings", m.tiedEmbeddings);
  line("qkv_bias", m.qkvBias);
  line("linear_bias", m.linearBias);
  line("init_std", m.initStd);
  return text;
}

std::vector<ModelDifference> differencesOf(const ModelSpec& first, const ModelSpec& second) {
  const Lines ours = linesOf(first), theirs = linesOf(second);
  std::vector<ModelDifference> differences;
  const auto add = [&](const std::string& key) {
    const ModelDifference both{lineOf(ours, key), lineOf(theirs, key)};
    if (both.first != both.second) differences.push_back(both);
  };
  for (const auto& [key, line] : ours) add(key);
  for (const auto& [key, line] : theirs)
    if (std::ranges::find(ours, key, &Line::first) == ours.end()) add(key);
  return differences;
}

Status verifyModel(const ModelSpec& model) {
  if (const std::optional<Problem> problem = findProblem(model))
    return invalidArgument(fmt::format("{}: {}", problem->key, problem->message));
  return {};
}

}  // namespace trireme::spec
