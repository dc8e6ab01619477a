// The model that a row means: rules (R3), (R4), (R5) and (R15) of mapping.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cost_models/validation/row.h"
#include "ir/base/status.h"
#include "ir/spec/model_spec.h"

namespace trireme::cost {

enum class ModelKind : uint8_t { kGpt, kMpt, kNemotron, kLlama, kGemma, kQwen, kQwen3 };

struct RowModel {
  spec::ModelSpec spec;
  ModelKind kind = ModelKind::kGpt;
};

// Of a row with layers, hidden, heads and seq. Adds what it took for granted to `assumptions`.
//
// kInvalidArgument: the sizes are no model, are missing, or params_b is of another one.
Result<RowModel> modelFor(const Row& row, std::vector<std::string>& assumptions);

// Whether a model of `count` parameters is published as one of `billions`: the same to the digits
// that are given, the last of which may be rounded or cut off.
//
//   8: 7.5 to 9 billion; 1.7: 1.65 to 1.8; 70, 70.0: 69.5 to 71
bool isCountOf(double billions, double count);

}  // namespace trireme::cost
