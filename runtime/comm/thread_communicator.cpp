#include "runtime/comm/thread_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/comm/collective_call.h"
#include "runtime/comm/reduce.h"
#include "runtime/comm/thread_world_state.h"
#include "runtime/comm/timeout.h"

namespace trireme::runtime {
namespace {

void copyBytes(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

char* at(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }

}  // namespace

ThreadCommunicator::ThreadCommunicator(ThreadWorld& world, int32_t rank)
    : world_(world), rank_(rank) {
  size_t largest = 0;
  for (const auto& group : world.groups_) {
    int32_t index = -1;
    for (int64_t i = 0; i < group->size(); ++i)
      if (group->members[static_cast<size_t>(i)].rank == rank) index = static_cast<int32_t>(i);
    indexInGroup_.push_back(index);
    largest = std::max(largest, group->members.size());
  }
  barriers_.resize(world.groups_.size());
  inputs_.reserve(largest);
  outputs_.reserve(largest);
}

Status ThreadCommunicator::unavailable(int32_t awaited, const char* what) const {
  const std::string self =
      awaited < 0 ? fmt::format("rank {}: {}", rank_, what)
                  : fmt::format("rank {}, waiting for rank {}: {}", rank_, awaited, what);
  if (!world_.failed()) return trireme::unavailable(self);
  return trireme::unavailable(fmt::format("{} (rank {} failed: {})", self, world_.failedRank(),
                                          world_.failure().message()));
}

Status ThreadCommunicator::wait(Condition& condition) {
  Doorbell& doorbell = world_.ranks_[static_cast<size_t>(rank_)]->doorbell;
  WaitClock clock;
  while (true) {
    const uint32_t ticket = doorbell.current();
    if (progress_ != nullptr) TRIREME_RETURN_IF_ERROR(progress_->advance());
    if (condition.ready()) return {};
    const std::chrono::nanoseconds left = world_.timeout_ - clock.waited();
    const bool late = left <= std::chrono::nanoseconds::zero();
    if (!world_.failed() && !late) {
      doorbell.sleep(ticket, std::min<std::chrono::nanoseconds>(left, WaitClock::kLook));
      continue;
    }
    const int32_t awaited = condition.awaitedRank();
    if (condition.ready()) return {};  // The last one came since.
    if (world_.failed()) return unavailable(awaited, "gave up");
    const double seconds = std::chrono::duration<double>(world_.timeout_).count();
    return unavailable(awaited, fmt::format("no answer in {} s", seconds).c_str());
  }
}

namespace {

// Barrier number `number` of a group.
template <typename Group>
class AllArrived final : public Condition {
 public:
  AllArrived(Group& group, uint64_t number) : group_(group), number_(number) {}
  bool ready() override {
    return group_.arrivals.load(std::memory_order_acquire) >= number_ * group_.members.size();
  }
  int32_t awaitedRank() override {
    for (const auto& member : group_.members)
      if (member.barriers.load(std::memory_order_acquire) < number_) return member.rank;
    return -1;
  }

 private:
  Group& group_;
  uint64_t number_;
};

}  // namespace

Status ThreadCommunicator::barrier(int32_t group) {
  ThreadWorld::Group& shared = *world_.groups_[static_cast<size_t>(group)];
  const auto self = static_cast<size_t>(indexInGroup_[static_cast<size_t>(group)]);
  const uint64_t number = ++barriers_[static_cast<size_t>(group)];
  const uint64_t arrived = shared.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1;
  shared.members[self].barriers.store(number, std::memory_order_release);  // After it is counted.
  if (arrived == number * shared.members.size()) {
    for (const auto& member : shared.members)
      if (member.rank != rank_) world_.ranks_[static_cast<size_t>(member.rank)]->doorbell.ring();
    return {};
  }
  AllArrived condition(shared, number);
  return wait(condition);
}

Status ThreadCommunicator::begin(int32_t group, const CollectiveCall& call) {
  ThreadWorld::Group& shared = *world_.groups_[static_cast<size_t>(group)];
  const int32_t index = indexInGroup_[static_cast<size_t>(group)];
  if (index < 0)
    return invalidArgument(fmt::format("rank {} is not a member of group {}", rank_, group));
  shared.members[static_cast<size_t>(index)].call = call;
  TRIREME_RETURN_IF_ERROR(barrier(group));
  const auto& first = shared.members.front();
  for (const auto& member : shared.members)
    if (!sameCall(member.call, first.call))
      return invalidArgument(fmt::format("members of a group differ: {}, {}",
                                         describe(first.rank, first.call),
                                         describe(member.rank, member.call)));
  return {};
}

Status ThreadCommunicator::allReduce(GroupCall with, void* data, int64_t count, DType type,
                                     program::ReduceOp op) {
  const int32_t group = with.group;
  ThreadWorld::Group& shared = *world_.groups_[static_cast<size_t>(group)];
  const int64_t n = shared.size();
  if (n == 1) return {};
  TRIREME_RETURN_IF_ERROR(begin(group, {CollectiveKind::kAllReduce, op, type, count, data}));
  inputs_.clear();
  outputs_.clear();
  for (const auto& member : shared.members) {
    inputs_.push_back(member.call.data);
    outputs_.push_back(member.call.data);
  }
  const int64_t exact = (count + n - 1) / n;
  const int64_t slice = (exact + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
  const int64_t index = indexInGroup_[static_cast<size_t>(group)];
  const int64_t first = std::min(count, index * slice);
  reduceElements(type, op, inputs_, outputs_, first, std::min(count, first + slice));
  return barrier(group);
}

// While others still read slices of `all`, only this member's slice of it may be written: where
// `mine` lies elsewhere in it, the result goes there first and moves after the last barrier.
Status ThreadCommunicator::reduceScatter(GroupCall with, void* all, void* mine, int64_t count,
                                         DType type, program::ReduceOp op) {
  const int32_t group = with.group;
  ThreadWorld::Group& shared = *world_.groups_[static_cast<size_t>(group)];
  const int64_t n = shared.size();
  const int64_t bytes = count * byteSize(type);
  if (n == 1) {
    if (mine != all) std::memmove(mine, all, static_cast<size_t>(bytes));
    return {};
  }
  TRIREME_RETURN_IF_ERROR(begin(group, {CollectiveKind::kReduceScatter, op, type, count, all}));
  const int64_t offset = indexInGroup_[static_cast<size_t>(group)] * bytes;
  char* slice = at(all, offset);
  const bool overlaps = mine < at(all, n * bytes) && all < at(mine, bytes);
  void* target = overlaps ? slice : mine;
  inputs_.clear();
  for (const auto& member : shared.members) inputs_.push_back(at(member.call.data, offset));
  reduceElements(type, op, inputs_, std::span<void* const>(&target, 1), 0, count);
  TRIREME_RETURN_IF_ERROR(barrier(group));
  if (target != mine) std::memmove(mine, target, static_cast<size_t>(bytes));
  return {};
}

// The others read this member's part from its place in `all`, which nobody else writes.
Status ThreadCommunicator::allGather(GroupCall with, const void* mine, void* all, int64_t count,
                                     DType type) {
  const int32_t group = with.group;
  ThreadWorld::Group& shared = *world_.groups_[static_cast<size_t>(group)];
  const int64_t bytes = count * byteSize(type);
  const int64_t index = indexInGroup_[static_cast<size_t>(group)];
  if (index >= 0 && mine != at(all, index * bytes))
    std::memmove(at(all, index * bytes), mine, static_cast<size_t>(bytes));
  if (shared.size() == 1) return {};
  TRIREME_RETURN_IF_ERROR(
      begin(group, {CollectiveKind::kAllGather, program::ReduceOp::kSum, type, count, all}));
  for (int64_t j = 0; j < shared.size(); ++j)
    if (j != index)
      copyBytes(at(all, j * bytes), at(shared.members[static_cast<size_t>(j)].call.data, j * bytes),
                bytes);
  return barrier(group);
}

Result<std::vector<std::string>> ThreadCommunicator::exchange(const std::string& mine) {
  const auto everybody = static_cast<int32_t>(world_.groups_.size()) - 1;
  world_.said_[static_cast<size_t>(rank_)] = mine;
  TRIREME_RETURN_IF_ERROR(barrier(everybody));
  std::vector<std::string> all = world_.said_;
  TRIREME_RETURN_IF_ERROR(barrier(everybody));
  return all;
}

Status ThreadCommunicator::publish(program::Stream stream, int32_t peer, const MessageTag& tag,
                                   const void* data, int64_t bytes) {
  Outbox& box = world_.ranks_[static_cast<size_t>(rank_)]->outboxes[static_cast<size_t>(stream)];
  box.data = data;
  box.bytes = bytes;
  box.word.store(packMessage(peer, tag), std::memory_order_release);
  world_.ranks_[static_cast<size_t>(peer)]->doorbell.ring();
  return {};
}

Result<bool> ThreadCommunicator::sent(program::Stream stream) {
  const auto& state = *world_.ranks_[static_cast<size_t>(rank_)];
  return state.outboxes[static_cast<size_t>(stream)].word.load(std::memory_order_acquire) == 0;
}

Result<bool> ThreadCommunicator::receive(program::Stream, int32_t peer, const MessageTag& tag,
                                         void* data, int64_t bytes) {
  const uint64_t word = packMessage(rank_, tag);
  ThreadWorld::RankState& sender = *world_.ranks_[static_cast<size_t>(peer)];
  for (Outbox& box : sender.outboxes) {
    if (box.word.load(std::memory_order_acquire) != word) continue;
    if (box.bytes != bytes)
      return Error(invalidArgument(fmt::format("rank {} receives {} bytes, rank {} sends {}", rank_,
                                               bytes, peer, box.bytes)));
    copyBytes(data, box.data, bytes);
    box.word.store(0, std::memory_order_release);
    sender.doorbell.ring();
    return true;
  }
  return false;
}

}  // namespace trireme::runtime
