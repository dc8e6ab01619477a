// What members of a group say about a collective, to compare. Private to runtime/comm.
#pragma once
#include <string>

#include "ir/base/dtype.h"
#include "ir/program/program.h"

namespace trireme::runtime {

enum class CollectiveKind : uint8_t { kNone, kAllReduce, kReduceScatter, kAllGather };

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kNone;
  program::ReduceOp op = program::ReduceOp::kSum;
  DType type = DType::kF32;
  int64_t count = 0;
  void* data = nullptr;
};

// All but where the data is.
inline bool sameCall(const CollectiveCall& a, const CollectiveCall& b) {
  return a.kind == b.kind && a.op == b.op && a.type == b.type && a.count == b.count;
}

// "rank 1 calls all_reduce of 4 f64 elements".
std::string describe(int32_t rank, const CollectiveCall& call);

// Non-zero; equal only for the same message of the same step.
struct MessageTag;
uint64_t packMessage(int32_t peer, const MessageTag& tag);

// Slices of an all-reduce start at multiples of this many elements, so that members do not write to
// one cache line.
inline constexpr int64_t kSliceAlignment = 64;

}  // namespace trireme::runtime
