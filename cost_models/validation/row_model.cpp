#include "cost_models/validation/row_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "ir/spec/load.h"
#include "ir/spec/map_reader.h"

namespace trireme::cost {
namespace {

using Assumptions = std::vector<std::string>;

bool namesAny(const std::string& name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

// "qwen3-32b", "qwen 3 8b"; not "qwen-32b" or "qwen 3b".
bool isQwen3(const std::string& name) {
  size_t at = name.find("qwen");
  if (at == std::string::npos) return false;
  at += 4;
  if (at < name.size() && std::string_view(" -_").find(name[at]) != std::string_view::npos) ++at;
  if (at >= name.size() || name[at] != '3') return false;
  const char next = at + 1 < name.size() ? name[at + 1] : '\0';
  return next != 'b' && (next < '0' || next > '9');
}

ModelKind kindOf(const Row& row, Assumptions& assumptions) {  // (R3)
  const std::string name = spec::lowerCase(row.model);
  if (namesAny(name, {"nemotron"})) return ModelKind::kNemotron;
  if (isQwen3(name)) return ModelKind::kQwen3;
  if (namesAny(name, {"qwen"})) return ModelKind::kQwen;
  if (namesAny(name, {"gemma"})) return ModelKind::kGemma;
  if (namesAny(name, {"llama", "mistral", "yi-"})) return ModelKind::kLlama;
  if (namesAny(name, {"mpt"})) return ModelKind::kMpt;
  if (namesAny(name, {"gpt", "bloom", "opt-", "mt-nlg"})) return ModelKind::kGpt;
  const bool isLlama = row.kvHeads.value_or(*row.heads) < *row.heads ||
                       row.ffn.value_or(4 * *row.hidden) != 4 * *row.hidden;
  assumptions.push_back(
      fmt::format("(R3) unknown kind of model: as {}", isLlama ? "llama" : "gpt"));
  return isLlama ? ModelKind::kLlama : ModelKind::kGpt;
}

bool isGptLike(ModelKind kind) { return kind == ModelKind::kGpt || kind == ModelKind::kMpt; }

void setKind(ModelKind kind, spec::ModelSpec& model) {
  const bool isRotary = !isGptLike(kind);
  const bool isLlama = isRotary && kind != ModelKind::kNemotron;
  model.family = isLlama ? spec::ModelFamily::kLlama : spec::ModelFamily::kGpt;
  model.norm = isLlama ? spec::NormKind::kRmsNorm : spec::NormKind::kLayerNorm;
  model.activation = isLlama ? spec::ActivationKind::kSwiGlu : spec::ActivationKind::kGeluTanh;
  model.position = isRotary ? spec::PositionKind::kRotary : spec::PositionKind::kLearned;
  model.tiedEmbeddings = !isRotary || kind == ModelKind::kGemma;
  model.qkvBias = kind == ModelKind::kGpt || kind == ModelKind::kQwen;
  model.linearBias = kind == ModelKind::kGpt;
}

double countOf(const spec::ModelSpec& model) { return static_cast<double>(model.numParameters()); }

// The model with every head size of published models, unless its name says that, and with both
// kinds of embeddings.
std::vector<spec::ModelSpec> lookalikesOf(const spec::ModelSpec& model, ModelKind kind) {
  std::vector<int64_t> headSizes = {model.headSize};
  if (kind != ModelKind::kQwen3)
    for (const int64_t headSize : {64, 80, 96, 128, 256})
      if (headSize != model.headSize) headSizes.push_back(headSize);
  std::vector<spec::ModelSpec> all;
  for (const int64_t headSize : headSizes)
    for (const bool tied : {false, true}) {
      all.push_back(model);
      all.back().headSize = headSize;
      all.back().tiedEmbeddings = tied;
    }
  return all;
}

// The lookalike of which params_b is the count, with as few differences as can be; none if several
// are, which it cannot tell apart.
std::optional<spec::ModelSpec> explanationOf(double billions, const spec::ModelSpec& model,
                                             ModelKind kind) {
  for (const int changes : {1, 2}) {
    std::vector<spec::ModelSpec> found;
    for (spec::ModelSpec& other : lookalikesOf(model, kind)) {
      const int changed = (other.headSize != model.headSize ? 1 : 0) +
                          (other.tiedEmbeddings != model.tiedEmbeddings ? 1 : 0);
      if (changed == changes && isCountOf(billions, countOf(other)))
        found.push_back(std::move(other));
    }
    if (found.size() == 1) return found.front();
    if (!found.empty()) return std::nullopt;
  }
  return std::nullopt;
}

// So much is what counts leave out: biases, norms, positions.
bool isNearly(double billions, double count) {
  constexpr double kLeftOut = 0.01;
  return std::abs(billions * 1e9 / count - 1) <= kLeftOut;
}

// (R5), (R15). Where the vocabulary or the number of keys and values is assumed, that may be what
// params_b contradicts.
Status heedCount(const Row& row, ModelKind kind, spec::ModelSpec& model, Assumptions& assumptions) {
  constexpr double kNearest = 0.25;
  const double billions = *row.paramsB;
  if (isCountOf(billions, countOf(model))) return {};
  if (row.vocab && (row.kvHeads || isGptLike(kind)))
    if (const auto other = explanationOf(billions, model, kind)) {
      if (other->headSize != model.headSize)
        assumptions.push_back(
            fmt::format("(R5) head size unpublished: {}, from params_b", other->headSize));
      if (other->tiedEmbeddings != model.tiedEmbeddings)
        assumptions.push_back(fmt::format("(R5) output table unpublished: {}, from params_b",
                                          other->tiedEmbeddings ? "the embedding's" : "its own"));
      model = *other;
      return {};
    }
  if (isNearly(billions, countOf(model))) return {};
  if (std::abs(billions * 1e9 / countOf(model) - 1) > kNearest)
    return invalidArgument(
        fmt::format("params_b {} contradicts layers, hidden, ffn and vocab, which make {:.4g}",
                    billions, countOf(model) / 1e9));
  assumptions.push_back("(R15) params_b unexplained: what the other columns make");
  return {};
}

// By params_b, which no other head size makes.
bool isHeadSizeSettled(const Row& row, const spec::ModelSpec& model, ModelKind kind) {
  if (!row.paramsB) return false;
  const double billions = *row.paramsB;
  if (!isCountOf(billions, countOf(model)) && !isNearly(billions, countOf(model))) return false;
  const std::vector<spec::ModelSpec> all = lookalikesOf(model, kind);
  return std::none_of(all.begin(), all.end(), [&](const spec::ModelSpec& other) {
    return other.headSize != model.headSize && other.tiedEmbeddings == model.tiedEmbeddings &&
           isCountOf(billions, countOf(other));
  });
}

Result<spec::ModelSpec> sizesOf(const Row& row, ModelKind kind, Assumptions& assumptions) {  // (R4)
  constexpr int64_t kGptVocab = 51200, kQwen3HeadSize = 128;
  spec::ModelSpec model;
  model.name = row.model;
  model.numLayers = *row.layers;
  model.hiddenSize = *row.hidden;
  model.numHeads = *row.heads;
  model.numKvHeads = row.kvHeads.value_or(*row.heads);
  if (!row.kvHeads) assumptions.push_back("(R4) kv_heads unpublished: as many as heads");
  if (!row.ffn && !isGptLike(kind))
    return Error(invalidArgument("unpublished: ffn, which is 4 x hidden only in GPT models"));
  model.ffnSize = row.ffn.value_or(4 * *row.hidden);
  if (!row.ffn) assumptions.push_back("(R4) ffn unpublished: 4 x hidden");
  model.vocabSize = row.vocab.value_or(kGptVocab);
  if (!row.vocab) assumptions.push_back(fmt::format("(R4) vocab unpublished: {}", kGptVocab));
  model.maxSequence = *row.seq;  // (R5)
  if (kind != ModelKind::kQwen3 && *row.hidden % *row.heads != 0)
    return Error(
        invalidArgument(fmt::format("{} heads do not divide hidden {}", *row.heads, *row.hidden)));
  model.headSize = kind == ModelKind::kQwen3 ? kQwen3HeadSize : *row.hidden / *row.heads;
  return model;
}

}  // namespace

bool isCountOf(double billions, double count) {
  double digit = 1;  // the last one's worth
  while (digit > 1e-9 && std::abs(std::round(billions / digit) * digit / billions - 1) > 1e-12)
    digit /= 10;
  return count >= (billions - digit / 2) * 1e9 && count < (billions + digit) * 1e9;
}

Result<RowModel> modelFor(const Row& row, std::vector<std::string>& assumptions) {
  const ModelKind kind = kindOf(row, assumptions);
  TRIREME_ASSIGN_OR_RETURN(spec::ModelSpec model, sizesOf(row, kind, assumptions));
  setKind(kind, model);
  TRIREME_RETURN_IF_ERROR(spec::verifyModel(model));
  const int64_t usual = model.headSize;
  if (row.paramsB) TRIREME_RETURN_IF_ERROR(heedCount(row, kind, model, assumptions));
  if (kind == ModelKind::kQwen3 && usual * *row.heads != *row.hidden)
    assumptions.push_back(fmt::format("(R5) head size unpublished: {}, as of Qwen3", usual));
  if (kind != ModelKind::kQwen3 && model.headSize == usual && !isHeadSizeSettled(row, model, kind))
    assumptions.push_back("(R5) head size unpublished: hidden / heads");
  return RowModel{std::move(model), kind};
}

}  // namespace trireme::cost
