// The random words of ir/base/rng.h, for a vector of consecutive elements.
#pragma once
#include "codegen/lower/vector_emitter.h"

namespace trireme::codegen {

// key: two i32 of KernelContext::keys. Scalars: `sample` and `element` (of the first lane), i64.
struct PhiloxKey {
  mlir::Value low, high;
};

// vector<kLanes x i32>: randomWord(key, sample, element + lane). `aligned`: element is a multiple
// of four, so that one Philox call can serve four lanes.
mlir::Value emitRandomWords(VectorEmitter& e, const PhiloxKey& key, mlir::Value sample,
                            mlir::Value element, bool aligned);

}  // namespace trireme::codegen
