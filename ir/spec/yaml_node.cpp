#include "ir/spec/yaml_node.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <exception>
#include <sstream>

#include "ir/spec/json_node.h"
#include "ir/spec/tree_builder.h"

namespace trireme::spec {
namespace {

// Number of bytes of the UTF-8 sequence at `i`, 0 if it is malformed (overlong forms and surrogates
// included).
size_t utf8Length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || i + length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k)
    if ((byte(i + k) & 0xC0) != 0x80) return 0;
  const unsigned char second = byte(i + 1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
    return 0;
  return length;
}

Mark fromYaml(const YAML::Mark& mark) {
  return mark.is_null() ? Mark{} : Mark{mark.line + 1, mark.column + 1};
}

// Refuses what is not in the subset; leaves the rest to the builder.
class YamlEvents : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuseAnchor(mark, anchor);
    Node node;
    node.mark = fromYaml(mark);
    builder.add(std::move(node));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refusal{fromYaml(mark), "aliases (*name) are not supported: write the value out"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuseAnchor(mark, anchor);
    refuseTag(mark, tag);
    // yaml-cpp reads "\N" and "\_" as single bytes of Latin-1.
    if (!isValidUtf8(value))
      throw Refusal{fromYaml(mark), "an escape in this text does not give valid UTF-8"};
    Node node;
    node.kind = Node::Kind::kScalar;
    node.mark = fromYaml(mark);
    node.text = value;
    node.quoted = tag == "!";
    builder.add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::kList);
  }
  void OnSequenceEnd() override { builder.close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::kMap);
  }
  void OnMapEnd() override { builder.close(); }

  TreeBuilder builder;

 private:
  static void refuseAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor)
      throw Refusal{fromYaml(mark), "anchors (&name) are not supported: write the value out"};
  }

  // yaml-cpp reports "?" for plain values and "!" for quoted ones.
  static void refuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!")
      throw Refusal{fromYaml(mark), "tags (!name) are not supported"};
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            Node::Kind kind) {
    refuseAnchor(mark, anchor);
    refuseTag(mark, tag);
    builder.open(kind, fromYaml(mark));
  }
};

}  // namespace

// yaml-cpp takes some control characters for its own marks (0x04 is its end of file): none reaches
// it.
Status checkText(const std::string& text, const std::string& name) {
  if (text.size() > kMaxDocumentBytes)
    return errorAt(name, {}, fmt::format("the file is larger than {} bytes", kMaxDocumentBytes));
  Mark mark;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F)
      return errorAt(name, mark, fmt::format("control character 0x{:02x}", byte));
    const size_t length = utf8Length(text, i);
    if (length == 0) return errorAt(name, mark, "the file is not valid UTF-8");
    i += length;
    mark = byte == '\n' ? Mark{mark.line + 1, 1} : Mark{mark.line, mark.column + 1};
  }
  return {};
}

const Node* Node::find(std::string_view name) const {
  if (kind != Kind::kMap) return nullptr;
  for (const Node& item : items)
    if (item.key == name) return &item;
  return nullptr;
}

std::string quoteForMessage(std::string_view text) {
  constexpr size_t kMaxShown = 48;
  std::string shown = "'";
  for (size_t i = 0; i < text.size(); ++i) {
    // Cut before a character, never within one.
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (i >= kMaxShown && starts) {
      shown += "...";
      break;
    }
    shown += static_cast<unsigned char>(text[i]) < 0x20 ? ' ' : text[i];
  }
  return shown + "'";
}

std::string describe(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "nothing";
    case Node::Kind::kScalar:
      return quoteForMessage(node.text);
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a map";
  }
  return "nothing";
}

bool isValidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8Length(text, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

Status errorAt(const std::string& name, Mark mark, std::string_view message) {
  return invalidArgument(fmt::format("{}:{}:{}: {}", name, mark.line, mark.column, message));
}

Result<Node> parseDocument(const std::string& text, const std::string& name) {
  TRIREME_RETURN_IF_ERROR(checkText(text, name));
  if (name.ends_with(".json")) return parseJson(text, name);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    YamlEvents events;
    if (!parser.HandleNextDocument(events)) return Error(errorAt(name, {}, "the file is empty"));
    YamlEvents rest;
    if (parser.HandleNextDocument(rest))
      return Error(
          errorAt(name, rest.builder.root.mark, "expected one document, found a second one"));
    return std::move(events.builder.root);
  } catch (const Refusal& refusal) {
    return Error(errorAt(name, refusal.mark, refusal.message));
  } catch (const YAML::Exception& error) {
    return Error(errorAt(name, fromYaml(error.mark), fmt::format("not valid YAML: {}", error.msg)));
  } catch (const std::exception& error) {
    return Error(errorAt(name, {}, fmt::format("not valid YAML: {}", error.what())));
  }
}

}  // namespace trireme::spec
