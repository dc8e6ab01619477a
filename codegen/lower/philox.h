// The random words of ir/base/rng.h, for a vector of consecutive elements.
#pragma once
#include <array>

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

// In warps: of kLanes elements from `element` on, and of as many from each of the next sites, a
// multiple of four. A thread makes the four words of one site's quad, of which its neighbours have
// three; they exchange them.
inline constexpr int64_t kSitesOfWords = 4;
std::array<mlir::Value, kSitesOfWords> emitRandomWordsOfSites(VectorEmitter& e,
                                                              const PhiloxKey& key,
                                                              mlir::Value sample,
                                                              mlir::Value element);

}  // namespace trireme::codegen
