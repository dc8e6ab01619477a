#include "tests/support/emulated_nccl.h"

#include <arpa/inet.h>

#include <cstring>
#include <optional>
#include <span>

#include "runtime/comm/reduce.h"

namespace trireme::testing {
namespace {

namespace cuda = runtime::cuda;

EmulatedNccl* currentNccl = nullptr;
constexpr int kInvalidUsage = 5;

std::optional<DType> typeOf(int type) {
  for (const DType known : {DType::kF64, DType::kF32, DType::kBf16, DType::kF16, DType::kI32})
    if (cuda::ncclType(known).value_or(-1) == type) return known;
  return std::nullopt;
}

// What the members give to one collective.
struct Parts {
  NcclCall call = NcclCall::kAllReduce;
  size_t count = 0;
  int type = 0, op = 0;
  std::vector<const void*> from;
  std::vector<void*> to;
};

const char* nameOf(NcclCall call) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "send",
                                    "receive"};
  return kNames[static_cast<size_t>(call)];
}

const char* bytesAt(const void* base, size_t bytes) {
  return static_cast<const char*>(base) + bytes;
}

void perform(const Parts& parts, DType type) {
  const size_t n = parts.from.size(), bytes = parts.count * static_cast<size_t>(byteSize(type));
  const auto op = parts.op == cuda::kNcclSum ? program::ReduceOp::kSum : program::ReduceOp::kMax;
  const auto count = static_cast<int64_t>(parts.count);
  if (parts.call == NcclCall::kAllReduce)
    return runtime::reduceElements(type, op, parts.from, parts.to, 0, count);
  for (size_t i = 0; i < n; ++i) {
    if (parts.call == NcclCall::kAllGather) {
      for (size_t j = 0; j < n; ++j)
        std::memmove(static_cast<char*>(parts.to[i]) + j * bytes, parts.from[j], bytes);
      continue;
    }
    std::vector<const void*> inputs;
    for (const void* from : parts.from) inputs.push_back(bytesAt(from, i * bytes));
    runtime::reduceElements(type, op, inputs, std::span<void* const>(&parts.to[i], 1), 0, count);
  }
}

}  // namespace

// The functions of the table. All state is guarded by the GPU's mutex.
struct EmulatedNcclTable {
  using Comm = EmulatedNccl::Comm;
  using Clique = EmulatedNccl::Clique;
  using Meeting = EmulatedGpu::Meeting;
  using Lock = std::lock_guard<std::mutex>;
  static EmulatedNccl& nccl() { return *currentNccl; }
  static EmulatedGpu& gpu() { return *EmulatedGpu::instance(); }
  static std::mutex& mutex() { return gpu().mutex_; }

  static Comm* find(void* handle) {
    const auto found = nccl().comms_.find(handle);
    return found == nccl().comms_.end() ? nullptr : found->second.get();
  }
  static int misuse(const char* what) {
    gpu().fault(std::string("NCCL: ") + what);
    return kInvalidUsage;
  }
  // Done at once, or when asked again.
  static int answer(Comm& comm) {
    comm.pending = nccl().random_() % 4 == 0;
    return comm.pending ? cuda::kNcclInProgress : cuda::kNcclSuccess;
  }

  static int version(int* version) {
    *version = nccl().options_.version;
    return 0;
  }
  static int uniqueId(cuda::NcclId* id) {
    const Lock lock(mutex());
    *id = {};
    const int64_t number = ++nccl().numIds_;
    std::memcpy(id->bytes, &number, sizeof(number));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(kEmulatedNcclPort);
    inet_pton(AF_INET, kEmulatedNcclHost, &address.sin_addr);
    std::memcpy(id->bytes + sizeof(number), &address, sizeof(address));
    return 0;
  }
  static int create(void** handle, int numRanks, cuda::NcclId id, int rank,
                    cuda::NcclConfig* config) {
    const Lock lock(mutex());
    int64_t number = 0;
    std::memcpy(&number, id.bytes, sizeof(number));
    if (number < 1 || number > nccl().numIds_) return misuse("an id that nobody made");
    if (config->blocking != 0) return misuse("a communicator that blocks");
    auto& clique = nccl().cliques_[number];
    if (clique == nullptr) {
      clique = std::make_shared<Clique>();
      clique->size = numRanks;
      clique->threads.resize(static_cast<size_t>(numRanks));
    }
    auto comm = std::make_unique<Comm>();
    *handle = comm.get();
    comm->clique = clique;
    comm->rank = rank;
    comm->pending = true;
    if (clique->size != numRanks || rank < 0 || rank >= numRanks || clique->members.contains(rank))
      return misuse("members that disagree about their communicator");
    clique->members[rank] = comm.get();
    clique->threads[static_cast<size_t>(rank)] = std::this_thread::get_id();
    nccl().comms_[*handle] = std::move(comm);
    ++nccl().numCreated_;
    return cuda::kNcclInProgress;
  }
  static int asyncError(void* handle, int* result) {
    const Lock lock(mutex());
    Comm* comm = find(handle);
    if (comm == nullptr) return misuse("no such communicator to ask");
    const Clique& clique = *comm->clique;
    const NcclMeeting meeting = nccl().options_.meeting;
    if (meeting != NcclMeeting::kSucceeds) {
      *result = meeting == NcclMeeting::kFails ? cuda::kNcclRemoteError : cuda::kNcclInProgress;
      return 0;
    }
    if ((std::ssize(clique.members) == clique.size && !isConnecting(*comm)) || comm->ending)
      comm->pending = false;
    *result = comm->pending   ? cuda::kNcclInProgress
              : clique.failed ? cuda::kNcclRemoteError
                              : cuda::kNcclSuccess;
    return 0;
  }
  static int finalize(void* handle) {
    const Lock lock(mutex());
    Comm* comm = find(handle);
    if (comm == nullptr || comm->pending) return misuse("the end of no communicator");
    comm->ending = true;
    return answer(*comm);
  }
  static int destroy(void* handle) {
    const Lock lock(mutex());
    Comm* comm = find(handle);
    if (comm == nullptr || comm->pending || !comm->ending)
      return misuse("a communicator destroyed before its end");
    nccl().comms_.erase(handle);
    return 0;
  }
  // All that the streams wait for here is over, and its data are undefined. Like NCCL it returns
  // when that has left the streams of this rank, where others' work may be in front of it.
  static int abort(void* handle) {
    std::set<void*> streams;
    std::shared_ptr<Clique> clique;
    {
      const Lock lock(mutex());
      Comm* comm = find(handle);
      if (comm == nullptr) return misuse("no such communicator to abort");
      clique = comm->clique;
      streams = comm->streams;
      for (auto& [pair, meetings] : clique->meetings)
        for (auto& meeting : meetings) meeting->done = true;
      clique->failed = true;
      ++nccl().numAborted_;
      nccl().comms_.erase(handle);
      ++nccl().numAborting_;
    }
    while (!hasLeft(*clique, streams)) std::this_thread::yield();
    const Lock lock(mutex());
    --nccl().numAborting_;
    return 0;
  }
  // Or there is nobody to wait for it.
  static bool hasLeft(const Clique& clique, const std::set<void*>& streams) {
    const Lock lock(mutex());
    gpu().turn();
    if (nccl().isEnding_) return true;
    for (void* handle : streams)
      if (const auto stream = gpu().streams_.find(handle); stream != gpu().streams_.end())
        for (const EmulatedGpu::Work& work : stream->second->queue)
          for (const auto& [pair, meetings] : clique.meetings)
            for (const auto& meeting : meetings)
              if (work.meeting == meeting) return false;
    return true;
  }

  static std::shared_ptr<Meeting> next(Comm& comm, std::pair<int, int> pair, int size) {
    auto& meetings = comm.clique->meetings[pair];
    const size_t index = comm.next[pair]++;
    if (index == meetings.size()) {
      meetings.push_back(std::make_shared<Meeting>());
      meetings.back()->size = size;
      meetings.back()->done = comm.clique->failed;
    }
    return meetings[index];
  }
  static int enqueue(Comm& comm, const std::shared_ptr<Meeting>& meeting, void* stream,
                     const EmulatedTask& task, RecordedCall call, std::pair<int, int> pair) {
    call.members = comm.clique->threads;
    call.stream = stream;
    comm.streams.insert(stream);
    nccl().calls_[std::this_thread::get_id()].push_back(std::move(call));
    if (nccl().numCalls_++ == nccl().options_.failsAtCall) comm.clique->failed = true;
    EmulatedGpu::Work work;
    work.meeting = meeting;
    work.seconds = gpu().secondsOf(task);
    if (const int error = gpu().enqueue(stream, std::move(work)); error != 0) return error;
    if (nccl().options_.connectsLate && comm.clique->came[pair].insert(comm.rank).second) {
      comm.connects = pair;
      comm.pending = true;
      return cuda::kNcclInProgress;
    }
    return answer(comm);
  }
  // Whether the others of its first call are still to come.
  static bool isConnecting(const Comm& comm) {
    if (comm.connects.first < -1) return false;
    const int need = comm.connects.first < 0 ? comm.clique->size : 2;
    return std::ssize(comm.clique->came.at(comm.connects)) < need && !comm.clique->failed;
  }

  static int collective(void* handle, void* stream, const void* from, void* to, Parts call) {
    const Lock lock(mutex());
    Comm* comm = find(handle);
    if (comm == nullptr || comm->pending) return misuse("a call while another is in progress");
    const std::optional<DType> type = typeOf(call.type);
    if (!type) return misuse("a type that is not one");
    const auto n = static_cast<size_t>(comm->clique->size), self = static_cast<size_t>(comm->rank);
    const size_t part = call.count * static_cast<size_t>(byteSize(*type));
    const size_t input = call.call == NcclCall::kReduceScatter ? n * part : part;
    const size_t output = call.call == NcclCall::kAllGather ? n * part : part;
    if (!gpu().isAllocated(from, input) || !gpu().isAllocated(to, output))
      return misuse("memory that is not allocated");
    const bool apart = bytesAt(from, input) <= to || bytesAt(to, output) <= from;
    const void* place = call.call == NcclCall::kAllReduce       ? from
                        : call.call == NcclCall::kReduceScatter ? bytesAt(from, self * part)
                                                                : from;
    const void* target = call.call == NcclCall::kAllGather ? bytesAt(to, self * part) : to;
    if (!apart && place != target) return misuse("buffers that overlap");
    const std::shared_ptr<Meeting> meeting = next(*comm, {-1, -1}, comm->clique->size);
    if (meeting->parts == nullptr) {
      auto first = std::make_shared<Parts>(call);
      first->from.resize(n);
      first->to.resize(n);
      meeting->parts = first;
    }
    const auto parts = std::static_pointer_cast<Parts>(meeting->parts);
    if (parts->call != call.call || parts->count != call.count || parts->type != call.type ||
        parts->op != call.op)
      return misuse("members that call different collectives");
    parts->from[self] = from;
    parts->to[self] = to;
    if (meeting->run == nullptr)
      meeting->run = [parts, type = *type, idle = gpu().options_.isIdle] {
        if (!idle) perform(*parts, type);
      };
    const EmulatedTask task{.name = nameOf(call.call),
                            .bytes = static_cast<double>(std::max(input, output)),
                            .members = comm->clique->size};
    return enqueue(*comm, meeting, stream, task,
                   {call.call, call.count, call.type, call.op, {}, {}, {}}, {-1, -1});
  }

  static int allReduce(const void* from, void* to, size_t count, int type, int op, void* comm,
                       void* stream) {
    return collective(comm, stream, from, to, {NcclCall::kAllReduce, count, type, op, {}, {}});
  }
  static int reduceScatter(const void* from, void* to, size_t count, int type, int op, void* comm,
                           void* stream) {
    return collective(comm, stream, from, to, {NcclCall::kReduceScatter, count, type, op, {}, {}});
  }
  static int allGather(const void* from, void* to, size_t count, int type, void* comm,
                       void* stream) {
    return collective(comm, stream, from, to,
                      {NcclCall::kAllGather, count, type, cuda::kNcclSum, {}, {}});
  }

  struct Message {
    const void* from = nullptr;
    void* to = nullptr;
    size_t sent = 0, received = 0;
  };
  static int message(void* handle, void* stream, NcclCall call, void* data, size_t count, int type,
                     int peer) {
    const Lock lock(mutex());
    Comm* comm = find(handle);
    if (comm == nullptr || comm->pending) return misuse("a call while another is in progress");
    if (peer < 0 || peer >= comm->clique->size || peer == comm->rank)
      return misuse("a message to nobody");
    if (type != cuda::kNcclInt8 || !gpu().isAllocated(data, count))
      return misuse("memory that is not allocated");
    const bool sends = call == NcclCall::kSend;
    const auto pair = sends ? std::pair{comm->rank, peer} : std::pair{peer, comm->rank};
    const std::shared_ptr<Meeting> meeting = next(*comm, pair, 2);
    if (meeting->parts == nullptr) {
      const auto first = std::make_shared<Message>();
      meeting->parts = first;
      meeting->run = [first] {
        if (first->sent != first->received)
          misuse("a message of another size");
        else
          std::memcpy(first->to, first->from, first->sent);
      };
    }
    const auto message = std::static_pointer_cast<Message>(meeting->parts);
    (sends ? message->sent : message->received) = count;
    if (sends)
      message->from = data;
    else
      message->to = data;
    const auto peerThread = comm->clique->threads[static_cast<size_t>(peer)];
    const EmulatedTask task{
        .name = nameOf(call), .bytes = static_cast<double>(count), .members = 2};
    return enqueue(*comm, meeting, stream, task, {call, count, type, 0, {}, peerThread, {}}, pair);
  }
  static int send(const void* from, size_t count, int type, int peer, void* comm, void* stream) {
    return message(comm, stream, NcclCall::kSend, const_cast<void*>(from), count, type, peer);
  }
  static int receive(void* to, size_t count, int type, int peer, void* comm, void* stream) {
    return message(comm, stream, NcclCall::kReceive, to, count, type, peer);
  }
};

EmulatedNccl::EmulatedNccl(const EmulatedNcclOptions& options)
    : options_(options), random_(options.seed) {
  TRIREME_CHECK(currentNccl == nullptr);
  currentNccl = this;
}
// Aborts that a GPU which hangs holds up end now.
EmulatedNccl::~EmulatedNccl() {
  std::unique_lock lock(EmulatedNcclTable::mutex());
  isEnding_ = true;
  while (numAborting_ > 0) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  currentNccl = nullptr;
}

const cuda::NcclApi& EmulatedNccl::api() const {
  static const cuda::NcclApi table = [] {
    cuda::NcclApi api;
#define TRIREME_FILL(field, symbol, parameters) api.field = EmulatedNcclTable::field;
    TRIREME_NCCL_FUNCTIONS(TRIREME_FILL)
#undef TRIREME_FILL
    api.errorString = [](int result) {
      return result == cuda::kNcclRemoteError ? "remote process exited or there was a network error"
                                              : "emulated error";
    };
    api.lastError = [](void*) {
      const bool fails = currentNccl->options_.meeting == NcclMeeting::kFails;
      return fails ? "Connect to 10.20.30.40<50607> failed : No route to host" : "";
    };
    return api;
  }();
  return table;
}

int64_t EmulatedNccl::numCreated() const {
  const std::lock_guard lock(EmulatedNcclTable::mutex());
  return numCreated_;
}
int64_t EmulatedNccl::numLive() const {
  const std::lock_guard lock(EmulatedNcclTable::mutex());
  return std::ssize(comms_);
}
int64_t EmulatedNccl::numAborted() const {
  const std::lock_guard lock(EmulatedNcclTable::mutex());
  return numAborted_;
}
std::map<std::thread::id, std::vector<RecordedCall>> EmulatedNccl::calls() const {
  const std::lock_guard lock(EmulatedNcclTable::mutex());
  return calls_;
}

}  // namespace trireme::testing
