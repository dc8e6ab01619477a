#include "ir/plan/find_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "ir/base/hash.h"
#include "ir/plan/plan.h"
#include "ir/spec/load.h"
#include "ir/spec/shipped.h"

namespace trireme::plan {
namespace {

using spec::ModelSpec;

constexpr int64_t kMostCount = int64_t{1} << 18, kMostHeads = 1024, kMostHeadSize = 1024;
constexpr int64_t kMark = 1'234'567'891'234'567'891;  // no count of a model

// The hash before `text`, behind which it is `hash`: fnv1a(text, takenBack(hash, text)) == hash.
uint64_t takenBack(uint64_t hash, std::string_view text) {
  constexpr uint64_t kInverse = 0xce965057aff6957bu;  // of FNV's prime, modulo 2^64
  static_assert(kInverse * 0x100000001b3u == 1);
  for (auto c = text.rbegin(); c != text.rend(); ++c)
    hash = (hash * kInverse) ^ static_cast<unsigned char>(*c);
  return hash;
}

class Search {
 public:
  Search(uint64_t fingerprint, const ModelSpec& model) : fingerprint_(fingerprint), model_(model) {}

  std::optional<ModelSpec> run() {
    const bool found = tryShipped() || tryChoices() || tryNumbers() || tryHeads() ||
                       tryHiddenSizes() ||
                       std::ranges::any_of(kCounts, [&](auto field) { return tryCounts(field); });
    return found ? std::optional(found_) : std::nullopt;
  }

 private:
  static constexpr int64_t ModelSpec::* kCounts[] = {
      &ModelSpec::numLayers, &ModelSpec::numKvHeads,  &ModelSpec::headSize, &ModelSpec::ffnSize,
      &ModelSpec::vocabSize, &ModelSpec::maxSequence, &ModelSpec::numHeads, &ModelSpec::hiddenSize};

  bool isIt(const ModelSpec& model) {
    if (fingerprintOf(model) != fingerprint_) return false;
    found_ = model;
    return true;
  }

  template <typename T>
  bool isItWith(T ModelSpec::* field, T value) {
    ModelSpec changed = model_;
    changed.*field = value;
    return isIt(changed);
  }

  bool tryShipped() {
    for (const spec::ShippedFile& file : spec::shippedFiles()) {
      if (file.kind != spec::ShippedKind::kModel) continue;
      const auto model = spec::parseModel(std::string(file.text), std::string(file.name));
      if (model.has_value() && isIt(*model)) return true;
    }
    return false;
  }

  bool tryChoices() {
    for (const auto field :
         {&ModelSpec::tiedEmbeddings, &ModelSpec::qkvBias, &ModelSpec::linearBias})
      if (isItWith(field, !(model_.*field))) return true;
    for (const auto norm : {spec::NormKind::kLayerNorm, spec::NormKind::kRmsNorm})
      if (isItWith(&ModelSpec::norm, norm)) return true;
    for (const auto kind : {spec::ActivationKind::kGeluTanh, spec::ActivationKind::kSwiGlu})
      if (isItWith(&ModelSpec::activation, kind)) return true;
    for (const auto kind : {spec::PositionKind::kLearned, spec::PositionKind::kRotary})
      if (isItWith(&ModelSpec::position, kind)) return true;
    return isItWith(&ModelSpec::ropeScaling, RopeScaling{});
  }

  // As a file writes them: 1e-05 is not 1 / 100000 in every arithmetic.
  bool tryNumbers() {
    for (int digits = 1; digits < 100; ++digits)
      for (int exponent = -13; exponent < 10; ++exponent) {
        const double value = std::stod(fmt::format("{}e{}", digits, exponent));
        for (const auto field :
             {&ModelSpec::normEpsilon, &ModelSpec::ropeTheta, &ModelSpec::initStd})
          if (isItWith(field, value)) return true;
      }
    return false;
  }

  // A million hashes of a few digits: the text before the count is hashed once, and that behind it
  // is taken back from the fingerprint.
  bool tryCounts(int64_t ModelSpec::* field) {
    ModelSpec marked = model_;
    marked.*field = kMark;
    const std::string text = fingerprintText(marked), mark = std::to_string(kMark);
    const size_t at = text.find(mark);
    const uint64_t before = fnv1a(std::string_view(text).substr(0, at));
    const uint64_t after = takenBack(fingerprint_, std::string_view(text).substr(at + mark.size()));
    for (int64_t count = 1; count <= kMostCount; ++count)
      if (fnv1a(fmt::format_int(count).c_str(), before) == after) return isItWith(field, count);
    return false;
  }

  bool tryHeads() {
    ModelSpec changed = model_;
    for (changed.numHeads = 1; changed.numHeads <= kMostHeads; ++changed.numHeads) {
      if (model_.numKvHeads == model_.numHeads) changed.numKvHeads = changed.numHeads;
      changed.headSize = model_.headSize;
      if (isIt(changed)) return true;
      changed.headSize = model_.hiddenSize / changed.numHeads;
      if (isIt(changed)) return true;
    }
    return false;
  }

  bool tryHiddenSizes() {
    ModelSpec changed = model_;
    for (changed.headSize = 1; changed.headSize <= kMostHeadSize; ++changed.headSize) {
      changed.hiddenSize = changed.headSize * model_.numHeads;
      if (isIt(changed)) return true;
    }
    return false;
  }

  uint64_t fingerprint_;
  const ModelSpec& model_;
  ModelSpec found_;
};

}  // namespace

std::optional<ModelSpec> findModel(uint64_t fingerprint, const ModelSpec& model) {
  return Search(fingerprint, model).run();
}

}  // namespace trireme::plan
