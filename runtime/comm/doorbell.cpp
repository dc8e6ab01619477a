#include "runtime/comm/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace trireme::runtime {
namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is a plain word");

}  // namespace

// The sleeper writes asleep_ and reads rings_ (in the kernel); the ringer writes rings_ and reads
// asleep_. In one total order, at least one of them sees the other's write.
void Doorbell::ring() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst))
    syscall(SYS_futex, &rings_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void Doorbell::sleep(uint32_t ticket, std::chrono::nanoseconds limit) {
  for (int i = 0; i < spins_; ++i) {
    if (current() != ticket) return;
    pause();
  }
  asleep_.store(true, std::memory_order_seq_cst);
  if (current() == ticket) {
    timespec time{};
    time.tv_sec = limit.count() / 1000000000;
    time.tv_nsec = limit.count() % 1000000000;
    syscall(SYS_futex, &rings_, FUTEX_WAIT_PRIVATE, ticket, &time, nullptr, 0);
  }
  asleep_.store(false, std::memory_order_seq_cst);
}

}  // namespace trireme::runtime
