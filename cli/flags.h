// Flags that check their values while they are parsed. Every complaint has the form
// "--flag: what is wrong".
#pragma once
#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace trireme::cli {

// Throws CLI::ValidationError: CLI11's own way of refusing, caught in runCommandLine().
[[noreturn]] void refuseFlag(const std::string& flag, const std::string& message);

// The value, or the refusal of it.
template <typename T>
T orRefuse(const std::string& flag, Result<T> value) {
  if (!value.has_value()) refuseFlag(flag, value.error().message());
  return *std::move(value);
}

// A whole number of at least `least`.
int64_t parseCount(const std::string& flag, const std::string& text, int64_t least);
CLI::Option* addCount(CLI::App& app, const std::string& flag, std::optional<int64_t>* out,
                      const std::string& description);
CLI::Option* addCount(CLI::App& app, const std::string& flag, int64_t* out,
                      const std::string& description, int64_t least = 1);

// Whole numbers of at least `least` between commas: "13,12,12,11".
CLI::Option* addCounts(CLI::App& app, const std::string& flag, std::vector<int64_t>* out,
                       const std::string& description, int64_t least = 1);

// A number of seconds above 0, up to `most`.
CLI::Option* addSeconds(CLI::App& app, const std::string& flag, double* out,
                        const std::string& description, double most);

// A path that is not empty.
CLI::Option* addPath(CLI::App& app, const std::string& flag, std::string* out,
                     const std::string& placeholder, const std::string& description);

// The same for one path or more: "--flag a b", "--flag a --flag b".
CLI::Option* addPaths(CLI::App& app, const std::string& flag, std::vector<std::string>* out,
                      const std::string& placeholder, const std::string& description);

// --report FILE.
CLI::Option* addReport(CLI::App& app, std::string* out);

// Index into `names`, or the complaint with the nearest valid name.
size_t parseChoice(const std::string& flag, const std::string& text,
                   const std::vector<std::string>& names);

// One of the values 0, 1, ... of an enum, under the names that `nameOf` gives them.
template <typename Enum>
CLI::Option* addChoice(CLI::App& app, const std::string& flag, std::optional<Enum>* out,
                       std::string_view (*nameOf)(Enum), Enum last,
                       const std::string& description) {
  std::vector<std::string> names;
  std::string shown;
  for (int value = 0; value <= static_cast<int>(last); ++value) {
    names.emplace_back(nameOf(static_cast<Enum>(value)));
    shown += (value == 0 ? "" : "|") + names.back();
  }
  const auto parse = [=](const std::string& text) {
    *out = static_cast<Enum>(parseChoice(flag, text, names));
  };
  return app.add_option_function<std::string>(flag, parse, description)->type_name(shown);
}

// "on" or "off".
CLI::Option* addSwitch(CLI::App& app, const std::string& flag, std::optional<bool>* out,
                       const std::string& description);

}  // namespace trireme::cli
