// The whole `trireme` command as a function, so that main() is one line and tests can call it.
#pragma once

namespace trireme::cli {

// What the shell sees. Results go to stdout; an error is one message on stderr.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;        // the command could not be carried out
inline constexpr int kExitUsage = 2;          // the command line itself makes no sense
inline constexpr int kExitInterrupted = 130;  // stopped by Ctrl-C after a complete step

// Parses the arguments, runs the subcommand and returns the exit code. Throws nothing.
int runCommandLine(int argc, const char* const* argv);

}  // namespace trireme::cli
