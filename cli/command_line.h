// The whole `trireme` command as a function, so that main() is one line and tests can call it.
#pragma once

namespace trireme::cli {

// What the shell sees. Results go to stdout; an error is one message on stderr.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;        // the command could not be carried out
inline constexpr int kExitUsage = 2;          // the command line itself makes no sense
inline constexpr int kExitInterrupted = 130;  // stopped by Ctrl-C after a complete step
// Nobody reads stdout any more (`| head`), which is no error to tell: 128 + SIGPIPE.
inline constexpr int kExitClosedPipe = 141;

// Parses the arguments, runs the subcommand and returns the exit code. Throws nothing.
int runCommandLine(int argc, const char* const* argv);

// What main() returns. If a GPU was given up, it does not return but ends the process with that
// exit code, its output written, at once: what libraries do at exit may wait for that GPU for ever.
// Nor does it after kExitClosedPipe: the process ends by SIGPIPE, as other commands in a pipe do.
int endProcess(int exitCode);

}  // namespace trireme::cli
