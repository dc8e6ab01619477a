// A YAML (or JSON) document as a small tree in which every node knows its place.
//
// A name that ends in .json is read as JSON (RFC 8259), any other as YAML.
//
// The subset: one document of maps, lists and scalars. Anchors, aliases, tags, duplicate keys, keys
// that are not text, control characters and invalid UTF-8 are refused, and so are documents over
// the limits below. So any bytes give a tree or an error, in time and memory proportional to their
// number.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace trireme::spec {

inline constexpr size_t kMaxDocumentBytes = size_t{1} << 20;
inline constexpr int kMaxDocumentDepth = 64;

// A place in a file, from 1.
struct Mark {
  int line = 1;
  int column = 1;
};

struct Node {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  Mark mark;
  std::string text;     // of a scalar
  bool quoted = false;  // a quoted scalar is text, whatever it looks like
  std::string key;      // of a node within a map
  Mark keyMark;
  std::vector<Node> items;  // of a list or a map, in order

  // The item of a map with this key, or null.
  const Node* find(std::string_view name) const;
};

// What the node is, for messages: "a map", "a list", "nothing", "'text'" (shortened, without line
// breaks).
std::string describe(const Node& node);
std::string quoteForMessage(std::string_view text);

bool isValidUtf8(std::string_view text);

// What every text file must be: at most kMaxDocumentBytes of UTF-8 without control characters.
// kInvalidArgument.
Status checkText(const std::string& text, const std::string& name);

// "name:line:column: message", kInvalidArgument.
Status errorAt(const std::string& name, Mark mark, std::string_view message);

// `name` is the file's name in messages. Errors: kInvalidArgument.
Result<Node> parseDocument(const std::string& text, const std::string& name);

}  // namespace trireme::spec
