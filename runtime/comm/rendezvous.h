// How the processes of a run find each other: rank 0 listens, all others call it and say who they
// are; when all have come it tells everybody where the others listen. Connections that do not speak
// as Trireme does, or are not of this run, are turned away and disturb nobody.
#pragma once
#include <functional>
#include <map>
#include <vector>

#include "runtime/comm/launch.h"
#include "runtime/comm/socket.h"

namespace trireme::runtime {

// Someone who introduced himself as rank `rank` of this run.
struct Guest {
  int32_t rank = -1;
  Socket socket;
  wire::Address address;
};

// Lets in those of `expected` ranks, each once.
class Lobby {
 public:
  // `token`: what they have to know; 0: nothing.
  Lobby(const Socket& listener, int32_t numProcesses, uint64_t token)
      : listener_(listener), numProcesses_(numProcesses), token_(token) {}

  // Adds to `guests` all who come within `limit`.
  void receive(std::map<int32_t, Guest>& guests, const std::vector<int32_t>& expected,
               Milliseconds limit);

 private:
  struct Stranger {
    Socket socket;
    std::string host;
    std::string said;
    Clock::time_point since;
  };
  // Whether it is to be kept waiting: it has not said all yet.
  bool listen(Stranger& stranger, std::map<int32_t, Guest>& guests,
              const std::vector<int32_t>& expected) const;
  // Why it is not let in; empty: it is.
  std::string refusalOf(const wire::Hello& hello, const std::map<int32_t, Guest>& guests,
                        const std::vector<int32_t>& expected) const;

  const Socket& listener_;
  int32_t numProcesses_;
  uint64_t token_;
  std::vector<Stranger> strangers_;
};

// The meeting as one rank leaves it.
struct Met {
  std::map<int32_t, Socket> sockets;  // of rank 0: all others; of others: rank 0
  wire::Welcome welcome;
  Socket listener;  // at which others of the run may call
};

// All processes call it at about the same time.
// kUnavailable: rank 0 cannot be reached, or some ranks have not come within `patience`; names
// them, the address and the time. kInvalidArgument: rank 0 does not want this one, and says why, or
// who answers there is not Trireme.
Result<Met> meet(const Launch& launch, std::chrono::duration<double> patience);

// Calls rank `peer` of the run.
Result<Socket> call(const Launch& launch, const wire::Welcome& welcome, int32_t peer,
                    Clock::time_point deadline);

}  // namespace trireme::runtime
