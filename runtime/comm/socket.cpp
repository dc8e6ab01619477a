#include "runtime/comm/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace trireme::runtime {
namespace {

std::string reason() { return std::strerror(errno); }

void prepare(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

int millisecondsUntil(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

// Whether the socket is ready for `events` before the deadline.
bool awaits(int fd, short events, Clock::time_point deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int count = poll(&entry, 1, millisecondsUntil(deadline));
    if (count > 0) return true;
    if (count == 0 ? Clock::now() >= deadline : errno != EINTR) return false;
  }
}

Result<Socket> listenOnFamily(int family, int port) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.isOpen()) return Error(unavailable(reason()));
  const int one = 1, zero = 0;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  sockaddr_storage address{};
  socklen_t size = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    auto* six = reinterpret_cast<sockaddr_in6*>(&address);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(port));
    size = sizeof(sockaddr_in6);
  } else {
    auto* four = reinterpret_cast<sockaddr_in*>(&address);
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<uint16_t>(port));
  }
  if (bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(socket.fd(), SOMAXCONN) != 0)
    return Error(unavailable(reason()));
  return socket;
}

std::string textOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
      inet_ntop(AF_INET, six.sin6_addr.s6_addr + 12, text, sizeof(text));
    else
      inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text));
  } else {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof(text));
  }
  return text;
}

Result<Socket> dialOne(const addrinfo& address, Clock::time_point deadline) {
  Socket socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (!socket.isOpen()) return Error(unavailable(reason()));
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return Error(unavailable(reason()));
    if (!awaits(socket.fd(), POLLOUT, deadline)) return Error(unavailable("no answer"));
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Error(unavailable(std::strerror(error)));
  }
  prepare(socket.fd());
  return socket;
}

Status sendAll(int fd, std::string_view data, Clock::time_point deadline) {
  while (!data.empty()) {
    const ssize_t count = send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (count > 0) {
      data.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!awaits(fd, POLLOUT, deadline)) return unavailable("no answer");
    } else if (errno != EINTR) {
      return unavailable(reason());
    }
  }
  return {};
}

Status receiveAll(int fd, char* data, size_t bytes, Clock::time_point deadline) {
  while (bytes > 0) {
    const ssize_t count = recv(fd, data, bytes, 0);
    if (count > 0) {
      data += count;
      bytes -= static_cast<size_t>(count);
    } else if (count == 0) {
      return unavailable("it closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!awaits(fd, POLLIN, deadline)) return unavailable("no answer");
    } else if (errno != EINTR) {
      return unavailable(reason());
    }
  }
  return {};
}

}  // namespace

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<Socket> listenOn(int port) {
  Result<Socket> both = listenOnFamily(AF_INET6, port);
  if (both.has_value()) return both;
  Result<Socket> four = listenOnFamily(AF_INET, port);
  if (four.has_value()) return four;
  return Error(
      unavailable(fmt::format("cannot listen on port {}: {}", port, four.error().message())));
}

int portOf(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::optional<std::pair<Socket, std::string>> acceptFrom(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  Socket socket(accept4(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size,
                        SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.isOpen()) return std::nullopt;
  prepare(socket.fd());
  return std::pair{std::move(socket), textOf(address)};
}

Result<Socket> dial(const std::string& host, int port, Clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
      error != 0)
    return Error(unavailable(gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  Status last = unavailable("no address");
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    Result<Socket> socket = dialOne(*address, deadline);
    if (socket.has_value()) return socket;
    last = socket.error();
  }
  return Error(last);
}

Status sendFrame(const Socket& socket, const wire::Header& header, std::string_view body,
                 Clock::time_point deadline) {
  wire::Header full = header;
  full.bytes = body.size();
  const wire::HeaderBytes bytes = wire::encode(full);
  TRIREME_RETURN_IF_ERROR(sendAll(socket.fd(), {bytes.data(), bytes.size()}, deadline));
  return sendAll(socket.fd(), body, deadline);
}

Result<ReceivedFrame> receiveFrame(const Socket& socket, const wire::Limits& limits,
                                   Clock::time_point deadline) {
  wire::HeaderBytes bytes;
  TRIREME_RETURN_IF_ERROR(receiveAll(socket.fd(), bytes.data(), bytes.size(), deadline));
  ReceivedFrame frame;
  TRIREME_ASSIGN_OR_RETURN(frame.header, wire::decode(bytes, limits));
  frame.body.resize(static_cast<size_t>(frame.header.bytes));
  TRIREME_RETURN_IF_ERROR(receiveAll(socket.fd(), frame.body.data(), frame.body.size(), deadline));
  return frame;
}

bool isLoopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1";
}

}  // namespace trireme::runtime
