// graph.txt of PipeDream's profiler (Narayanan et al., SOSP 2019).
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <unordered_set>

#include "ir/spec/profile_builder.h"
#include "ir/spec/quantity.h"

namespace trireme::spec {
namespace {

// Where in the file a part of it stands; parts are views of the text.
struct Line {
  std::string_view text;
  int number = 1;
  Mark markOf(std::string_view part) const {
    return {number, static_cast<int>(part.data() - text.data()) + 1};
  }
};

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + separator.size());
  }
}

struct NodeLine {
  Line line;
  std::string id, name;
  double forward = 0, backward = 0;  // ms
  double activation = 0, weights = 0;
};

class Reader {
 public:
  Reader(const std::string& text, const std::string& name) : text_(text), name_(name) {}

  Result<ProfileSpec> read() {
    int number = 1;
    for (const std::string_view raw : split(text_, "\n")) {
      Line line{raw.ends_with('\r') ? raw.substr(0, raw.size() - 1) : raw, number++};
      if (line.text.find_first_not_of(" \t") == std::string_view::npos) continue;
      TRIREME_RETURN_IF_ERROR(line.text.starts_with('\t') ? readEdge(line) : readNode(line));
    }
    return build();
  }

 private:
  Status error(const Line& line, std::string_view part, std::string_view message) const {
    return errorAt(name_, line.markOf(part), message);
  }

  // "12.5", or "[1.0; 2.5]" of a layer with several outputs: their sum.
  Status readNumber(const Line& line, std::string_view text, bool mayBeList, double* out) const {
    std::vector<std::string_view> parts = {text};
    if (mayBeList && text.starts_with('[') && text.ends_with(']') && text.size() > 2)
      parts = split(text.substr(1, text.size() - 2), "; ");
    *out = 0;
    for (const std::string_view part : parts) {
      const Result<double> value = parseDecimal(part);
      if (!value.has_value())
        return error(line, part,
                     fmt::format("{}: {}", quoteForMessage(part), value.error().message()));
      *out += *value;
    }
    if (const Status status = checkMeasured(*out); !status.ok())
      return error(line, text, status.message());
    return {};
  }

  // "forward_compute_time=1.5, backward_compute_time=..."
  Status readMetadata(const Line& line, std::string_view text, NodeLine* node) const {
    std::map<std::string, double*> wanted = {{"forward_compute_time", &node->forward},
                                             {"backward_compute_time", &node->backward},
                                             {"activation_size", &node->activation},
                                             {"parameter_size", &node->weights}};
    std::vector<std::string> keys;
    for (const auto& [key, value] : wanted) keys.push_back(key);
    for (const std::string_view entry : split(text, ", ")) {
      const size_t equals = entry.find('=');
      if (equals == std::string_view::npos)
        return error(line, entry,
                     fmt::format("expected key=value, got {}", quoteForMessage(entry)));
      const std::string key(entry.substr(0, equals));
      const auto found = wanted.find(key);
      if (found == wanted.end())
        return error(line, entry,
                     fmt::format("unknown key {}{}", quoteForMessage(key), suggestion(key, keys)));
      if (!found->second) return error(line, entry, fmt::format("{} is there twice", key));
      TRIREME_RETURN_IF_ERROR(
          readNumber(line, entry.substr(equals + 1), key == "activation_size", found->second));
      found->second = nullptr;
    }
    std::string missing;
    for (const auto& [key, value] : wanted)
      if (value) missing += (missing.empty() ? "" : ", ") + key;
    if (missing.empty()) return {};
    return error(line, text,
                 fmt::format("layer {}: {}: missing", quoteForMessage(node->id), missing));
  }

  Status readNode(const Line& line) {
    const std::vector<std::string_view> parts = split(line.text, " -- ");
    if (parts.size() < 3 || parts.size() > 4)
      return error(line, line.text,
                   fmt::format("expected 'id -- layer -- forward_compute_time=..., ...', or a tab "
                               "and 'from -- to'; got {}",
                               quoteForMessage(line.text)));
    NodeLine node{line, std::string(parts[0]), std::string(parts[1])};
    TRIREME_RETURN_IF_ERROR(readMetadata(line, parts[2], &node));
    if (parts.size() == 4) {  // A stage that the optimizer has chosen before; read and dropped.
      int64_t stage = 0;
      std::string_view text = parts[3];
      if (!text.starts_with("stage_id="))
        return error(line, text, fmt::format("expected stage_id=N, got {}", quoteForMessage(text)));
      text.remove_prefix(std::string_view("stage_id=").size());
      const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), stage);
      if (code != std::errc() || stop != text.data() + text.size())
        return error(line, text,
                     fmt::format("expected a whole number, got {}", quoteForMessage(text)));
    }
    nodes_.push_back(std::move(node));
    return {};
  }

  Status readEdge(const Line& line) {
    const std::vector<std::string_view> ends = split(line.text.substr(1), " -- ");
    if (ends.size() != 2)
      return error(
          line, line.text,
          fmt::format("expected a tab and 'from -- to', got {}", quoteForMessage(line.text)));
    edges_.push_back({line, {std::string(ends[0]), std::string(ends[1])}});
    return {};
  }

  // What PipeDream's optimizer leaves out: it has no choice where inputs go.
  std::unordered_set<std::string> leftOut() const {
    std::unordered_set<std::string> sources, sinks;
    for (const NodeLine& node : nodes_) {
      if (node.name.starts_with("Input")) sources.insert(node.id);
      if (node.name.starts_with("__getitem__")) sinks.insert(node.id);
    }
    for (const auto& [line, ends] : edges_) {
      sources.erase(ends.second);
      sinks.erase(ends.first);
    }
    sources.merge(sinks);
    return sources;
  }

  // All lines go through a builder, so that every fault is found; then again without what is left
  // out.
  Result<ProfileSpec> build() const {
    TRIREME_ASSIGN_OR_RETURN(ProfileSpec whole, buildWithout({}));
    const std::unordered_set<std::string> omitted = leftOut();
    return omitted.empty() ? std::move(whole) : buildWithout(omitted);
  }

  Result<ProfileSpec> buildWithout(const std::unordered_set<std::string>& omitted) const {
    ProfileBuilder builder(name_);
    builder.profile.source = "a graph.txt of PipeDream's profiler";
    for (const NodeLine& node : nodes_) {
      if (omitted.contains(node.id)) continue;
      const Mark mark = node.line.markOf(node.line.text);
      ProfileLayer layer{node.id, node.name, Bytes(node.activation), {}};
      ProfileVariant variant;
      variant.forward = Seconds(node.forward / 1e3);
      variant.backward = Seconds(node.backward / 1e3);
      variant.weights = Bytes(node.weights);
      TRIREME_RETURN_IF_ERROR(builder.addLayer(mark, std::move(layer)));
      TRIREME_RETURN_IF_ERROR(builder.addVariant(mark, std::move(variant)));
    }
    for (const auto& [line, ends] : edges_) {
      if (omitted.contains(ends.first) || omitted.contains(ends.second)) continue;
      TRIREME_RETURN_IF_ERROR(
          builder.addEdge(line.markOf(line.text), ends.first, ends.second, std::nullopt));
    }
    return builder.finish();
  }

  const std::string& text_;
  const std::string& name_;
  std::vector<NodeLine> nodes_;
  std::vector<std::pair<Line, std::pair<std::string, std::string>>> edges_;
};

}  // namespace

Result<ProfileSpec> parsePipedreamProfile(const std::string& text, const std::string& name) {
  TRIREME_RETURN_IF_ERROR(checkText(text, name));
  return Reader(text, name).read();
}

}  // namespace trireme::spec
