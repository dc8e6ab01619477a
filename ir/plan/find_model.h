// The model that a plan was made for. A plan keeps its fingerprint alone, from which no field can
// be read; but a model can be tried.
#pragma once
#include <cstdint>
#include <optional>

#include "ir/spec/model_spec.h"

namespace trireme::plan {

// The model of this fingerprint, under its own name, if it is one that is shipped or, with one
// field changed, `model`: then under that one's name. Fields that follow from another in a model's
// file (kv_heads and head_size from heads, head_size from hidden_size) may follow here. Counts are
// tried up to 2^18, numbers with a fraction in two decimal digits: some 40 ms.
std::optional<spec::ModelSpec> findModel(uint64_t fingerprint, const spec::ModelSpec& model);

}  // namespace trireme::plan
