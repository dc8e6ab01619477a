#include "runtime/comm/collective_call.h"

#include <fmt/format.h>

#include "runtime/comm/communicator.h"

namespace trireme::runtime {
namespace {

const char* callName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kNone:
      break;
  }
  return "none";
}

}  // namespace

std::string describe(int32_t rank, const CollectiveCall& call) {
  return fmt::format("rank {} calls {}{} of {} {} elements", rank, callName(call.kind),
                     call.op == program::ReduceOp::kMax ? " (max)" : "", call.count,
                     dtypeName(call.type));
}

uint64_t packMessage(int32_t peer, const MessageTag& tag) {
  return (uint64_t{1} << 62) | (uint64_t{static_cast<uint32_t>(peer) & 0xFFFFFu} << 42) |
         (uint64_t{static_cast<uint8_t>(tag.direction)} << 40) |
         (uint64_t{static_cast<uint32_t>(tag.virtualStage) & 0xFFFFu} << 24) |
         (static_cast<uint32_t>(tag.microbatch) & 0xFFFFFFu);
}

}  // namespace trireme::runtime
