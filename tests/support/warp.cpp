#include "tests/support/warp.h"

#include <algorithm>

#include "ir/base/status.h"

namespace trireme::testing {
namespace {

ThreadBlock* running = nullptr;

}  // namespace

ThreadBlock::ThreadBlock(int numWarps)
    : threads_(static_cast<size_t>(numWarps * kLanes)), slots_(static_cast<size_t>(numWarps)) {}

ThreadBlock& ThreadBlock::current() {
  TRIREME_CHECK(running != nullptr);
  return *running;
}

void ThreadBlock::enter() {
  (*running->function_)();
  running->self().done = true;
  siglongjmp(running->scheduler_, 1);
}

void ThreadBlock::start(Thread& fiber) {
  if (fiber.stack == nullptr) fiber.stack.reset(new char[kStackBytes]);
  fiber.numExchanges = 0;
  fiber.running = fiber.waiting = fiber.done = false;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber.context, &ThreadBlock::enter, 0);
}

// Returns when the fiber yields or is through.
void ThreadBlock::resume(Thread& fiber) {
  if (sigsetjmp(scheduler_, 0) != 0) return;
  if (fiber.running) siglongjmp(fiber.at, 1);
  fiber.running = true;
  setcontext(&fiber.context);
}

void ThreadBlock::yield(Thread& fiber) {
  if (sigsetjmp(fiber.at, 0) == 0) siglongjmp(scheduler_, 1);
}

void ThreadBlock::run(const std::function<void()>& thread, int index, int numBlocks) {
  TRIREME_CHECK(running == nullptr);
  running = this;
  function_ = &thread;
  index_ = index;
  numBlocks_ = numBlocks;
  converged_ = true;
  for (Thread& fiber : threads_) start(fiber);
  bool forwards = true;
  do {
    for (size_t i = 0; i < slots_.size(); ++i)
      while (turn(forwards ? i : slots_.size() - 1 - i)) {
      }
    forwards = !forwards;
  } while (release());
  checkExchanges();
  running = nullptr;
}

// Each thread of the warp until it exchanges or waits. Whether there was one to run.
bool ThreadBlock::turn(size_t warp) {
  bool anyRan = false;
  for (int lane = 0; lane < kLanes; ++lane) {
    thread_ = static_cast<int>(warp) * kLanes + lane;
    if (self().done || self().waiting) continue;
    anyRan = true;
    resume(self());
  }
  return anyRan;
}

// Lets those that wait go on. Whether there are any; all others have ended, which they must not.
bool ThreadBlock::release() {
  const auto waits = [](const Thread& thread) { return thread.waiting; };
  if (std::none_of(threads_.begin(), threads_.end(), waits)) return false;
  if (!std::all_of(threads_.begin(), threads_.end(), waits)) converged_ = false;
  checkExchanges();
  for (Thread& thread : threads_) thread.waiting = false;
  return true;
}

void ThreadBlock::checkExchanges() {
  for (size_t i = 0; i < threads_.size(); ++i)
    if (threads_[i].numExchanges != threads_[i / kLanes * kLanes].numExchanges) converged_ = false;
}

// A thread is back when every other one has given its value. The next exchange uses the other half
// of the slots, for some threads have not read yet.
const ThreadBlock::Slots& ThreadBlock::exchange(const void* value, size_t bytes) {
  const auto half = static_cast<size_t>(self().numExchanges++ % 2);
  Slots& slots = slots_[static_cast<size_t>(thread_ / kLanes)][half];
  std::memcpy(slots[static_cast<size_t>(lane())].data(), value, bytes);
  yield(self());
  return slots;
}

void ThreadBlock::wait() {
  self().waiting = true;
  yield(self());
}

}  // namespace trireme::testing
