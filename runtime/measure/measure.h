// What a host's ranks reach: kernels, memory, and communication between them. Every function runs
// the code that training runs.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/program/bundle.h"
#include "runtime/executor/segment_code.h"
#include "runtime/measure/measured_operands.h"
#include "runtime/measure/measured_ranks.h"

namespace trireme::runtime {

// How much of 1 is done, and what comes next.
using MeasureProgress = std::function<void(double done, const std::string& what)>;

// One call of segment `index` of the bundle that `code` was loaded from, on operands of its own
// (measured_operands.h: `most` bytes of each rank), which lie in the rank's memory, one for each.
// Errors: those of the kernels; kResourceExhausted: no memory.
Result<Seconds> measureSegment(MeasuredRanks& ranks, const program::Bundle& bundle,
                               const SegmentCode& code, size_t index, int64_t most,
                               std::vector<OperandMemory>& memory);

enum class MemoryWork : uint8_t {
  kTriad,       // a = b + s c, in f32 whatever `type`
  kZero,        // writes zeros
  kSumSquares,  // as Instruction kSumSquares
  kAdamW,       // as Instruction kAdamW, of f32 state with parameters in f32, f64 with f64
};
int numArrays(MemoryWork work);
// One call over arrays of `elements` numbers. `type`: f32 or f64, else kInvalidArgument.
Result<Seconds> measureMemory(MeasuredRanks& ranks, MemoryWork work, DType type, int64_t elements);

enum class Exchange : uint8_t { kAllReduce, kAllGather, kReduceScatter, kSend };
// One call among `groupSize` neighbouring ranks while all other groups of that size do the same.
// `bytes` of f32, a multiple of 4 groupSize: the full tensor, as CollectivePoint counts. kSend:
// from one rank of a pair to the other (half of there and back); groupSize is 2. Requires that
// groupSize divides the number of ranks, or of kSend, that there are two of them. Errors: those of
// Communicator.
Result<Seconds> measureExchange(MeasuredRanks& ranks, Exchange exchange, int32_t groupSize,
                                int64_t bytes);

}  // namespace trireme::runtime
