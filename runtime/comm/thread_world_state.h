// What ThreadWorld and its communicators share. Private to runtime/comm.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/comm/collective_call.h"
#include "runtime/comm/doorbell.h"
#include "runtime/comm/thread_world.h"

namespace trireme::runtime {

inline constexpr size_t kCacheLine = 64;

// Barriers count up for ever: barrier number g is complete when arrivals reaches g * size. The
// members' own counters only serve to name who is missing.
struct ThreadWorld::Group {
  struct alignas(kCacheLine) Member {
    int32_t rank = 0;
    CollectiveCall call;                // what it calls: written before a barrier, read after it
    std::atomic<uint64_t> barriers{0};  // that this member has reached
  };
  explicit Group(const std::vector<int32_t>& ranks);
  int64_t size() const { return static_cast<int64_t>(members.size()); }

  std::vector<Member> members;
  alignas(kCacheLine) std::atomic<uint64_t> arrivals{0};
};

// A published message. `word` (peer and tag, 0: empty) is the only thing that others poll; whoever
// finds itself addressed in it may read the rest, and writes 0 when it has copied the data.
struct alignas(kCacheLine) Outbox {
  std::atomic<uint64_t> word{0};
  const void* data = nullptr;
  int64_t bytes = 0;
};

struct ThreadWorld::RankState {
  alignas(kCacheLine) Doorbell doorbell;
  std::array<Outbox, program::kNumStreams> outboxes;
};

}  // namespace trireme::runtime
