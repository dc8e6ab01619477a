// The thread of a ProcessWorld: it reads what comes and writes what is asked for.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/comm/process_world.h"

namespace trireme::runtime {
namespace {

constexpr size_t kMaxWishes = size_t{1} << 16;
constexpr size_t kChunk = size_t{1} << 20;  // read at a time; a lying header costs no more memory
constexpr int kTurns = 16;                  // reads of one connection before the next has its turn

bool wouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

void ProcessWorld::wake() {
  const uint64_t one = 1;
  static_cast<void>(!write(wakeEvent_.fd(), &one, sizeof(one)));
}

void ProcessWorld::serve() {
  while (true) {
    std::vector<pollfd> entries = {{wakeEvent_.fd(), POLLIN, 0}};
    std::vector<int32_t> ranks;
    {
      const std::lock_guard lock(mutex_);
      if (isOver()) return;
      for (const auto& [rank, peer] : peers_) {
        if (!peer.socket.isOpen()) continue;
        const bool writes = !peer.out.empty();
        entries.push_back(
            {peer.socket.fd(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
        ranks.push_back(rank);
      }
    }
    const auto pause = std::chrono::ceil<Milliseconds>(heartbeat_).count() / 4;
    if (poll(entries.data(), entries.size(), static_cast<int>(pause)) < 0) continue;
    {
      const std::lock_guard lock(mutex_);
      uint64_t rings = 0;
      if (entries.front().revents != 0)
        static_cast<void>(!read(wakeEvent_.fd(), &rings, sizeof(rings)));
      for (size_t i = 0; i < ranks.size(); ++i) {
        Peer& peer = peers_[ranks[i]];
        if ((entries[i + 1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) readFrom(peer);
        if (peer.socket.isOpen()) writeTo(peer);
        if (peer.socket.isOpen()) keepAlive(peer);
        if (peer.socket.isOpen() && closing_) takeLeave(peer);
      }
    }
    doorbell_.ring();
  }
}

// When nobody is left, or those who are do not hurry.
bool ProcessWorld::isOver() const {
  if (!closing_) return false;
  if (Clock::now() >= leaveAt_) return true;
  return std::none_of(peers_.begin(), peers_.end(),
                      [](const auto& entry) { return entry.second.socket.isOpen(); });
}

void ProcessWorld::readFrom(Peer& peer) {
  for (int turn = 0; turn < kTurns && peer.socket.isOpen(); ++turn)
    if (!readSome(peer)) return;
}

// One read; false: there is no more for now.
bool ProcessWorld::readSome(Peer& peer) {
  const bool inHeader = peer.headerRead < wire::kHeaderBytes;
  char* to = nullptr;
  size_t wanted = 0;
  if (inHeader) {
    to = peer.header.data() + peer.headerRead;
    wanted = wire::kHeaderBytes - peer.headerRead;
  } else {
    const size_t left = static_cast<size_t>(peer.incoming.bytes) - peer.bodyRead;
    wanted = std::min(left, kChunk);
    peer.body.resize(peer.bodyRead + wanted);
    to = peer.body.data() + peer.bodyRead;
  }
  const ssize_t count = wanted == 0 ? 0 : recv(peer.socket.fd(), to, wanted, 0);
  if (count < 0 && wouldBlock()) return false;
  if (count < 0) {
    lose(peer, fmt::format("its connection broke ({}): it was killed, or has crashed",
                           std::strerror(errno)));
    return false;
  }
  if (count == 0 && wanted > 0) {
    lose(peer, "its connection closed without a word: it was killed, or has crashed");
    return false;
  }
  peer.unheard.restart();
  if (inHeader) {
    peer.headerRead += static_cast<size_t>(count);
    if (peer.headerRead < wire::kHeaderBytes) return true;
    const Result<wire::Header> header = wire::decode(peer.header, limits_);
    if (!header.has_value()) {
      lose(peer, header.error().message());
      return false;
    }
    peer.incoming = *header;
    peer.body.clear();
    peer.bodyRead = 0;
  } else {
    peer.bodyRead += static_cast<size_t>(count);
  }
  if (peer.bodyRead < peer.incoming.bytes) return true;
  peer.body.resize(peer.bodyRead);
  peer.headerRead = 0;
  handle(peer);
  return true;
}

void ProcessWorld::handle(Peer& peer) {
  const wire::Header& header = peer.incoming;
  switch (header.kind) {
    case Kind::kHeartbeat:
      return;
    case Kind::kGoodbye:
      peer.goodbye = true;
      return;
    case Kind::kFailed: {
      const Result<wire::Failure> failure = wire::decodeFailure(peer.body);
      if (!failure.has_value()) return lose(peer, failure.error().message());
      return failLocked(failure->rank, failure->status);
    }
    case Kind::kWanted:
      if (wishes_.size() >= kMaxWishes) return lose(peer, "it asks for too many messages");
      return answerWish(peer.rank, header.key);
    case Kind::kSaid:
    case Kind::kAllSaid:
    case Kind::kMessage:
    case Kind::kPart:
      inbox_[{peer.rank, header.kind, header.key}].push_back(std::move(peer.body));
      peer.body = std::string();
      return;
    case Kind::kHello:
    case Kind::kWelcome:
    case Kind::kRefused:
      break;
  }
  lose(peer, "it greets in the middle of the run");
}

void ProcessWorld::writeTo(Peer& peer) {
  while (!peer.out.empty()) {
    Outgoing& out = peer.out.front();
    const bool inHead = out.written < out.head.size();
    const size_t before = inHead ? 0 : out.head.size();
    const char* from = inHead ? out.head.data() : out.data;
    const size_t size = inHead ? out.head.size() : out.bytes;
    const size_t left = size - (out.written - before);
    if (left > 0) {
      const ssize_t count =
          ::send(peer.socket.fd(), from + (out.written - before), left, MSG_NOSIGNAL);
      if (count < 0 && wouldBlock()) return;
      // What it said last is read before it is lost.
      if (count < 0) return peer.out.clear();
      out.written += static_cast<size_t>(count);
      peer.spoken = Clock::now();
    }
    if (out.written < out.head.size() + out.bytes) continue;
    if (out.ticket != nullptr) --out.ticket->pending;
    peer.out.pop_front();
  }
}

void ProcessWorld::keepAlive(Peer& peer) {
  const auto now = Clock::now();
  if (!closing_ && peer.out.empty() && now - peer.spoken > heartbeat_)
    queue(peer, Kind::kHeartbeat, 0, "");
  if (peer.unheard.waited() > silence_)
    lose(peer,
         fmt::format("no sign of life in {} s", std::chrono::duration<double>(silence_).count()));
}

// All has been said: the connection stays until the other side has said the same.
void ProcessWorld::takeLeave(Peer& peer) {
  if (!peer.out.empty() || peer.writesNoMore) return;
  peer.writesNoMore = true;
  shutdown(peer.socket.fd(), SHUT_WR);
}

void ProcessWorld::lose(Peer& peer, const std::string& why) {
  peer.socket.close();
  peer.out.clear();
  if (closing_ || (peer.goodbye && finishing_)) return;
  failLocked(peer.rank, trireme::unavailable(peer.goodbye ? "it has left the run" : why));
}

void ProcessWorld::queue(Peer& peer, Kind kind, uint64_t key, std::string body) {
  if (!peer.socket.isOpen() || peer.writesNoMore) return;
  const wire::HeaderBytes header = wire::encode({kind, key, body.size()});
  Outgoing& out = peer.out.emplace_back();
  out.head.assign(header.data(), header.size());
  out.head += body;
}

// What was to be sent belongs to ranks that give up now: the frame that is half out is completed
// from a copy, all others are dropped.
void ProcessWorld::failLocked(int32_t rank, const Status& reason) {
  if (!failure_.ok()) return;
  failure_ = reason;
  failedRank_ = rank;
  const std::string body = wire::encode(wire::Failure{rank, reason});
  for (auto& [number, peer] : peers_) {
    while (!peer.out.empty() && (peer.out.size() > 1 || peer.out.front().written == 0))
      peer.out.pop_back();
    if (!peer.out.empty()) {
      Outgoing& out = peer.out.front();
      if (out.data != nullptr) out.kept.assign(out.data, out.bytes);
      out.data = out.kept.data();
      out.ticket = nullptr;
    }
    queue(peer, Kind::kFailed, 0, body);
  }
  failed_.store(true, std::memory_order_release);
}

}  // namespace trireme::runtime
