#include "runtime/comm/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <thread>

namespace trireme::runtime {
namespace {

using wire::Hello;
using wire::Kind;

constexpr size_t kMaxStrangers = 256;
constexpr auto kStrangersPatience = std::chrono::seconds(10);
constexpr auto kMoment = Milliseconds(200);

wire::Limits limitsOf(int32_t numProcesses) { return {numProcesses, 0}; }

// A frame that need not arrive.
void say(const Socket& socket, Kind kind, std::string_view body) {
  static_cast<void>(sendFrame(socket, {kind, 0, 0}, body, Clock::now() + kMoment));
}

std::vector<int32_t> others(int32_t numProcesses) {
  std::vector<int32_t> ranks;
  for (int32_t rank = 1; rank < numProcesses; ++rank) ranks.push_back(rank);
  return ranks;
}

// "rank 3", "ranks 2, 5, 7 and 12 more".
std::string nameRanks(const std::vector<int32_t>& ranks) {
  constexpr size_t kNamed = 8;
  const std::vector<int32_t> named(
      ranks.begin(), ranks.begin() + static_cast<long>(std::min(kNamed, ranks.size())));
  std::string text = fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(named, ", "));
  if (ranks.size() > kNamed) text += fmt::format(" and {} more", ranks.size() - kNamed);
  return text;
}

uint64_t newToken() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) | 1;
}

Result<Met> receiveAll(const Launch& launch, std::chrono::duration<double> patience) {
  Met met;
  Result<Socket> listener = listenOn(launch.port);
  if (!listener.has_value())
    return Error(listener.error().withContext(
        fmt::format("rank 0 of {}, at {}:{}", launch.numProcesses, launch.host, launch.port)));
  std::map<int32_t, Guest> guests;
  Lobby lobby(*listener, launch.numProcesses, 0);
  const std::vector<int32_t> expected = others(launch.numProcesses);
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
  while (guests.size() < expected.size() && Clock::now() < deadline)
    lobby.receive(guests, expected, kMoment);
  if (guests.size() < expected.size()) {
    std::vector<int32_t> missing;
    std::copy_if(expected.begin(), expected.end(), std::back_inserter(missing),
                 [&](int32_t rank) { return !guests.contains(rank); });
    const Status status = unavailable(fmt::format(
        "{} of {} {} not come to {}:{} within {:.3g} s", nameRanks(missing), launch.numProcesses,
        missing.size() == 1 ? "has" : "have", launch.host, launch.port, patience.count()));
    for (const auto& [rank, guest] : guests)
      say(guest.socket, Kind::kFailed, wire::encode(wire::Failure{0, status}));
    return Error(status);
  }
  met.welcome.token = newToken();
  met.welcome.addresses.resize(static_cast<size_t>(launch.numProcesses));
  for (const auto& [rank, guest] : guests)
    met.welcome.addresses[static_cast<size_t>(rank)] = guest.address;
  const std::string body = wire::encode(met.welcome);
  for (auto& [rank, guest] : guests) {
    if (Status status = sendFrame(guest.socket, {Kind::kWelcome, 0, 0}, body,
                                  Clock::now() + std::chrono::seconds(10));
        !status.ok())
      return Error(status.withContext(fmt::format("rank {} left before the start", rank)));
    met.sockets[rank] = std::move(guest.socket);
  }
  return met;
}

Status checkWelcome(const Launch& launch, const ReceivedFrame& frame, wire::Welcome& welcome) {
  switch (frame.header.kind) {
    case Kind::kRefused:
      return invalidArgument(fmt::format("rank 0 at {}:{} refuses rank {}: {}", launch.host,
                                         launch.port, launch.rank, frame.body));
    case Kind::kFailed: {
      TRIREME_ASSIGN_OR_RETURN(const wire::Failure failure, wire::decodeFailure(frame.body));
      return failure.status;
    }
    case Kind::kWelcome:
      break;
    default:
      return invalidArgument("no answer to a greeting");
  }
  TRIREME_ASSIGN_OR_RETURN(welcome, wire::decodeWelcome(frame.body));
  if (std::ssize(welcome.addresses) == launch.numProcesses) return {};
  return invalidArgument("a welcome of another run");
}

Result<Met> callRankZero(const Launch& launch, std::chrono::duration<double> patience) {
  const std::string where = fmt::format("{}:{}", launch.host, launch.port);
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
  Met met;
  Result<Socket> socket = dial(launch.host, launch.port, deadline);
  while (!socket.has_value() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::min<Clock::duration>(kMoment, deadline - Clock::now()));
    socket = dial(launch.host, launch.port, deadline);
  }
  if (!socket.has_value())
    return Error(
        unavailable(fmt::format("rank {} cannot reach rank 0 at {}: {} (tried for {:.3g} s)",
                                launch.rank, where, socket.error().message(), patience.count())));
  // Only now: before rank 0 listens, a port that the system gives away could be rank 0's own.
  TRIREME_ASSIGN_OR_RETURN(met.listener, listenOn(0));
  Hello hello;
  hello.numProcesses = launch.numProcesses;
  hello.rank = launch.rank;
  hello.port = portOf(met.listener);
  // It listens already, so it gives up first, and says who is missing, if it waits no longer.
  const auto slack = std::chrono::seconds(2);
  const auto answered =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(patience) + slack;
  Status status = sendFrame(*socket, {Kind::kHello, 0, 0}, wire::encode(hello), answered);
  if (status.ok()) {
    const auto welcome = receiveFrame(*socket, limitsOf(launch.numProcesses), answered);
    status = welcome.has_value() ? checkWelcome(launch, *welcome, met.welcome) : welcome.error();
    if (!welcome.has_value())
      status = status.withContext(fmt::format(
          "rank {}: whoever answers at {} is not rank 0 of this run, or has ended{}", launch.rank,
          where, Clock::now() < answered ? "" : ", or waits for others with a longer --timeout"));
  }
  if (!status.ok()) return Error(status);
  met.sockets[0] = *std::move(socket);
  return met;
}

}  // namespace

void Lobby::receive(std::map<int32_t, Guest>& guests, const std::vector<int32_t>& expected,
                    Milliseconds limit) {
  std::vector<pollfd> entries = {{listener_.fd(), POLLIN, 0}};
  for (const Stranger& stranger : strangers_) entries.push_back({stranger.socket.fd(), POLLIN, 0});
  if (poll(entries.data(), entries.size(), static_cast<int>(limit.count())) < 0) return;
  if (entries.front().revents != 0)
    while (auto caller = acceptFrom(listener_)) {
      if (strangers_.size() >= kMaxStrangers) strangers_.erase(strangers_.begin());
      strangers_.push_back({std::move(caller->first), std::move(caller->second), "", Clock::now()});
    }
  std::erase_if(strangers_, [&](Stranger& stranger) {
    return !listen(stranger, guests, expected) ||
           Clock::now() - stranger.since > kStrangersPatience;
  });
}

// Reads no more than a greeting: what follows it stays in the connection.
bool Lobby::listen(Stranger& stranger, std::map<int32_t, Guest>& guests,
                   const std::vector<int32_t>& expected) const {
  size_t wanted = wire::kHeaderBytes;
  while (true) {
    if (stranger.said.size() >= wire::kHeaderBytes) {
      wire::HeaderBytes bytes;
      std::copy_n(stranger.said.begin(), bytes.size(), bytes.begin());
      const auto header = wire::decode(bytes, limitsOf(numProcesses_));
      if (!header.has_value() || header->kind != Kind::kHello) return false;
      wanted = wire::kHeaderBytes + static_cast<size_t>(header->bytes);
      if (stranger.said.size() == wanted) break;
    }
    char buffer[512];
    const size_t left = std::min(sizeof(buffer), wanted - stranger.said.size());
    const ssize_t count = recv(stranger.socket.fd(), buffer, left, 0);
    if (count > 0) {
      stranger.said.append(buffer, static_cast<size_t>(count));
    } else {
      return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    }
  }
  const auto hello = wire::decodeHello(std::string_view(stranger.said).substr(wire::kHeaderBytes));
  if (!hello.has_value()) return false;
  if (const std::string refusal = refusalOf(*hello, guests, expected); !refusal.empty()) {
    say(stranger.socket, Kind::kRefused, refusal);
    return false;
  }
  Guest& guest = guests[hello->rank];
  guest.rank = hello->rank;
  guest.address = {isLoopback(stranger.host) ? "" : stranger.host, hello->port};
  guest.socket = std::move(stranger.socket);
  return false;
}

std::string Lobby::refusalOf(const Hello& hello, const std::map<int32_t, Guest>& guests,
                             const std::vector<int32_t>& expected) const {
  if (hello.version != wire::kVersion)
    return fmt::format("it speaks version {} of the protocol, this Trireme version {}",
                       hello.version, wire::kVersion);
  if (token_ != 0 && hello.token != token_) return "it is of another run";
  if (hello.numProcesses != numProcesses_)
    return fmt::format("it was started as one of {} processes, rank 0 as one of {}",
                       hello.numProcesses, numProcesses_);
  if (std::find(expected.begin(), expected.end(), hello.rank) == expected.end())
    return fmt::format("nobody waits for rank {}", hello.rank);
  if (guests.contains(hello.rank))
    return fmt::format("rank {} is here already: does another run use the same port?", hello.rank);
  return "";
}

Result<Met> meet(const Launch& launch, std::chrono::duration<double> patience) {
  return launch.rank == 0 ? receiveAll(launch, patience) : callRankZero(launch, patience);
}

Result<Socket> call(const Launch& launch, const wire::Welcome& welcome, int32_t peer,
                    Clock::time_point deadline) {
  const wire::Address& address = welcome.addresses[static_cast<size_t>(peer)];
  const std::string& host = address.host.empty() ? launch.host : address.host;
  Result<Socket> socket = dial(host, address.port, deadline);
  Status status = socket.has_value() ? Status() : socket.error();
  if (status.ok()) {
    Hello hello;
    hello.numProcesses = launch.numProcesses;
    hello.rank = launch.rank;
    hello.token = welcome.token;
    status = sendFrame(*socket, {Kind::kHello, 0, 0}, wire::encode(hello), deadline);
  }
  if (status.ok()) return socket;
  return Error(status.withContext(
      fmt::format("rank {} cannot reach rank {} at {}:{}", launch.rank, peer, host, address.port)));
}

}  // namespace trireme::runtime
