#include "runtime/device/cuda/virtual_communicator.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::runtime::cuda {

using program::ReduceOp;
using program::Stream;

namespace {

char* at(const void* base, int64_t bytes) {
  return const_cast<char*>(static_cast<const char*>(base)) + bytes;
}

}  // namespace

VirtualCommunicator::VirtualCommunicator(CudaRank& rank, std::unique_ptr<Communicator> control,
                                         const std::vector<program::Group>& groups)
    : rank_(rank), control_(std::move(control)), groups_(groups) {
  size_t largest = 1;
  for (const program::Group& group : groups) largest = std::max(largest, group.ranks.size());
  notices_.resize(largest);
}

Result<std::unique_ptr<VirtualCommunicator>> VirtualCommunicator::create(
    CudaRank& rank, std::unique_ptr<Communicator> control,
    const std::vector<program::Group>& groups) {
  std::unique_ptr<VirtualCommunicator> comm(
      new VirtualCommunicator(rank, std::move(control), groups));
  TRIREME_RETURN_IF_ERROR(comm->loadKernels());
  return comm;
}

Status VirtualCommunicator::loadKernels() {
  for (DType type : {DType::kF64, DType::kF32, DType::kBf16, DType::kF16, DType::kI32})
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      TRIREME_ASSIGN_OR_RETURN(
          kernels_[std::make_pair(type, op)],
          rank_.gpu().kernel(
              fmt::format("reduce_{}_{}", op == ReduceOp::kSum ? "sum" : "max", dtypeName(type))));
    }
  return {};
}

int64_t VirtualCommunicator::sizeOf(int32_t group) const {
  return std::ssize(groups_[static_cast<size_t>(group)].ranks);
}

int64_t VirtualCommunicator::indexIn(int32_t group) const {
  const std::vector<int32_t>& ranks = groups_[static_cast<size_t>(group)].ranks;
  return std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
}

Status VirtualCommunicator::checkGroup(int32_t group) const {
  if (sizeOf(group) <= kMaxReduceMembers) return {};
  return invalidArgument(fmt::format("a group of {} virtual ranks; at most {} share a reduction",
                                     sizeOf(group), kMaxReduceMembers));
}

Result<EventHandle> VirtualCommunicator::recordEvent(Stream stream) {
  const int32_t event = rank_.newEvent();
  TRIREME_RETURN_IF_ERROR(rank_.record(event, stream));
  return rank_.eventHandle(event);
}

Status VirtualCommunicator::meet(GroupCall with, const void* data, int64_t bytes) {
  static_assert(sizeof(Notice) % sizeof(int32_t) == 0);
  Notice mine{data, nullptr, bytes};
  TRIREME_ASSIGN_OR_RETURN(mine.event, recordEvent(with.stream));
  TRIREME_RETURN_IF_ERROR(control_->allGather(with, &mine, notices_.data(),
                                              sizeof(Notice) / sizeof(int32_t), DType::kI32));
  const auto& ranks = groups_[static_cast<size_t>(with.group)].ranks;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (notices_[i].bytes != bytes)
      return invalidArgument(
          fmt::format("members of a group differ: rank {} calls a collective of "
                      "{} bytes, rank {} of {}",
                      rank(), bytes, ranks[i], notices_[i].bytes));
    if (ranks[i] != rank())
      TRIREME_RETURN_IF_ERROR(rank_.waitForHandle(notices_[i].event, with.stream));
  }
  return {};
}

Status VirtualCommunicator::reduce(Stream stream, ReduceArgs& args, DType type, ReduceOp op) {
  const auto kernel = kernels_.find({type, op});
  if (kernel == kernels_.end())
    return invalidArgument(fmt::format("{} cannot be reduced", dtypeName(type)));
  return rank_.gpu().launch(launchOf(kernel->second, &args, args.end - args.begin),
                            rank_.stream(stream));
}

Status VirtualCommunicator::allReduce(GroupCall with, void* data, int64_t count, DType type,
                                      ReduceOp op) {
  const int32_t group = with.group;
  const int64_t n = sizeOf(group);
  if (n == 1) return {};
  TRIREME_RETURN_IF_ERROR(checkGroup(group));
  TRIREME_RETURN_IF_ERROR(meet(with, data, count * byteSize(type)));
  ReduceArgs args{};
  args.numInputs = args.numOutputs = static_cast<int32_t>(n);
  for (int64_t i = 0; i < n; ++i) {
    args.inputs[i] = notices_[static_cast<size_t>(i)].data;
    args.outputs[i] = at(args.inputs[i], 0);
  }
  const int64_t slice = (count + n - 1) / n, index = indexIn(group);
  args.begin = std::min(count, index * slice);
  args.end = std::min(count, args.begin + slice);
  TRIREME_RETURN_IF_ERROR(reduce(with.stream, args, type, op));
  return meet(with, nullptr, 0);
}

// As between threads: while others still read `all`, only this member's slice of it is written.
Status VirtualCommunicator::reduceScatter(GroupCall with, void* all, void* mine, int64_t count,
                                          DType type, ReduceOp op) {
  const int32_t group = with.group;
  const int64_t n = sizeOf(group), bytes = count * byteSize(type);
  if (n == 1) return rank_.move(mine, all, bytes, with.stream);
  TRIREME_RETURN_IF_ERROR(checkGroup(group));
  TRIREME_RETURN_IF_ERROR(meet(with, all, bytes));
  const int64_t offset = indexIn(group) * bytes;
  const bool overlaps = mine < at(all, n * bytes) && all < at(mine, bytes);
  void* target = overlaps ? at(all, offset) : mine;
  ReduceArgs args{};
  args.numInputs = static_cast<int32_t>(n);
  args.numOutputs = 1;
  args.outputs[0] = target;
  args.end = count;
  for (int64_t i = 0; i < n; ++i)
    args.inputs[i] = at(notices_[static_cast<size_t>(i)].data, offset);
  TRIREME_RETURN_IF_ERROR(reduce(with.stream, args, type, op));
  TRIREME_RETURN_IF_ERROR(meet(with, nullptr, 0));
  return rank_.move(mine, target, bytes, with.stream);
}

Status VirtualCommunicator::allGather(GroupCall with, const void* mine, void* all, int64_t count,
                                      DType type) {
  const int32_t group = with.group;
  const int64_t bytes = count * byteSize(type), index = indexIn(group);
  TRIREME_RETURN_IF_ERROR(rank_.move(at(all, index * bytes), mine, bytes, with.stream));
  if (sizeOf(group) == 1) return {};
  TRIREME_RETURN_IF_ERROR(meet(with, all, bytes));
  for (int64_t i = 0; i < sizeOf(group); ++i)
    if (i != index)
      TRIREME_RETURN_IF_ERROR(rank_.copy(at(all, i * bytes),
                                         at(notices_[static_cast<size_t>(i)].data, i * bytes),
                                         bytes, with.stream));
  return meet(with, nullptr, 0);
}

Status VirtualCommunicator::publish(Stream stream, int32_t peer, const MessageTag& tag,
                                    const void* data, int64_t bytes) {
  Outgoing& out = outgoing_[static_cast<size_t>(stream)];
  out = {{data, nullptr, bytes}, peer, tag, false};
  TRIREME_ASSIGN_OR_RETURN(out.notice.event, recordEvent(stream));
  return control_->publish(stream, peer, tag, &out.notice, sizeof(Notice));
}

// True once the receiver has answered: then the stream goes on when its copy is done.
Result<bool> VirtualCommunicator::sent(Stream stream) {
  Outgoing& out = outgoing_[static_cast<size_t>(stream)];
  if (!out.noticed) {
    TRIREME_ASSIGN_OR_RETURN(out.noticed, control_->sent(stream));
    if (!out.noticed) return false;
  }
  Notice answer;
  TRIREME_ASSIGN_OR_RETURN(const bool answered,
                           control_->receive(stream, out.peer, out.tag, &answer, sizeof(answer)));
  if (!answered) return false;
  TRIREME_RETURN_IF_ERROR(rank_.waitForHandle(answer.event, stream));
  return true;
}

// The answer goes through the receiving stream's own outbox, which nothing else uses: its tag is
// that of the message, which no other message between the two has.
Result<bool> VirtualCommunicator::receive(Stream stream, int32_t peer, const MessageTag& tag,
                                          void* data, int64_t bytes) {
  Notice& answer = acknowledged_[static_cast<size_t>(stream)];
  if (answer.event != nullptr) {
    TRIREME_ASSIGN_OR_RETURN(const bool taken, control_->sent(stream));
    if (!taken) return false;
  }
  Notice notice;
  TRIREME_ASSIGN_OR_RETURN(const bool arrived,
                           control_->receive(stream, peer, tag, &notice, sizeof(notice)));
  if (!arrived) return false;
  if (notice.bytes != bytes)
    return Error(invalidArgument(fmt::format("rank {} receives {} bytes, rank {} sends {}", rank(),
                                             bytes, peer, notice.bytes)));
  TRIREME_RETURN_IF_ERROR(rank_.waitForHandle(notice.event, stream));
  TRIREME_RETURN_IF_ERROR(rank_.copy(data, notice.data, bytes, stream));
  TRIREME_ASSIGN_OR_RETURN(answer.event, recordEvent(stream));
  TRIREME_RETURN_IF_ERROR(control_->publish(stream, peer, tag, &answer, sizeof(answer)));
  return true;
}

}  // namespace trireme::runtime::cuda
