#include <fmt/format.h>

// toml++ takes for granted that the key of a table's header begins as keys do, which damaged text
// breaks, and reports it a few lines later. With NDEBUG the compiler would leave the report out.
#undef NDEBUG
#define TOML_ASSERT(expr) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "codegen/import/config.h"

namespace trireme::codegen {
namespace {

using spec::Mark;
using spec::Node;

Mark markOf(const toml::source_region& region) {
  return {static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
}

Result<Node> convert(const toml::node& from, const std::string& file, int depth) {
  Node to;
  to.mark = markOf(from.source());
  if (depth > spec::kMaxDocumentDepth)
    return Error(spec::errorAt(
        file, to.mark, fmt::format("more than {} levels of tables", spec::kMaxDocumentDepth)));
  if (const toml::table* table = from.as_table()) {
    to.kind = Node::Kind::kMap;
    for (const auto& [key, value] : *table) {
      TRIREME_ASSIGN_OR_RETURN(Node item, convert(value, file, depth + 1));
      item.key = std::string(key.str());
      item.keyMark = markOf(key.source());
      to.items.push_back(std::move(item));
    }
    // toml++ sorts them.
    std::stable_sort(to.items.begin(), to.items.end(), [](const Node& a, const Node& b) {
      return std::pair(a.keyMark.line, a.keyMark.column) <
             std::pair(b.keyMark.line, b.keyMark.column);
    });
    return to;
  }
  if (const toml::array* array = from.as_array()) {
    to.kind = Node::Kind::kList;
    for (const toml::node& value : *array) {
      TRIREME_ASSIGN_OR_RETURN(Node item, convert(value, file, depth + 1));
      to.items.push_back(std::move(item));
    }
    return to;
  }
  to.kind = Node::Kind::kScalar;
  to.quoted = from.is_string();
  if (const auto text = from.value_exact<std::string>())
    to.text = *text;
  else if (const auto integer = from.value_exact<int64_t>())
    to.text = fmt::format("{}", *integer);
  else if (const auto real = from.value_exact<double>())
    to.text = fmt::format("{}", *real);
  else if (const auto isOn = from.value_exact<bool>())
    to.text = *isOn ? "true" : "false";
  else
    return Error(spec::errorAt(file, to.mark, "a date or a time makes no sense here"));
  return to;
}

}  // namespace

Result<Node> parseToml(const std::string& text, const std::string& file) {
  TRIREME_RETURN_IF_ERROR(spec::checkText(text, file));
  const toml::parse_result parsed = toml::parse(text, file);
  if (!parsed)
    return Error(spec::errorAt(file, markOf(parsed.error().source()),
                               std::string(parsed.error().description())));
  return convert(parsed.table(), file, 0);
}

}  // namespace trireme::codegen
