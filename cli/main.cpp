// The `trireme` command.
#include <csignal>

#include "cli/command_line.h"

namespace {

void doNothing(int) {}

// A file above the limit (ulimit -f) and a pipe that nobody reads any more are errors of the write,
// which knows what else there is to save. Programs that this one starts have their own SIGPIPE: a
// handler does not outlive exec, as SIG_IGN would, which is kept where it was there before.
void makeErrorsOfSignals() {
  std::signal(SIGXFSZ, SIG_IGN);
  if (std::signal(SIGPIPE, doNothing) == SIG_IGN) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

int main(int argc, char** argv) {
  makeErrorsOfSignals();
  return trireme::cli::endProcess(trireme::cli::runCommandLine(argc, argv));
}
