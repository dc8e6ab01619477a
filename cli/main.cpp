// The `trireme` command.
#include <csignal>

#include "cli/command_line.h"

int main(int argc, char** argv) {
  // A file above the limit (ulimit -f) is an error of the write, which says which file it was.
  std::signal(SIGXFSZ, SIG_IGN);
  return trireme::cli::endProcess(trireme::cli::runCommandLine(argc, argv));
}
