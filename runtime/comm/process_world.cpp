#include "runtime/comm/process_world.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/comm/process_communicator.h"
#include "runtime/comm/timeout.h"

namespace trireme::runtime {

namespace {

constexpr uint64_t kBulkKey = uint64_t{1} << 63;  // apart from the messages of streams

// True when a function says so.
template <typename Ready, typename Awaited>
class When final : public Condition {
 public:
  When(Ready ready, Awaited awaited) : ready_(std::move(ready)), awaited_(std::move(awaited)) {}
  bool ready() override { return ready_(); }
  int32_t awaitedRank() override { return awaited_(); }

 private:
  Ready ready_;
  Awaited awaited_;
};

}  // namespace

ProcessWorld::ProcessWorld(const Launch& launch, double timeoutSeconds)
    : launch_(launch),
      timeout_(timeoutOf(timeoutSeconds)),
      silence_(timeoutOf(std::max(60.0, 2 * timeoutSeconds))),
      heartbeat_(std::chrono::seconds(1)),
      wakeEvent_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  limits_.numProcesses = launch.numProcesses;
}

Result<std::unique_ptr<ProcessWorld>> ProcessWorld::join(const Launch& launch,
                                                         double timeoutSeconds) {
  TRIREME_RETURN_IF_ERROR(checkTimeout(timeoutSeconds));
  TRIREME_ASSIGN_OR_RETURN(Met met, meet(launch, std::chrono::duration<double>(timeoutSeconds)));
  std::unique_ptr<ProcessWorld> world(new ProcessWorld(launch, timeoutSeconds));
  if (!world->wakeEvent_.isOpen()) return Error(resourceExhausted("no file handles are left"));
  world->start(std::move(met));
  return world;
}

void ProcessWorld::start(Met met) {
  welcome_ = std::move(met.welcome);
  listener_ = std::move(met.listener);
  for (auto& [rank, socket] : met.sockets) addPeer(rank, std::move(socket));
  thread_ = std::thread([this] { serve(); });
}

ProcessWorld::~ProcessWorld() {
  constexpr auto kPatience = std::chrono::seconds(5);
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!finishing_ && failure_.ok())
      failLocked(launch_.rank, trireme::unavailable("it ended before the run did"));
    closing_ = true;
    leaveAt_ = Clock::now() + kPatience;
    for (auto& [rank, peer] : peers_)
      if (failure_.ok()) queue(peer, Kind::kGoodbye, 0, "");
  }
  wake();
  thread_.join();
}

void ProcessWorld::addPeer(int32_t rank, Socket socket) {
  const std::lock_guard lock(mutex_);
  Peer& peer = peers_[rank];
  peer.rank = rank;
  peer.socket = std::move(socket);
  peer.spoken = Clock::now();
  peer.unheard.restart();
}

// The higher rank calls the lower. Calls do not wait for each other: a listener takes them in
// before anybody lets them in.
Status ProcessWorld::connect(std::vector<std::vector<int32_t>> groups,
                             const std::set<int32_t>& peers, uint64_t largest) {
  constexpr uint64_t kDescription = 64;  // before the data
  groups_ = std::move(groups);
  {
    const std::lock_guard lock(mutex_);
    limits_.messageBytes = largest + kDescription;
  }
  const auto deadline = Clock::now() + timeout_;
  std::vector<int32_t> expected;
  for (const int32_t peer : peers) {
    if (peer == rank() || peer == 0 || rank() == 0) continue;
    if (peer > rank()) {
      expected.push_back(peer);
      continue;
    }
    Result<Socket> socket = call(launch_, welcome_, peer, deadline);
    if (!socket.has_value()) return reasonFor(socket.error());
    addPeer(peer, *std::move(socket));
  }
  std::map<int32_t, Guest> guests;
  Lobby lobby(listener_, launch_.numProcesses, welcome_.token);
  while (guests.size() < expected.size()) {
    if (failed()) return gaveUp();
    if (Clock::now() > deadline) {
      for (const int32_t peer : expected)
        if (!guests.contains(peer)) return unavailable(peer, "it has not called");
    }
    lobby.receive(guests, expected, Milliseconds(50));
  }
  for (auto& [peer, guest] : guests) addPeer(peer, std::move(guest.socket));
  listener_.close();
  wake();
  // Nobody sends before all know how long a message may be.
  return exchange("", false).has_value() ? Status() : gaveUp();
}

// One that cannot be reached has ended: rank 0 knows why in a moment, and says it.
Status ProcessWorld::reasonFor(const Status& unreachable) {
  When news([&] { return failed(); }, [] { return -1; });
  if (!wait(news, nullptr, std::chrono::seconds(2)).ok()) return unreachable;
  return gaveUp();
}

std::unique_ptr<Communicator> ProcessWorld::communicator(int32_t) {
  return std::make_unique<ProcessCommunicator>(*this);
}

Status ProcessWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

int32_t ProcessWorld::failedRank() const {
  const std::lock_guard lock(mutex_);
  return failedRank_;
}

void ProcessWorld::fail(int32_t rank, const Status& reason) {
  {
    const std::lock_guard lock(mutex_);
    failLocked(rank, reason);
  }
  doorbell_.ring();
  wake();
}

Status ProcessWorld::unavailable(int32_t awaited, const std::string& what) const {
  const std::string self =
      awaited < 0 ? fmt::format("rank {}: {}", rank(), what)
                  : fmt::format("rank {}, waiting for rank {}: {}", rank(), awaited, what);
  if (!failed()) return trireme::unavailable(self);
  return trireme::unavailable(
      fmt::format("{} (rank {} failed: {})", self, failedRank(), failure().message()));
}

Status ProcessWorld::wait(Condition& condition, Progress* progress,
                          std::optional<std::chrono::nanoseconds> limit) {
  constexpr std::chrono::nanoseconds kLookAgain = std::chrono::seconds(1);
  WaitClock clock;
  while (true) {
    const uint32_t ticket = doorbell_.current();
    if (progress != nullptr) TRIREME_RETURN_IF_ERROR(progress->advance());
    if (condition.ready()) return {};
    if (failed()) return unavailable(condition.awaitedRank(), "gave up");
    std::chrono::nanoseconds left = kLookAgain;
    if (limit) {
      left = *limit - clock.waited();
      if (left <= std::chrono::nanoseconds::zero())
        return unavailable(
            condition.awaitedRank(),
            fmt::format("no answer in {} s", std::chrono::duration<double>(*limit).count()));
      left = std::min<std::chrono::nanoseconds>(left, WaitClock::kLook);
    }
    doorbell_.sleep(ticket, left);
  }
}

Result<std::vector<std::string>> ProcessWorld::exchange(const std::string& mine, bool inTime) {
  if (mine.size() > wire::kMaxWords)
    return Error(internalError(fmt::format("an exchange of {} bytes", mine.size())));
  const uint64_t number = ++numExchanges_;
  const auto numRanks = static_cast<size_t>(numProcesses());
  const int32_t first = rank() == 0 ? 1 : 0, end = rank() == 0 ? numProcesses() : 1;
  const Kind kind = rank() == 0 ? Kind::kSaid : Kind::kAllSaid;
  if (rank() != 0) post(0, Kind::kSaid, number, mine, nullptr, 0, nullptr);
  int32_t awaited = first;
  When arrived(
      [&] {
        while (awaited < end && hasArrived(awaited, kind, number)) ++awaited;
        return awaited == end;
      },
      [&] { return awaited; });
  TRIREME_RETURN_IF_ERROR(wait(arrived, nullptr, inTime ? std::optional(timeout_) : std::nullopt));
  if (rank() != 0) return wire::decodeWords(take(0, kind, number).value_or(""), numRanks);
  std::vector<std::string> words = {mine};
  for (int32_t peer = 1; peer < numProcesses(); ++peer)
    words.push_back(take(peer, kind, number).value_or(""));
  const std::string body = wire::encode(words);
  for (int32_t peer = 1; peer < numProcesses(); ++peer)
    post(peer, Kind::kAllSaid, number, body, nullptr, 0, nullptr);
  return words;
}

Status ProcessWorld::send(int32_t peer, const std::string& bytes) {
  publish(kBulkOutbox, peer, kBulkKey | numBulk_[peer]++, bytes.data(), bytes.size());
  When sent([&] { return isSent(kBulkOutbox); }, [&] { return peer; });
  return wait(sent, nullptr, std::nullopt);
}

Result<std::string> ProcessWorld::receive(int32_t peer) {
  const uint64_t key = kBulkKey | numBulk_[peer]++;
  ask(peer, key);
  When arrived([&] { return hasArrived(peer, Kind::kMessage, key); }, [&] { return peer; });
  TRIREME_RETURN_IF_ERROR(wait(arrived, nullptr, std::nullopt));
  return take(peer, Kind::kMessage, key).value_or("");
}

Status ProcessWorld::finish() {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = failure_.ok();
  }
  Result<std::vector<std::string>> all = exchange("", false);
  return all.has_value() ? Status() : all.error();
}

// --- What ranks ask for ---

void ProcessWorld::post(int32_t peer, Kind kind, uint64_t key, std::string_view prefix,
                        const void* data, size_t bytes, Ticket* ticket) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(peer);
    if (!failure_.ok() || found == peers_.end() || !found->second.socket.isOpen()) return;
    const wire::HeaderBytes header = wire::encode({kind, key, prefix.size() + bytes});
    Outgoing& out = found->second.out.emplace_back();
    out.head.assign(header.data(), header.size());
    out.head += prefix;
    out.data = static_cast<const char*>(data);
    out.bytes = bytes;
    out.ticket = ticket;
    if (ticket != nullptr) ++ticket->pending;
  }
  wake();
}

std::optional<std::string> ProcessWorld::take(int32_t peer, Kind kind, uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto found = inbox_.find({peer, kind, key});
  if (found == inbox_.end()) return std::nullopt;
  std::string body = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) inbox_.erase(found);
  return body;
}

bool ProcessWorld::hasArrived(int32_t peer, Kind kind, uint64_t key) const {
  const std::lock_guard lock(mutex_);
  return inbox_.contains({peer, kind, key});
}

bool ProcessWorld::isDone(const Ticket& ticket) const {
  const std::lock_guard lock(mutex_);
  return ticket.pending == 0;
}

void ProcessWorld::publish(size_t outbox, int32_t peer, uint64_t key, const void* data,
                           size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    Outbox& box = outboxes_[outbox];
    box.full = true;
    box.peer = peer;
    box.key = key;
    box.data = static_cast<const char*>(data);
    box.bytes = bytes;
    if (wishes_.erase({peer, key}) > 0) answerWish(peer, key);
  }
  wake();
}

bool ProcessWorld::isSent(size_t outbox) const {
  const std::lock_guard lock(mutex_);
  return !outboxes_[outbox].full && outboxes_[outbox].ticket.pending == 0;
}

void ProcessWorld::ask(int32_t peer, uint64_t key) {
  post(peer, Kind::kWanted, key, "", nullptr, 0, nullptr);
}

void ProcessWorld::answerWish(int32_t peer, uint64_t key) {
  for (Outbox& box : outboxes_) {
    if (!box.full || box.peer != peer || box.key != key) continue;
    box.full = false;
    const auto found = peers_.find(peer);
    if (found == peers_.end() || !failure_.ok()) return;
    const wire::HeaderBytes header = wire::encode({Kind::kMessage, key, box.bytes});
    Outgoing& out = found->second.out.emplace_back();
    out.head.assign(header.data(), header.size());
    out.data = box.data;
    out.bytes = box.bytes;
    out.ticket = &box.ticket;
    ++box.ticket.pending;
    return;
  }
  wishes_.insert({peer, key});
}

}  // namespace trireme::runtime
