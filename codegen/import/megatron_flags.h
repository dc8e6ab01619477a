// Megatron-LM's flags by name.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/import/megatron_launch.h"
#include "ir/base/status.h"

namespace trireme::codegen {

// Reading a flag ticks it off. Keeps the first error, which has file and line. Words that are not
// known are errors where they may be flags, and values of flags where somebody reads them, but for
// the learning rate and its likes, which no price knows.
class Flags {
 public:
  Flags(const MegatronLaunch& launch, std::string file);

  bool has(const std::string& name);
  // The same without ticking it off.
  bool isGiven(const std::string& name) const { return flags_.contains(name); }
  // As if `implied` were given wherever `name` is.
  void imply(const std::string& name, const std::string& implied);
  std::optional<std::string> text(const std::string& name);
  // The same with its open parts, which are no error.
  std::optional<std::string> textOrOpen(const std::string& name);
  // All of its values; none that is open.
  std::vector<std::string> texts(const std::string& name);
  // A whole number of 0 .. 2^30.
  int64_t count(const std::string& name, int64_t absent);
  // A number of at least 0.
  double real(const std::string& name, double absent);
  // `unpriced`: other values that the program takes, to which `nearest` is (or `absent`).
  std::string choice(const std::string& name, const std::vector<std::string>& choices,
                     const std::string& absent, const std::vector<std::string>& unpriced = {},
                     const std::string& nearest = "");

  // The line is that of the command if it has no such flag.
  void fail(const std::string& name, const std::string& message);
  const Status& error() const { return error_; }
  // When all were read: the first error, or a flag that nobody read and that is spelled
  // nearly like one that was asked for and is not there.
  Status verdict() const;
  // The message about a word of torchrun that may be any of its flags; empty if there is none.
  const std::string& openLauncherWord() const { return openLauncherWord_; }
  // Flags that nobody read, or whose values were not known and did not count.
  std::vector<std::string> unused() const;

 private:
  struct Flag {
    std::vector<std::string> values;
    int line = 1;
  };

  void read(const std::vector<ShellText>& words, bool isLauncher);
  void readOpen(const ShellText& word, bool isLauncher);
  template <typename T, typename IsValid>
  T value(const std::string& name, T absent, IsValid isValid, const char* expected);

  std::string file_, last_;
  int line_;  // of the command
  std::map<std::string, Flag> flags_;
  std::set<std::string> used_, open_;
  std::string openLauncherWord_;
  Status error_;
};

}  // namespace trireme::codegen
