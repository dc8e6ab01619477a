// TCP connections, as far as the processes of a run need them. None of them blocks for longer than
// it is told.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ir/base/status.h"
#include "runtime/comm/wire.h"

namespace trireme::runtime {

using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Owns a file descriptor; -1: none.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int fd() const { return fd_; }
  bool isOpen() const { return fd_ >= 0; }
  void close();

 private:
  int fd_;
};

// Listens on all addresses of this machine; port 0: one that is free. kUnavailable: the port is
// taken, or may not be used.
Result<Socket> listenOn(int port);
int portOf(const Socket& listener);

// A connection that is waiting, and the address it comes from; nothing: none is.
std::optional<std::pair<Socket, std::string>> acceptFrom(const Socket& listener);

// Connects to the first address of `host` that answers. kUnavailable: none has by `deadline`, with
// the system's reason.
Result<Socket> dial(const std::string& host, int port, Clock::time_point deadline);

// A frame, whole. kUnavailable: the other side is gone, or has not taken or said it by `deadline`.
// kInvalidArgument: what it said is no frame.
Status sendFrame(const Socket& socket, const wire::Header& header, std::string_view body,
                 Clock::time_point deadline);
struct ReceivedFrame {
  wire::Header header;
  std::string body;
};
Result<ReceivedFrame> receiveFrame(const Socket& socket, const wire::Limits& limits,
                                   Clock::time_point deadline);

// An address of the machine itself.
bool isLoopback(std::string_view address);

}  // namespace trireme::runtime
