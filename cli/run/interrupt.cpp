#include "cli/run/interrupt.h"

#include <csignal>

namespace trireme::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void note(int) { interrupted = 1; }

void handleBy(void (*handler)(int), int flags) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  interrupted = 0;
  handleBy(note, SA_RESETHAND | SA_RESTART);
}

Interrupt::~Interrupt() { handleBy(SIG_DFL, 0); }

bool Interrupt::requested() const { return interrupted != 0; }

}  // namespace trireme::cli
