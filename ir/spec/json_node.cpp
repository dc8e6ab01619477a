#include "ir/spec/json_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ir/spec/tree_builder.h"
#include "ir/spec/yaml_node.h"

namespace trireme::spec {
namespace {

using nlohmann::json;

// An input iterator that tells how far the parser has read.
struct TextIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  const char** furthest = nullptr;

  reference operator*() const { return *at; }
  TextIterator& operator++() {
    *furthest = ++at;
    return *this;
  }
  TextIterator operator++(int) {
    const TextIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const TextIterator& other) const { return at == other.at; }
  bool operator!=(const TextIterator& other) const { return at != other.at; }
};

// What nlohmann says, without its prefix, and not the whole of an unfinished text:
// "[json.exception.parse_error.101] parse error at line 1, column 2: what is wrong". It may end
// within a character.
std::string trimmed(const json::exception& error) {
  constexpr size_t kMost = 160;
  std::string_view what = error.what();
  for (const std::string_view prefix : {"] ", ": "})
    if (const size_t at = what.find(prefix);
        at != std::string_view::npos && (prefix == "] " || what.starts_with("parse error at")))
      what.remove_prefix(at + prefix.size());
  if (what.size() <= kMost) return std::string(what);
  size_t cut = kMost;
  while ((static_cast<unsigned char>(what[cut]) & 0xC0) == 0x80) --cut;
  return std::string(what.substr(0, cut)) + "...";
}

std::string messageOf(const json::exception& error) {
  std::string message = trimmed(error);
  if (!isValidUtf8(message))
    for (char& c : message)
      if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  return message;
}

// An event comes when its token has been read to its end (or, after a number, one character
// further), so the token starts at the first character behind the last one that is not punctuation.
class JsonEvents : public json::json_sax_t {
 public:
  explicit JsonEvents(const std::string& text) : text_(text), read_(text.data()) {}
  TextIterator begin() { return {text_.data(), &read_}; }
  TextIterator end() { return {text_.data() + text_.size(), &read_}; }

  bool null() override { return add(Node::Kind::kNull, "", false); }
  bool boolean(bool value) override {
    return add(Node::Kind::kScalar, value ? "true" : "false", false);
  }
  bool number_integer(number_integer_t) override { return addNumber(); }
  bool number_unsigned(number_unsigned_t) override { return addNumber(); }
  bool number_float(number_float_t, const string_t&) override { return addNumber(); }
  bool string(string_t& value) override { return add(Node::Kind::kScalar, value, true); }
  bool key(string_t& value) override { return add(Node::Kind::kScalar, value, true); }
  bool binary(binary_t&) override { return false; }  // Not in text.
  bool start_object(std::size_t) override { return open(Node::Kind::kMap); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Node::Kind::kList); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    throw Refusal{markOf(read_), "not valid JSON: " + messageOf(error)};
  }

  TreeBuilder builder;

 private:
  // The place of the token that was just read.
  const char* tokenStart() {
    const char* start = last_;
    while (start < read_ && std::string_view(" \t\r\n,:").find(*start) != std::string_view::npos)
      ++start;
    last_ = read_;
    return start;
  }
  // Of a place at or behind the last one asked for. Columns count characters, as in YAML.
  Mark markOf(const char* place) {
    for (; marked_ < place; ++marked_) {
      if (*marked_ == '\n')
        mark_ = {mark_.line + 1, 1};
      else if ((static_cast<unsigned char>(*marked_) & 0xC0) != 0x80)
        ++mark_.column;
    }
    return mark_;
  }
  bool add(Node::Kind kind, std::string value, bool quoted) {
    Node node;
    node.kind = kind;
    node.mark = markOf(tokenStart());
    node.text = std::move(value);
    node.quoted = quoted;
    builder.add(std::move(node));
    return true;
  }
  bool addNumber() {
    const char* start = tokenStart();
    const char* const end = text_.data() + text_.size();
    const char* stop = std::find_if_not(start, end, [](char c) {
      return std::string_view("+-.eE0123456789").find(c) != std::string_view::npos;
    });
    Node node;
    node.kind = Node::Kind::kScalar;
    node.mark = markOf(start);
    node.text = std::string(start, stop);
    last_ = stop;
    builder.add(std::move(node));
    return true;
  }
  bool open(Node::Kind kind) {
    builder.open(kind, markOf(tokenStart()));
    return true;
  }
  bool close() {
    last_ = read_;
    builder.close();
    return true;
  }

  const std::string& text_;
  const char* read_;          // how far the parser has read
  const char* last_ = read_;  // where the last token ended
  const char* marked_ = last_;
  Mark mark_;  // of marked_
};

}  // namespace

Result<Node> parseJson(const std::string& text, const std::string& name) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    return Error(errorAt(name, {}, "the file is empty"));
  try {
    JsonEvents events(text);
    json::sax_parse(events.begin(), events.end(), &events);
    return std::move(events.builder.root);
  } catch (const Refusal& refusal) {
    return Error(errorAt(name, refusal.mark, refusal.message));
  }
}

}  // namespace trireme::spec
