#include "ir/spec/map_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "ir/spec/quantity.h"

namespace trireme::spec {
namespace {

Status expected(std::string_view what, const Node& node) {
  return invalidArgument(fmt::format("expected {}, got {}{}", what, describe(node),
                                     node.quoted ? " (text in quotes)" : ""));
}

// "device." as the subject of a message: "device: ".
std::string subject(std::string_view path) {
  if (path.empty()) return "";
  return fmt::format("{}: ", path.substr(0, path.size() - 1));
}

// The value as an example within a message, if it is short enough to be one.
std::string exampleOf(const Node& node) {
  const bool shows = node.kind == Node::Kind::kScalar && node.text.size() <= 32 &&
                     node.text.find_first_of("\r\n") == std::string::npos;
  return shows ? node.text : "...";
}

bool isPlain(const Node& node) { return node.kind == Node::Kind::kScalar && !node.quoted; }

template <typename T>
Status readInteger(const Node& node, std::string_view what, T* out) {
  if (!isPlain(node)) return expected(what, node);
  const char* end = node.text.data() + node.text.size();
  const auto [stop, code] = std::from_chars(node.text.data(), end, *out);
  if (code == std::errc::result_out_of_range)
    return invalidArgument(fmt::format("{} is out of range", describe(node)));
  if (code != std::errc() || stop != end) return expected(what, node);
  return {};
}

template <typename T>
Status readQuantity(const Node& node, Result<T> (*parse)(std::string_view), T* out) {
  if (node.kind != Node::Kind::kScalar) return expected("a number with a unit", node);
  Result<T> value = parse(node.text);
  if (!value.has_value()) return value.error().withContext(describe(node));
  *out = *value;
  return {};
}

}  // namespace

Status readValue(const Node& node, int64_t* out) {
  return readInteger(node, "a whole number", out);
}
Status readValue(const Node& node, uint64_t* out) {
  return readInteger(node, "a whole number that is not negative", out);
}

Status readValue(const Node& node, double* out) {
  if (!isPlain(node)) return expected("a number", node);
  Result<double> value = parseDecimal(node.text);
  if (!value.has_value()) return value.error().withContext(describe(node));
  *out = *value;
  return {};
}

Status readValue(const Node& node, bool* out) {
  if (!isPlain(node) || (node.text != "true" && node.text != "false"))
    return expected("true or false", node);
  *out = node.text == "true";
  return {};
}

Status readValue(const Node& node, std::string* out) {
  if (node.kind != Node::Kind::kScalar) return expected("text", node);
  *out = node.text;
  return {};
}

Status readValue(const Node& node, Bytes* out) { return readQuantity(node, parseBytes, out); }
Status readValue(const Node& node, Seconds* out) { return readQuantity(node, parseSeconds, out); }
Status readValue(const Node& node, BytesPerSecond* out) {
  return readQuantity(node, parseBytesPerSecond, out);
}
Status readValue(const Node& node, FlopsPerSecond* out) {
  return readQuantity(node, parseFlopsPerSecond, out);
}
Status readValue(const Node& node, Watts* out) { return readQuantity(node, parseWatts, out); }

MapReader::MapReader(const std::string& file, const Node& node, std::string path)
    : file_(file), node_(node), path_(std::move(path)) {
  if (node.kind != Node::Kind::kMap)
    error_ = errorAt(
        file_, node.mark,
        fmt::format("{}expected a map of keys and values, got {}", subject(path_), describe(node)));
}

const Node* MapReader::child(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
  const Node* node = node_.find(key);
  return node && nullIsAbsent_ && node->kind == Node::Kind::kNull ? nullptr : node;
}

const Node* MapReader::requiredChild(std::string_view key) {
  const Node* node = child(key);
  if (!node) missing_.push_back(path_ + std::string(key));
  return node;
}

Status MapReader::missingKeys() const {
  if (missing_.empty()) return {};
  return errorAt(file_, node_.mark, fmt::format("{}: missing", fmt::join(missing_, ", ")));
}

void MapReader::fail(const Node& node, std::string_view message) { fail(node, node, message); }

void MapReader::fail(const Node& named, const Node& place, std::string_view message) {
  if (error_.ok())
    error_ = errorAt(file_, place.mark, fmt::format("{}{}: {}", path_, named.key, message));
}

void MapReader::check(const Node& node, const Status& status) {
  if (!status.ok()) fail(node, status.message());
}

void MapReader::merge(const Status& status) {
  if (error_.ok()) error_ = status;
}

Status MapReader::errorFor(const Problem& problem) const {
  const Node* node = node_.find(problem.key);
  return errorAt(file_, node ? node->mark : node_.mark,
                 fmt::format("{}{}: {}", path_, problem.key, problem.message));
}

Status MapReader::finish(Unknown unknown) const {
  if (node_.kind != Node::Kind::kMap) return error_;
  for (const Node& item : node_.items) {
    if (std::find(known_.begin(), known_.end(), item.key) != known_.end()) continue;
    const std::string message =
        unknown == Unknown::kCannotTell
            ? fmt::format(
                  "unknown option {}: cannot tell whether it changes the model; "
                  "if it does not, remove it",
                  quoteForMessage(item.key))
            : fmt::format("unknown key {}{}", quoteForMessage(item.key),
                          suggestion(item.key, known_));
    return errorAt(file_, item.keyMark, subject(path_) + message);
  }
  return firstValueError();
}

void MapReader::failEnum(const Node& node, const std::vector<std::string>& known) {
  if (node.kind == Node::Kind::kScalar)
    fail(node, fmt::format("unknown value {}{}", describe(node), suggestion(node.text, known)));
  else
    fail(node, fmt::format("expected one of {}, got {}", fmt::join(known, ", "), describe(node)));
}

const Node* MapReader::openSourced(const Node& node) {
  if (node.kind != Node::Kind::kMap) {
    fail(node, fmt::format("a number needs a source; write {{value: {}, source: \"who says so\"}}",
                           exampleOf(node)));
    return nullptr;
  }
  MapReader map(file_, node, path_ + node.key + ".");
  const Node* value = map.requiredChild("value");
  std::string source;
  map.required("source", &source);
  if (const Status status = map.finish(); !status.ok()) {
    merge(status);
    return nullptr;
  }
  if (source.find_first_not_of(" \t\n\r") == std::string::npos) {
    fail(node, "the source is empty: say where the number comes from");
    return nullptr;
  }
  if (sources_) (*sources_)[path_ + node.key] = std::move(source);
  return value;
}

}  // namespace trireme::spec
