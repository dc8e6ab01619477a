// Reads how rotary positions are scaled (ir/base/rope.h).
#pragma once
#include "ir/base/rope.h"
#include "ir/spec/map_reader.h"

namespace trireme::spec {

// The key `rope_scaling` of a model, {type: llama3, factor: 8, ...}; leaves `*out` alone if it is
// absent. Errors go to `model`.
void readRopeScaling(MapReader& model, RopeScaling* out);

// The numbers of a scaling of this kind, from a map that has them by the keys of Hugging Face. With
// a factor of 1 nothing is scaled: that is none. Errors (a number is missing, makes no sense, or
// has no effect with this kind) go to `map`, and the result is then none.
RopeScaling readRopeNumbers(MapReader& map, RopeScalingKind kind);

}  // namespace trireme::spec
