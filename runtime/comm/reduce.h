// The arithmetic of reductions, on one thread.
#pragma once
#include <cstdint>
#include <span>

#include "ir/base/dtype.h"
#include "ir/program/program.h"

namespace trireme::runtime {

// out[i] = ((in0[i] op in1[i]) op in2[i]) ... for i in [begin, end), written to every one of
// `outputs`. bf16 and f16 are accumulated in f32 and rounded once, to nearest even. Each element
// depends on nothing but its own inputs, so neither the range nor the blocking shows in the result.
// An output may be one of the inputs, at the same position.
void reduceElements(DType type, program::ReduceOp op, std::span<const void* const> inputs,
                    std::span<void* const> outputs, int64_t begin, int64_t end);

}  // namespace trireme::runtime
