// The `trireme` command.
#include "cli/command_line.h"

int main(int argc, char** argv) {
  return trireme::cli::endProcess(trireme::cli::runCommandLine(argc, argv));
}
