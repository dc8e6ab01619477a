#include "codegen/import/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/spec/map_reader.h"

namespace trireme::codegen {

using spec::Node;

const Node* Config::locate(const std::string& name) const {
  const Node* node = &root_;
  for (size_t begin = 0; node && begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    node = node->kind == Node::Kind::kMap ? node->find(name.substr(begin, end - begin)) : nullptr;
    begin = end + 1;
  }
  return node;
}

const Node* Config::find(const std::string& name) {
  used_.insert(name);
  const Node* node = locate(name);
  return node && node->kind != Node::Kind::kNull ? node : nullptr;
}

int64_t Config::count(const std::string& name, int64_t absent) {
  const Node* node = find(name);
  if (!node) return absent;
  int64_t value = 0;
  if (spec::readValue(*node, &value).ok() && value >= -1 && value <= (1 << 30)) return value;
  fail(name, fmt::format("is {}; expected a whole number of at most 2^30", spec::describe(*node)));
  return absent;
}

double Config::real(const std::string& name, double absent) {
  const Node* node = find(name);
  if (!node) return absent;
  double value = 0;
  if (spec::readValue(*node, &value).ok() && value >= 0) return value;
  fail(name, fmt::format("is {}; expected a number of at least 0", spec::describe(*node)));
  return absent;
}

bool Config::isOn(const std::string& name, bool absent) {
  const Node* node = find(name);
  if (!node) return absent;
  bool value = false;
  if (spec::readValue(*node, &value).ok()) return value;
  fail(name, fmt::format("is {}; expected true or false", spec::describe(*node)));
  return absent;
}

std::string Config::text(const std::string& name, const std::string& absent) {
  const Node* node = find(name);
  if (!node) return absent;
  if (node->kind == Node::Kind::kScalar) return node->text;
  fail(name, fmt::format("is {}; expected text", spec::describe(*node)));
  return absent;
}

std::string Config::choice(const std::string& name, const std::vector<std::string>& choices,
                           const std::string& absent) {
  const std::string given = text(name, absent);
  if (!has(name) || std::find(choices.begin(), choices.end(), given) != choices.end()) return given;
  fail(name,
       fmt::format("is {}{}", spec::quoteForMessage(given), spec::suggestion(given, choices)));
  return absent;
}

void Config::fail(const std::string& name, const std::string& message) {
  if (!error_.ok()) return;
  const Node* node = locate(name);
  const std::string text = fmt::format("{} {}", name, message);
  error_ = node ? spec::errorAt(file_, node->mark, text)
                : invalidArgument(fmt::format("{}: {}", file_, text));
}

void Config::collect(const Node& map, const std::string& path,
                     std::vector<std::string>& names) const {
  for (const Node& item : map.items) {
    const std::string name = path.empty() ? item.key : path + "." + item.key;
    if (used_.contains(name) || passed_.contains(name)) continue;
    const std::string inside = name + ".";
    const bool isRead = std::any_of(used_.begin(), used_.end(),
                                    [&](const auto& used) { return used.starts_with(inside); });
    if (item.kind == Node::Kind::kMap && isRead)
      collect(item, name, names);
    else
      names.push_back(name);
  }
}

std::vector<std::string> Config::unused() const {
  std::vector<std::string> names;
  collect(root_, "", names);
  return names;
}

}  // namespace trireme::codegen
