#include "tests/support/warp.h"

#include "ir/base/status.h"

namespace trireme::testing {
namespace {

Warp* running = nullptr;

}  // namespace

Warp& Warp::current() {
  TRIREME_CHECK(running != nullptr);
  return *running;
}

void Warp::enter() {
  (*running->function_)();
  running->self().done = true;
}

void Warp::run(const std::function<void()>& thread, int index, int numWarps) {
  TRIREME_CHECK(running == nullptr);
  running = this;
  function_ = &thread;
  index_ = index;
  numWarps_ = numWarps;
  for (Thread& fiber : threads_) {
    if (fiber.stack == nullptr) fiber.stack = std::make_unique<char[]>(kStackBytes);
    fiber.numExchanges = 0;
    fiber.done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &scheduler_;
    makecontext(&fiber.context, &Warp::enter, 0);
  }
  for (bool anyRan = true; anyRan;) {
    anyRan = false;
    for (lane_ = 0; lane_ < kThreads; ++lane_) {
      if (self().done) continue;
      anyRan = true;
      swapcontext(&scheduler_, &self().context);
    }
  }
  running = nullptr;
}

bool Warp::converged() const {
  for (const Thread& thread : threads_)
    if (thread.numExchanges != threads_[0].numExchanges) return false;
  return true;
}

// A thread is back when every other one has given its value. The next exchange uses the other half
// of the slots, for some threads have not read yet.
const Warp::Slots& Warp::exchange(const void* value, size_t bytes) {
  Slots& slots = slots_[static_cast<size_t>(self().numExchanges++ % 2)];
  std::memcpy(slots[static_cast<size_t>(lane_)].data(), value, bytes);
  swapcontext(&self().context, &scheduler_);
  return slots;
}

}  // namespace trireme::testing
