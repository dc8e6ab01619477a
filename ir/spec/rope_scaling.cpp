#include "ir/spec/rope_scaling.h"

#include <fmt/format.h>

namespace trireme::spec {
namespace {

constexpr EnumName<RopeScalingKind> kKindArray[] = {{"linear", RopeScalingKind::kLinear},
                                                    {"llama3", RopeScalingKind::kLlama3}};
constexpr std::span<const EnumName<RopeScalingKind>> kKinds = kKindArray;

template <typename T>
void readNumber(MapReader& map, std::string_view key, bool isUsed, T* out) {
  if (isUsed)
    map.required(key, out);
  else if (const Node* node = map.child(key))
    map.fail(*node, "has no effect with this type: remove it");
}

}  // namespace

void readRopeScaling(MapReader& model, RopeScaling* out) {
  const Node* node = model.child("rope_scaling");
  if (!node) return;
  MapReader map(model.file(), *node, model.path() + "rope_scaling.");
  RopeScalingKind kind = RopeScalingKind::kNone;
  map.required("type", kKinds, &kind);
  // The numbers of another type would only hide this.
  if (const Status status = map.firstValueError(); !status.ok()) return model.merge(status);
  *out = readRopeNumbers(map, kind);
  model.merge(map.finish());
}

RopeScaling readRopeNumbers(MapReader& map, RopeScalingKind kind) {
  RopeScaling scaling{.kind = kind};
  const bool isLlama3 = kind == RopeScalingKind::kLlama3;
  // Files of unscaled models may say so by a factor.
  const bool isScaled = kind != RopeScalingKind::kNone;
  if (!isScaled) map.optional("factor", &scaling.factor);
  if (isScaled || scaling.factor != 1) readNumber(map, "factor", isScaled, &scaling.factor);
  readNumber(map, "low_freq_factor", isLlama3, &scaling.lowFreqFactor);
  readNumber(map, "high_freq_factor", isLlama3, &scaling.highFreqFactor);
  readNumber(map, "original_max_position_embeddings", isLlama3, &scaling.originalSequence);
  if (!map.firstValueError().ok()) return {};
  if (const auto problem = findProblem(scaling))
    map.merge(map.errorFor({std::string(problem->key), problem->message}));
  return scaling.factor == 1 ? RopeScaling{} : scaling;
}

}  // namespace trireme::spec
