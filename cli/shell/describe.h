// The command's flags as values, read off its own parser, so that completion and manual never lag
// behind it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace trireme::cli {

struct FlagText {
  std::vector<std::string> names;  // "-o", "--output"; none for a positional argument
  std::string placeholder;         // "FILE", "gpipe|1f1b|interleaved"; empty: takes no value
  std::string purpose;
  int numValues = 0;
  bool isRequired = false;
};

struct CommandText {
  std::string name;  // empty: the flags of trireme itself
  std::string purpose, example;
  std::vector<FlagText> flags;
};

// The command itself first, then its subcommands in order.
std::vector<CommandText> describe(const CLI::App& app);

// What can stand for the flag's value, if they are few and known: the words of a placeholder, or
// the names of shipped models, clusters, stacks and GPUs.
std::vector<std::string> valuesOf(const FlagText& flag);
// The value is, or may be, a path.
bool takesPath(const FlagText& flag);

// Scripts that complete `trireme`: `shell` is bash, zsh or fish.
std::string completionScript(const std::vector<CommandText>& commands, std::string_view shell);

// trireme(1), in the man macros of roff.
std::string manPage(const std::vector<CommandText>& commands);

}  // namespace trireme::cli
