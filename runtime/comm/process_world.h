// Ranks that are processes, one each, on one machine or on many: connections between them, and what
// each says to all. A thread of its own reads and writes, so a rank that computes hears at once
// that another has failed, and the others hear that it is alive.
//
// Every process is connected with rank 0, which passes on what concerns all; connect() adds
// connections to those that this rank exchanges tensors with.
//
// A process that ends without a goodbye has failed: whoever is connected with it says so to all
// others. So does one of whose machine nothing is heard for a minute or twice the timeout.
#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "runtime/comm/doorbell.h"
#include "runtime/comm/launch.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/comm/timeout.h"
#include "runtime/comm/world.h"

namespace trireme::runtime {

class ProcessWorld final : public World {
 public:
  // Meets the others. Errors: those of meet() in rendezvous.h; kInvalidArgument: a bad timeout.
  static Result<std::unique_ptr<ProcessWorld>> join(const Launch& launch, double timeoutSeconds);
  // Takes leave: the others learn that this process ends, and whether all is well.
  ~ProcessWorld() override;

  int32_t rank() const { return launch_.rank; }
  int32_t numProcesses() const { return launch_.numProcesses; }
  const Launch& launch() const { return launch_; }

  // Before the first communicator: the groups of the program, the ranks that this one exchanges
  // tensors with, and the largest of these, in bytes. All processes call it together.
  // kUnavailable: one cannot be reached.
  Status connect(std::vector<std::vector<int32_t>> groups, const std::set<int32_t>& peers,
                 uint64_t largest);
  std::unique_ptr<Communicator> communicator(int32_t rank) override;

  bool failed() const override { return failed_.load(std::memory_order_acquire); }
  Status failure() const override;
  int32_t failedRank() const override;
  void fail(int32_t rank, const Status& reason) override;
  // How this rank ends where another has failed: names both.
  Status gaveUp() const { return unavailable(-1, "gave up"); }

  // What every rank says, in rank order: all call it together, for as long as all are alive, or, if
  // `inTime`, until the timeout. At most 64 KiB each. kUnavailable: a rank failed.
  Result<std::vector<std::string>> exchange(const std::string& mine, bool inTime);
  // Bytes between rank 0 and another; send() returns when they are on their way, which begins when
  // the other asks for them. kUnavailable: a rank failed.
  Status send(int32_t peer, const std::string& bytes);
  Result<std::string> receive(int32_t peer);
  // All are done, and all went well. kUnavailable: it did not.
  Status finish();

 private:
  friend class ProcessCommunicator;
  using Kind = wire::Kind;

  // What somebody has handed over to be sent, as often as it counts; guarded by the mutex.
  struct Ticket {
    int pending = 0;
  };
  struct Outgoing {
    std::string head;  // header, and what comes before the data
    const char* data = nullptr;
    size_t bytes = 0;
    size_t written = 0;
    std::string kept;  // `data`, once the one it belongs to is not to be relied on
    Ticket* ticket = nullptr;
  };
  struct Peer {
    int32_t rank = -1;
    Socket socket;
    std::deque<Outgoing> out;
    wire::HeaderBytes header{};
    size_t headerRead = 0;
    wire::Header incoming;
    std::string body;
    size_t bodyRead = 0;
    Clock::time_point spoken;
    WaitClock unheard;
    bool goodbye = false;
    bool writesNoMore = false;
  };
  // A message that waits for its receiver to ask for it.
  struct Outbox {
    bool full = false;
    int32_t peer = -1;
    uint64_t key = 0;
    const char* data = nullptr;
    size_t bytes = 0;
    Ticket ticket;
  };
  using Address = std::tuple<int32_t, Kind, uint64_t>;  // of what came: from whom, what

  ProcessWorld(const Launch& launch, double timeoutSeconds);
  void start(Met met);
  void addPeer(int32_t rank, Socket socket);

  // What a rank does with its peers; see ProcessCommunicator.
  void post(int32_t peer, Kind kind, uint64_t key, std::string_view prefix, const void* data,
            size_t bytes, Ticket* ticket);
  std::optional<std::string> take(int32_t peer, Kind kind, uint64_t key);
  bool hasArrived(int32_t peer, Kind kind, uint64_t key) const;
  bool isDone(const Ticket& ticket) const;
  void publish(size_t outbox, int32_t peer, uint64_t key, const void* data, size_t bytes);
  bool isSent(size_t outbox) const;
  void ask(int32_t peer, uint64_t key);
  // `limit`: nullopt for as long as all are alive.
  Status wait(Condition& condition, Progress* progress,
              std::optional<std::chrono::nanoseconds> limit);
  Status unavailable(int32_t awaited, const std::string& what) const;
  Status reasonFor(const Status& unreachable);

  // The thread's; all but serve() under the mutex.
  void serve();
  bool isOver() const;
  void wake();
  void readFrom(Peer& peer);
  bool readSome(Peer& peer);
  void handle(Peer& peer);
  void writeTo(Peer& peer);
  void keepAlive(Peer& peer);
  void takeLeave(Peer& peer);
  void lose(Peer& peer, const std::string& why);
  void queue(Peer& peer, Kind kind, uint64_t key, std::string body);
  void failLocked(int32_t rank, const Status& reason);
  void answerWish(int32_t peer, uint64_t key);

  Launch launch_;
  std::chrono::nanoseconds timeout_, silence_, heartbeat_;
  wire::Welcome welcome_;
  Socket listener_, wakeEvent_;
  std::vector<std::vector<int32_t>> groups_;
  Doorbell doorbell_;
  std::atomic<bool> failed_{false};

  mutable std::mutex mutex_;  // of all that follows
  wire::Limits limits_;
  std::map<int32_t, Peer> peers_;
  std::map<Address, std::deque<std::string>> inbox_;
  std::set<std::pair<int32_t, uint64_t>> wishes_;  // of others, for messages not published yet
  static constexpr size_t kBulkOutbox = program::kNumStreams;
  std::array<Outbox, program::kNumStreams + 1> outboxes_;
  Status failure_;
  int32_t failedRank_ = -1;
  bool finishing_ = false, closing_ = false;
  Clock::time_point leaveAt_;

  uint64_t numExchanges_ = 0;            // the main thread's
  std::map<int32_t, uint64_t> numBulk_;  // likewise, per peer
  std::thread thread_;
};

}  // namespace trireme::runtime
