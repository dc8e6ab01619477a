// The ways through a script whose conditions nobody here knows: they have to lead to one plan, and
// to one launch of it where both say how many ranks a host has.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "codegen/import/import.h"
#include "codegen/import/shell_run.h"

namespace trireme::codegen {

// Every choice of every open condition is taken once, behind choices that were taken before; not
// all of their combinations.
//
//   while (const auto choices = ways.next()) ways.add(run of the choices, its plan);
class Ways {
 public:
  explicit Ways(std::string file) : file_(std::move(file)) {}

  // The next to be followed; absent if all have been, or two of them lead to different ones.
  std::optional<std::vector<size_t>> next();
  void add(const ShellRun& run, const Result<std::optional<Imported>>& imported);

  // The plan of all ways that launch something; absent if none does. kInvalidArgument: the
  // error of all ways, or the line of the condition by which two differ.
  Result<std::optional<Imported>> result() const;

 private:
  std::string file_;
  std::vector<size_t> current_;
  std::vector<std::vector<size_t>> open_ = {{}};
  std::set<std::pair<int, size_t>> taken_;  // of which place, which choice
  size_t numWays_ = 0;
  std::optional<Result<std::optional<Imported>>> first_;
  Status error_;
};

}  // namespace trireme::codegen
