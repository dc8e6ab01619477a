// Sleep until somebody else has done something. Spins briefly first: bare spinning collapses when
// ranks share cores (12 times slower), sleeping at once costs a wake-up per message. Where others
// wait for the core, a tenth of the spins saves a quarter of the CPU's time.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace trireme::runtime {

// Protocol of the one sleeper:  ticket = current(); if (!condition) sleep(ticket, limit);
// Protocol of the others:       make the condition true; ring();
// A ring between current() and sleep() is not lost: the ticket has expired.
class Doorbell {
 public:
  // Before it is used: the sleeper shares its core with others who have work.
  void shareCore() { spins_ = kSpinsOfShared; }
  uint32_t current() const { return rings_.load(std::memory_order_seq_cst); }
  void ring();
  // Returns after a ring, after `limit`, or spuriously.
  void sleep(uint32_t ticket, std::chrono::nanoseconds limit);

 private:
  static constexpr int kSpins = 200, kSpinsOfShared = 20;

  int spins_ = kSpins;
  std::atomic<uint32_t> rings_{0};
  std::atomic<bool> asleep_{false};
};

}  // namespace trireme::runtime
