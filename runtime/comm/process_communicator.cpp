#include "runtime/comm/process_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/comm/reduce.h"

namespace trireme::runtime {
namespace {

constexpr size_t kDescription = 16;  // of a call, before the data of a part

char* at(const void* base, int64_t bytes) {
  return const_cast<char*>(static_cast<const char*>(base)) + bytes;
}

std::string encode(const CollectiveCall& call) {
  std::string text(kDescription, '\0');
  text[0] = static_cast<char>(call.kind);
  text[1] = static_cast<char>(call.op);
  text[2] = static_cast<char>(call.type);
  std::memcpy(text.data() + 8, &call.count, sizeof(call.count));
  return text;
}

// kNone: it is not one.
CollectiveCall decode(std::string_view text) {
  CollectiveCall call;
  if (text.size() < kDescription || text[0] < 0 || text[1] < 0 || text[2] < 0 ||
      text[0] > static_cast<char>(CollectiveKind::kAllGather) ||
      text[1] > static_cast<char>(program::ReduceOp::kMax) ||
      text[2] > static_cast<char>(DType::kI32))
    return call;
  call.kind = static_cast<CollectiveKind>(text[0]);
  call.op = static_cast<program::ReduceOp>(text[1]);
  call.type = static_cast<DType>(text[2]);
  std::memcpy(&call.count, text.data() + 8, sizeof(call.count));
  return call;
}

}  // namespace

ProcessCommunicator::ProcessCommunicator(ProcessWorld& world) : world_(world) {
  size_t largest = 0;
  for (const std::vector<int32_t>& ranks : world.groups_) {
    const auto found = std::find(ranks.begin(), ranks.end(), world.rank());
    indexInGroup_.push_back(found == ranks.end() ? -1
                                                 : static_cast<int32_t>(found - ranks.begin()));
    largest = std::max(largest, ranks.size());
  }
  rounds_.resize(world.groups_.size());
  received_.resize(largest);
}

Result<ProcessCommunicator::Round> ProcessCommunicator::begin(int32_t group,
                                                              const CollectiveCall& call) {
  const auto number = static_cast<size_t>(group);
  if (indexInGroup_[number] < 0)
    return Error(
        invalidArgument(fmt::format("rank {} is not a member of group {}", rank(), group)));
  Round round;
  round.ranks = &world_.groups_[number];
  round.index = indexInGroup_[number];
  round.key = (static_cast<uint64_t>(group) << 40) | (++rounds_[number] << 1 & 0xFFFFFFFFFFu);
  round.call = call;
  return round;
}

void ProcessCommunicator::post(const Round& round, Phase phase, int64_t member, const void* data,
                               int64_t bytes) {
  world_.post((*round.ranks)[static_cast<size_t>(member)], wire::Kind::kPart,
              round.key | static_cast<uint64_t>(phase), encode(round.call), data,
              static_cast<size_t>(bytes), &ticket_);
}

Status ProcessCommunicator::collect(const Round& round, Phase phase,
                                    const std::vector<int64_t>& bytes) {
  class Complete final : public Condition {
   public:
    Complete(ProcessCommunicator& comm, const Round& round, uint64_t key)
        : comm_(comm), round_(round), key_(key) {}
    bool ready() override {
      for (; member_ < round_.size(); ++member_) {
        if (member_ == round_.index) continue;
        auto part = comm_.world_.take(awaitedRank(), wire::Kind::kPart, key_);
        if (!part) return false;
        comm_.received_[static_cast<size_t>(member_)] = *std::move(part);
      }
      return comm_.world_.isDone(comm_.ticket_);
    }
    int32_t awaitedRank() override {
      return member_ < round_.size() ? (*round_.ranks)[static_cast<size_t>(member_)] : -1;
    }

   private:
    ProcessCommunicator& comm_;
    const Round& round_;
    uint64_t key_;
    int64_t member_ = 0;
  };
  Complete complete(*this, round, round.key | static_cast<uint64_t>(phase));
  TRIREME_RETURN_IF_ERROR(wait(complete));
  for (int64_t i = 0; i < round.size(); ++i) {
    if (i == round.index) continue;
    const std::string& part = received_[static_cast<size_t>(i)];
    const CollectiveCall theirs = decode(part);
    if (!sameCall(theirs, round.call) ||
        std::ssize(part) != static_cast<int64_t>(kDescription) + bytes[static_cast<size_t>(i)]) {
      const int32_t other = (*round.ranks)[static_cast<size_t>(i)];
      const std::string mine = describe(rank(), round.call), their = describe(other, theirs);
      return invalidArgument(fmt::format("members of a group differ: {}, {}",
                                         i < round.index ? their : mine,
                                         i < round.index ? mine : their));
    }
  }
  return {};
}

const char* ProcessCommunicator::partOf(int64_t member) const {
  return received_[static_cast<size_t>(member)].data() + kDescription;
}

Status ProcessCommunicator::allReduce(GroupCall with, void* data, int64_t count, DType type,
                                      program::ReduceOp op) {
  const int32_t group = with.group;
  const int64_t n = std::ssize(world_.groups_[static_cast<size_t>(group)]);
  if (n == 1) return {};
  TRIREME_ASSIGN_OR_RETURN(const Round round,
                           begin(group, {CollectiveKind::kAllReduce, op, type, count, nullptr}));
  const int64_t exact = (count + n - 1) / n, size = byteSize(type);
  const int64_t slice = (exact + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
  const auto firstOf = [&](int64_t member) { return std::min(count, member * slice); };
  const auto bytesOf = [&](int64_t member) {
    return (firstOf(member + 1) - firstOf(member)) * size;
  };
  const auto sliceOf = [&](int64_t member) { return at(data, firstOf(member) * size); };
  const int64_t self = round.index;
  for (int64_t i = 0; i < n; ++i)
    if (i != self) post(round, Phase::kInputs, i, sliceOf(i), bytesOf(i));
  TRIREME_RETURN_IF_ERROR(
      collect(round, Phase::kInputs, std::vector<int64_t>(static_cast<size_t>(n), bytesOf(self))));
  std::vector<const void*> inputs;
  for (int64_t i = 0; i < n; ++i) inputs.push_back(i == self ? sliceOf(self) : partOf(i));
  void* output = sliceOf(self);
  reduceElements(type, op, inputs, std::span<void* const>(&output, 1), 0, bytesOf(self) / size);
  std::vector<int64_t> bytes;
  for (int64_t i = 0; i < n; ++i) {
    bytes.push_back(bytesOf(i));
    if (i != self) post(round, Phase::kResults, i, output, bytesOf(self));
  }
  TRIREME_RETURN_IF_ERROR(collect(round, Phase::kResults, bytes));
  for (int64_t i = 0; i < n; ++i)
    if (i != self && bytesOf(i) > 0)
      std::memcpy(sliceOf(i), partOf(i), static_cast<size_t>(bytesOf(i)));
  return {};
}

Status ProcessCommunicator::reduceScatter(GroupCall with, void* all, void* mine, int64_t count,
                                          DType type, program::ReduceOp op) {
  const int32_t group = with.group;
  const int64_t n = std::ssize(world_.groups_[static_cast<size_t>(group)]);
  const int64_t bytes = count * byteSize(type);
  if (n == 1) {
    if (mine != all) std::memmove(mine, all, static_cast<size_t>(bytes));
    return {};
  }
  TRIREME_ASSIGN_OR_RETURN(
      const Round round, begin(group, {CollectiveKind::kReduceScatter, op, type, count, nullptr}));
  for (int64_t i = 0; i < n; ++i)
    if (i != round.index) post(round, Phase::kInputs, i, at(all, i * bytes), bytes);
  TRIREME_RETURN_IF_ERROR(
      collect(round, Phase::kInputs, std::vector<int64_t>(static_cast<size_t>(n), bytes)));
  char* slice = at(all, round.index * bytes);
  const bool overlaps = mine < at(all, n * bytes) && all < at(mine, bytes);
  void* target = overlaps ? slice : mine;
  std::vector<const void*> inputs;
  for (int64_t i = 0; i < n; ++i) inputs.push_back(i == round.index ? slice : partOf(i));
  reduceElements(type, op, inputs, std::span<void* const>(&target, 1), 0, count);
  if (target != mine) std::memmove(mine, target, static_cast<size_t>(bytes));
  return {};
}

Status ProcessCommunicator::allGather(GroupCall with, const void* mine, void* all, int64_t count,
                                      DType type) {
  const int32_t group = with.group;
  const int64_t n = std::ssize(world_.groups_[static_cast<size_t>(group)]);
  const int64_t bytes = count * byteSize(type);
  const int32_t index = indexInGroup_[static_cast<size_t>(group)];
  if (index >= 0 && mine != at(all, index * bytes))
    std::memmove(at(all, index * bytes), mine, static_cast<size_t>(bytes));
  if (n == 1) return {};
  TRIREME_ASSIGN_OR_RETURN(
      const Round round,
      begin(group, {CollectiveKind::kAllGather, program::ReduceOp::kSum, type, count, nullptr}));
  for (int64_t i = 0; i < n; ++i)
    if (i != index) post(round, Phase::kInputs, i, at(all, index * bytes), bytes);
  TRIREME_RETURN_IF_ERROR(
      collect(round, Phase::kInputs, std::vector<int64_t>(static_cast<size_t>(n), bytes)));
  for (int64_t i = 0; i < n; ++i)
    if (i != index && bytes > 0)
      std::memcpy(at(all, i * bytes), partOf(i), static_cast<size_t>(bytes));
  return {};
}

Status ProcessCommunicator::publish(program::Stream stream, int32_t peer, const MessageTag& tag,
                                    const void* data, int64_t bytes) {
  world_.publish(static_cast<size_t>(stream), peer, packMessage(peer, tag), data,
                 static_cast<size_t>(bytes));
  return {};
}

Result<bool> ProcessCommunicator::sent(program::Stream stream) {
  return world_.isSent(static_cast<size_t>(stream));
}

Result<bool> ProcessCommunicator::receive(program::Stream, int32_t peer, const MessageTag& tag,
                                          void* data, int64_t bytes) {
  const std::pair message(peer, packMessage(rank(), tag));
  if (asked_.insert(message).second) world_.ask(peer, message.second);
  const std::optional<std::string> body = world_.take(peer, wire::Kind::kMessage, message.second);
  if (!body) return false;
  asked_.erase(message);
  if (std::ssize(*body) != bytes)
    return Error(invalidArgument(fmt::format("rank {} receives {} bytes, rank {} sends {}", rank(),
                                             bytes, peer, body->size())));
  if (bytes > 0) std::memcpy(data, body->data(), static_cast<size_t>(bytes));
  return true;
}

}  // namespace trireme::runtime
