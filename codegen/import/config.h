// Settings of a configuration file by name: "parallelism.tensor_parallel_degree". Reading one ticks
// it off, so that what nobody reads can be listed.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/spec/yaml_node.h"

namespace trireme::codegen {

// A TOML document as the tree of a YAML or JSON one: tables are maps. kInvalidArgument with file,
// line and column.
Result<spec::Node> parseToml(const std::string& text, const std::string& file);

class Config {
 public:
  // `root` is a map.
  Config(std::string file, spec::Node root) : file_(std::move(file)), root_(std::move(root)) {}

  // The node behind a name, ticked off; null if it is absent or null.
  const spec::Node* find(const std::string& name);
  bool has(const std::string& name) { return find(name) != nullptr; }
  // Files of other versions say `older` for `name`: it is read where the file has no `name`, and
  // messages say what the file does. Fails if the file has both, with different values.
  void acceptAs(const std::string& older, const std::string& name);
  // What the file calls it; `name` if it does not have it.
  std::string spelled(const std::string& name) const;
  // Ticks off all that a table holds.
  void passOver(const std::string& name) { passed_.insert(name); }

  // Each keeps the first error and gives `absent` then. A whole number of -1 .. 2^30; of at least
  // 0; true or false; any text.
  int64_t count(const std::string& name, int64_t absent);
  double real(const std::string& name, double absent);
  bool isOn(const std::string& name, bool absent);
  std::string text(const std::string& name, const std::string& absent);
  // `unpriced`: other values that the program takes, to which `nearest` is (or `absent`).
  std::string choice(const std::string& name, const std::vector<std::string>& choices,
                     const std::string& absent, const std::vector<std::string>& unpriced = {},
                     const std::string& nearest = "");

  // "file:line:column: name message", or without a place if there is no such setting.
  void fail(const std::string& name, const std::string& message);
  const Status& error() const { return error_; }

  // Fails on a name that nobody read where it is nearly one that somebody looked for beside it: a
  // slip of the pen, which the program passes over without a word.
  void refuseMisspelt();
  // What nobody read, in the order of the file. Of a table that nobody read only its name.
  std::vector<std::string> unused() const;

 private:
  const spec::Node* locate(const std::string& path) const;
  void collect(const spec::Node& map, const std::string& path,
               std::vector<std::string>& names) const;
  std::vector<std::string> knownIn(const std::string& path) const;

  std::string file_;
  spec::Node root_;
  std::set<std::string> used_, passed_;
  std::map<std::string, std::vector<std::string>> older_;  // by name
  Status error_;
};

}  // namespace trireme::codegen
