// Ports for tests in which somebody listens later.
#pragma once
#include <unistd.h>

#include <atomic>

#include "runtime/comm/socket.h"

namespace trireme::testing {

// One that nobody listens on. Not of those that the system gives to whoever asks for any (on Linux
// from 32768 on): one of these may be given away before it is used, also to a rank of the same run,
// as each has a listener of its own. Processes begin apart, and a process takes each port once.
inline int freePort() {
  constexpr int kFirst = 20000, kCount = 9000;  // up to torchrun's 29400 and our 29500
  static std::atomic<int> next{static_cast<int>(getpid() % kCount) * 37 % kCount};
  while (true) {
    const int port = kFirst + next++ % kCount;
    if (runtime::listenOn(port).has_value()) return port;
  }
}

}  // namespace trireme::testing
