#include "cli/run/interrupt.h"

#include <csignal>

namespace trireme::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void note(int) { interrupted = 1; }

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

// Who starts a command with nohup wants it to outlive the terminal.
bool outlivesTerminal() {
  struct sigaction action{};
  sigaction(SIGHUP, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

}  // namespace

Interrupt::Interrupt() {
  interrupted = 0;
  for (const int signal : {SIGINT, SIGTERM}) handle(signal, note, SA_RESETHAND | SA_RESTART);
  // The shell repeats what a closed terminal sends: no reason to end without a checkpoint.
  if (!outlivesTerminal()) handle(SIGHUP, note, SA_RESTART);
}

Interrupt::~Interrupt() {
  for (const int signal : {SIGINT, SIGTERM}) handle(signal, SIG_DFL, 0);
  if (!outlivesTerminal()) handle(SIGHUP, SIG_DFL, 0);
}

bool Interrupt::requested() const { return interrupted != 0; }

}  // namespace trireme::cli
