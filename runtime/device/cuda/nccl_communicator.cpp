#include "runtime/device/cuda/nccl_communicator.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "ir/base/format.h"
#include "ir/program/gpu_memory.h"

namespace trireme::runtime::cuda {

using program::Clique;
using program::ReduceOp;
using program::Stream;

namespace {

// To ask why a world has failed: its waits say so.
class Never final : public Condition {
 public:
  explicit Never(int32_t awaited) : awaited_(awaited) {}
  bool ready() override { return false; }
  int32_t awaitedRank() override { return awaited_; }

 private:
  int32_t awaited_;
};

char* at(const void* base, int64_t bytes) {
  return const_cast<char*>(static_cast<const char*>(base)) + bytes;
}

int32_t indexOf(const std::vector<int32_t>& ranks, int32_t rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int32_t>(found - ranks.begin());
}

// Where the first member of a clique waits for the others: an id is 8 bytes that tell it from
// others, then the address (NVIDIA/nccl, src/include/bootstrap.h, struct ncclBootstrapHandle).
// Empty if it is not so.
std::string meetingPlace(const NcclId& id) {
  sockaddr_storage address{};
  std::memcpy(&address, id.bytes + 8, sizeof(sockaddr_in6));
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const bool isFour = address.ss_family == AF_INET;
  if (!isFour && address.ss_family != AF_INET6) return "";
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address),
                  isFour ? sizeof(sockaddr_in) : sizeof(sockaddr_in6), host, sizeof(host), port,
                  sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "";
  return isFour ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

// The driver reads it when it starts. Streams of one connection wait for each other: a send that
// waits for its receiver holds up what the receiver waits for. NCCL has two streams more for every
// communicator, so that it takes all that there can be.
Status checkConnections() {
  const char* text = std::getenv(kConnectionsVariable);
  if (text == nullptr || text == std::to_string(kMaxConnections)) return {};
  return invalidArgument(fmt::format(
      "{} is {}: a rank has {} streams, and NCCL has more, none of which may wait for another; "
      "expected {}; nearest: unset it",
      kConnectionsVariable, text, program::kNumStreams, kMaxConnections));
}

}  // namespace

Result<std::unique_ptr<NcclCommunicator>> NcclCommunicator::create(
    CudaRank& rank, std::unique_ptr<Communicator> control, const NcclApi& api,
    double timeoutSeconds) {
  std::unique_ptr<NcclCommunicator> comm(
      new NcclCommunicator(rank, std::move(control), api, timeoutSeconds));
  if (Status status = comm->open(); !status.ok()) {
    comm->fail(status);
    return Error(status);
  }
  return comm;
}

// In one order on all ranks, one after the other: none waits for a rank that waits for another.
Status NcclCommunicator::open() {
  const program::Program& program = *rank_.program().program;
  TRIREME_RETURN_IF_ERROR(checkNcclVersion(api_));
  TRIREME_RETURN_IF_ERROR(checkConnections());
  TRIREME_ASSIGN_OR_RETURN(const std::vector<Clique> cliques, program::cliquesOf(program));
  TRIREME_ASSIGN_OR_RETURN(const std::vector<NcclId> ids, exchangeIds(cliques));
  for (size_t i = 0; i < cliques.size(); ++i)
    if (indexOf(cliques[i].ranks, rank()) >= 0)
      TRIREME_RETURN_IF_ERROR(openChannel(cliques[i], ids[i]));
  ofGroup_.resize(program.groups.size());
  return connectMessages();
}

// NCCL connects a sender and a receiver in their first call, for which it takes memory and waits
// for both: here, not within a step. The bytes may arrive later.
Status NcclCommunicator::connectMessages() {
  TRIREME_ASSIGN_OR_RETURN(char* const bytes, rank_.block(2, "what connects messages"));
  for (const Channel& channel : channels_) {
    const bool forward = channel.clique.lane == program::Lane::kForward;
    if (!forward && channel.clique.lane != program::Lane::kBackward) continue;
    const int32_t peer = channel.clique.ranks[channel.index == 0 ? 1 : 0];
    if (channel.index == 0) {
      const Stream stream = forward ? Stream::kSendForward : Stream::kSendBackward;
      TRIREME_RETURN_IF_ERROR(publish(stream, peer, {}, bytes, 1));
    } else {
      const Stream stream = forward ? Stream::kRecvForward : Stream::kRecvBackward;
      TRIREME_ASSIGN_OR_RETURN([[maybe_unused]] const bool received,
                               receive(stream, peer, {}, bytes + 1, 1));
    }
  }
  return {};
}

// The first member of a clique makes its id.
Result<std::vector<NcclId>> NcclCommunicator::exchangeIds(const std::vector<Clique>& cliques) {
  std::string mine;
  for (const Clique& clique : cliques) {
    if (clique.ranks.front() != rank()) continue;
    NcclId id;
    if (const int result = api_.uniqueId(&id); result != kNcclSuccess)
      return Error(unavailable(
          fmt::format("rank {}: NCCL cannot make an id: {}", rank(), describe(result, nullptr))));
    mine.append(id.bytes, sizeof(id.bytes));
  }
  TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> all, control_->exchange(mine));
  std::vector<NcclId> ids;
  std::vector<size_t> used(all.size(), 0);
  for (const Clique& clique : cliques) {
    const auto maker = static_cast<size_t>(clique.ranks.front());
    if (maker >= all.size() || all[maker].size() < used[maker] + sizeof(NcclId))
      return Error(invalidArgument(fmt::format("rank {} made no id for {}: it has another program",
                                               maker, program::describe(clique))));
    std::memcpy(ids.emplace_back().bytes, all[maker].data() + used[maker], sizeof(NcclId));
    used[maker] += sizeof(NcclId);
  }
  return ids;
}

Status NcclCommunicator::openChannel(const Clique& clique, const NcclId& id) {
  Channel& channel = channels_.emplace_back();
  channel.clique = clique;
  channel.index = indexOf(clique.ranks, rank());
  NcclConfig config;
  config.maxCtas = static_cast<int>(program::mostChannels(clique.lane));
  const int result =
      api_.create(&channel.comm, static_cast<int>(clique.ranks.size()), id, channel.index, &config);
  constexpr double kPatience = 5;  // there are many, and they meet one after the other
  const Status status = settle(channel, result, "meeting", kPatience);
  if (status.ok()) return status;
  std::string where, memory;
  if (const std::string place = meetingPlace(id); !place.empty())
    where =
        fmt::format("; rank {} waits for the others at {} (NCCL_SOCKET_IFNAME names interfaces)",
                    clique.ranks.front(), place);
  if (const Result<int64_t> free = rank_.gpu().freeBytes(); free.has_value())
    memory = fmt::format("; of the GPU's memory, in which NCCL has its buffers, {} are free",
                         formatBytes(Bytes(static_cast<double>(*free))));
  return unavailable(status.message() + where + memory);
}

NcclCommunicator::~NcclCommunicator() {
  if (aborted_ || rank_.gpu().isAbandoned() || !rank_.gpu().makeCurrent().ok()) return;
  for (Channel& channel : channels_) {
    if (channel.comm == nullptr) continue;
    if (failed() || !settle(channel, api_.finalize(channel.comm), "ending").ok()) {
      abort();
      return;
    }
    static_cast<void>(api_.destroy(channel.comm));
    channel.comm = nullptr;
  }
}

// NCCL ends what the one communicator does, and returns when that has left its stream, where it may
// stand behind what another does that waits for a peer: so all are told at the same time. A stream
// that something else holds up keeps them for ever.
void NcclCommunicator::abort() {
  if (aborted_ || rank_.gpu().isAbandoned()) return;
  aborted_ = true;
  constexpr double kMostSeconds = 10;
  const auto left = std::make_shared<std::atomic<int>>(0);
  for (Channel& channel : channels_) {
    if (channel.comm == nullptr) continue;
    ++*left;
    std::thread([left, abort = api_.abort, comm = channel.comm] {
      static_cast<void>(abort(comm));
      --*left;
    }).detach();
    channel.comm = nullptr;
  }
  const auto start = std::chrono::steady_clock::now();
  while (*left > 0) {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (waited.count() > std::min(timeoutSeconds_, kMostSeconds)) return rank_.gpu().abandon();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void NcclCommunicator::fail(const Status& reason) {
  control_->fail(reason);
  abort();
}

Status NcclCommunicator::lost(int32_t awaited) {
  Never never(awaited);
  control_->setProgress(nullptr);  // which would ask for more
  const Status status = control_->wait(never);
  control_->setProgress(progress_);
  abort();
  return status;
}

// What the call says, and what NCCL's log would: of which driver or network, for one.
std::string NcclCommunicator::describe(int result, NcclHandle comm) const {
  const char* last = api_.lastError(comm);
  const std::string text = api_.errorString(result);
  return last == nullptr || *last == '\0' ? text : fmt::format("{}; {}", text, last);
}

// NCCL may know before the others have said why: their news is on its way.
Status NcclCommunicator::failureOf(const Channel& channel, int result, const char* what) {
  constexpr auto kMoment = std::chrono::seconds(1);
  const Status status = unavailable(fmt::format("rank {}, NCCL of {}, {}: {}", rank(),
                                                program::describe(channel.clique), what,
                                                describe(result, channel.comm)));
  const auto start = std::chrono::steady_clock::now();
  while (!failed() && std::chrono::steady_clock::now() - start < kMoment)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!failed()) return status;
  return unavailable(fmt::format("{}; {}", status.message(), lost(-1).message()));
}

// Most calls are done within some microseconds, of which a sleep would make a hundred.
Status NcclCommunicator::settle(Channel& channel, int result, const char* what, double patience) {
  constexpr auto kPause = std::chrono::microseconds(20);
  constexpr double kSpinSeconds = 500e-6;
  const auto start = std::chrono::steady_clock::now();
  const int32_t peer =
      channel.clique.ranks.size() == 2 ? channel.clique.ranks[channel.index == 0 ? 1 : 0] : -1;
  while (result == kNcclInProgress) {
    if (failed()) return lost(peer);
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    const double limit = patience * timeoutSeconds_;
    if (waited.count() > limit)
      return unavailable(fmt::format("rank {}, NCCL of {}, {}: no answer of the others in {:.3g} s",
                                     rank(), program::describe(channel.clique), what, limit));
    int state = kNcclSuccess;
    result = api_.asyncError(channel.comm, &state);
    if (result == kNcclSuccess) result = state;
    if (result != kNcclInProgress) break;
    if (waited.count() < kSpinSeconds)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kPause);
  }
  return result == kNcclSuccess ? Status() : failureOf(channel, result, what);
}

Status NcclCommunicator::poll() {
  if (aborted_) return unavailable(fmt::format("rank {}: NCCL was given up", rank()));
  if (failed()) return lost(-1);
  for (Channel& channel : channels_) {
    int state = kNcclSuccess;
    const int result = api_.asyncError(channel.comm, &state);
    const int error = result != kNcclSuccess ? result : state;
    if (error == kNcclSuccess || error == kNcclInProgress) continue;
    const Status status = failureOf(channel, error, "waiting for the others");
    abort();
    return status;
  }
  return {};
}

Result<NcclCommunicator::Channel*> NcclCommunicator::channelOf(const Clique& clique) {
  if (aborted_) return Error(unavailable(fmt::format("rank {}: NCCL was given up", rank())));
  for (Channel& channel : channels_)
    if (channel.clique == clique) return &channel;
  return Error(internalError(fmt::format("rank {}: nobody made NCCL's communicator of {}", rank(),
                                         program::describe(clique))));
}

Result<NcclCommunicator::Channel*> NcclCommunicator::channelOf(GroupCall with) {
  const program::Program& program = *rank_.program().program;
  const std::vector<int32_t>& ranks = program.groups[static_cast<size_t>(with.group)].ranks;
  if (indexOf(ranks, rank()) < 0)
    return Error(
        invalidArgument(fmt::format("rank {} is not a member of group {}", rank(), with.group)));
  if (ranks.size() == 1) return nullptr;
  const program::Lane lane =
      program::laneOf(with.stream, program.groups[static_cast<size_t>(with.group)].kind);
  Channel*& known = ofGroup_[static_cast<size_t>(with.group)][static_cast<size_t>(lane)];
  if (known == nullptr || aborted_) {
    TRIREME_ASSIGN_OR_RETURN(known, channelOf(Clique{lane, ranks}));
  }
  return known;
}

Status NcclCommunicator::allReduce(GroupCall with, void* data, int64_t count, DType type,
                                   ReduceOp op) {
  TRIREME_ASSIGN_OR_RETURN(Channel * channel, channelOf(with));
  TRIREME_ASSIGN_OR_RETURN(const int numbers, ncclType(type));
  if (channel == nullptr) return {};
  return settle(*channel,
                api_.allReduce(data, data, static_cast<size_t>(count), numbers, ncclOp(op),
                               channel->comm, rank_.stream(with.stream)),
                "all_reduce");
}

// NCCL takes `mine` apart from `all`, or at its place in it.
Status NcclCommunicator::reduceScatter(GroupCall with, void* all, void* mine, int64_t count,
                                       DType type, ReduceOp op) {
  TRIREME_ASSIGN_OR_RETURN(Channel * channel, channelOf(with));
  TRIREME_ASSIGN_OR_RETURN(const int numbers, ncclType(type));
  const int64_t bytes = count * byteSize(type);
  if (channel == nullptr) return rank_.move(mine, all, bytes, with.stream);
  const int64_t total = std::ssize(channel->clique.ranks) * bytes;
  const bool overlaps = mine < at(all, total) && all < at(mine, bytes);
  void* target = overlaps ? at(all, channel->index * bytes) : mine;
  TRIREME_RETURN_IF_ERROR(
      settle(*channel,
             api_.reduceScatter(all, target, static_cast<size_t>(count), numbers, ncclOp(op),
                                channel->comm, rank_.stream(with.stream)),
             "reduce_scatter"));
  return rank_.move(mine, target, bytes, with.stream);
}

Status NcclCommunicator::allGather(GroupCall with, const void* mine, void* all, int64_t count,
                                   DType type) {
  TRIREME_ASSIGN_OR_RETURN(Channel * channel, channelOf(with));
  const int64_t bytes = count * byteSize(type);
  if (channel == nullptr) return rank_.move(all, mine, bytes, with.stream);
  void* slice = at(all, channel->index * bytes);
  TRIREME_RETURN_IF_ERROR(rank_.move(slice, mine, bytes, with.stream));
  TRIREME_ASSIGN_OR_RETURN(const int numbers, ncclType(type));
  return settle(*channel,
                api_.allGather(slice, all, static_cast<size_t>(count), numbers, channel->comm,
                               rank_.stream(with.stream)),
                "all_gather");
}

Status NcclCommunicator::publish(Stream stream, int32_t peer, const MessageTag&, const void* data,
                                 int64_t bytes) {
  TRIREME_ASSIGN_OR_RETURN(Channel * channel,
                           channelOf(Clique{program::laneOf(stream), {rank(), peer}}));
  return settle(*channel,
                api_.send(data, static_cast<size_t>(bytes), kNcclInt8, 1, channel->comm,
                          rank_.stream(stream)),
                "send");
}

Result<bool> NcclCommunicator::receive(Stream stream, int32_t peer, const MessageTag&, void* data,
                                       int64_t bytes) {
  TRIREME_ASSIGN_OR_RETURN(Channel * channel,
                           channelOf(Clique{program::laneOf(stream), {peer, rank()}}));
  TRIREME_RETURN_IF_ERROR(settle(*channel,
                                 api_.receive(data, static_cast<size_t>(bytes), kNcclInt8, 0,
                                              channel->comm, rank_.stream(stream)),
                                 "recv"));
  return true;
}

}  // namespace trireme::runtime::cuda
