#include "codegen/import/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/import/formats.h"
#include "codegen/import/words.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/suggestion.h"

namespace trireme::codegen {

using spec::Node;

namespace {

bool isSame(const Node& a, const Node& b) {
  return a.kind == b.kind && a.text == b.text &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(),
                    [](const Node& x, const Node& y) { return x.key == y.key && isSame(x, y); });
}

}  // namespace

const Node* Config::locate(const std::string& path) const {
  const Node* node = &root_;
  for (size_t begin = 0; node && begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    node = node->kind == Node::Kind::kMap ? node->find(path.substr(begin, end - begin)) : nullptr;
    begin = end + 1;
  }
  return node;
}

std::string Config::spelled(const std::string& name) const {
  const auto names = older_.find(name);
  if (locate(name) || names == older_.end()) return name;
  const auto found = std::find_if(names->second.begin(), names->second.end(),
                                  [&](const std::string& older) { return locate(older); });
  return found == names->second.end() ? name : *found;
}

void Config::acceptAs(const std::string& older, const std::string& name) {
  used_.insert(older);
  const std::string other = spelled(name);
  const Node* const a = locate(older);
  const Node* const b = locate(other);
  if (a && b && !isSame(*a, *b))
    fail(older, fmt::format("is {}, but {}, which is the same setting, is {}", spec::describe(*a),
                            other, spec::describe(*b)));
  older_[name].push_back(older);
}

const Node* Config::find(const std::string& name) {
  used_.insert(name);
  const Node* node = locate(spelled(name));
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
                           const std::string& absent, const std::vector<std::string>& unpriced,
                           const std::string& nearest) {
  const std::string given = text(name, absent);
  if (!has(name) || isIn(choices, given)) return given;
  fail(name, whyNotAmong(given, choices, nearest.empty() ? absent : nearest, unpriced));
  return absent;
}

void Config::fail(const std::string& name, const std::string& message) {
  if (!error_.ok()) return;
  const std::string path = spelled(name);
  const Node* node = locate(path);
  const std::string text = fmt::format("{} {}", path, message);
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

// Names of the table at `path`, "" or "fp16.", that were asked for.
std::vector<std::string> Config::knownIn(const std::string& path) const {
  std::set<std::string> known;
  for (const std::set<std::string>* names : {&used_, &passed_})
    for (const std::string& name : *names)
      if (name.starts_with(path))
        known.insert(name.substr(path.size(), name.find('.', path.size()) - path.size()));
  return {known.begin(), known.end()};
}

void Config::refuseMisspelt() {
  for (const std::string& name : unused()) {
    const size_t last = name.rfind('.') + 1;  // 0 if there is none
    const std::string own = name.substr(last);
    for (const std::string& known : knownIn(name.substr(0, last)))
      if (spec::editDistance(spec::lowerCase(own), known) <= (own.size() < 8 ? 1U : 2U))
        return fail(name, fmt::format("is not known; did you mean '{}'?", known));
  }
}

std::vector<std::string> Config::unused() const {
  std::vector<std::string> names;
  collect(root_, "", names);
  return names;
}

}  // namespace trireme::codegen
