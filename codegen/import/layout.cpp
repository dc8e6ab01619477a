#include "codegen/import/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ir/spec/yaml_node.h"

namespace trireme::codegen {
namespace {

// More characters than any model has layers and stages.
constexpr size_t kMostCharacters = size_t{1} << 16;

// The number behind text[at] == '*', which is passed; 0 if there is none, or it is too large.
size_t factorAt(const std::string& text, size_t& at) {
  size_t factor = 0;
  for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
    factor = std::min(factor * 10 + static_cast<size_t>(text[at] - '0'), kMostCharacters + 1);
  return factor > kMostCharacters ? 0 : factor;
}

// The layout without repetitions; empty if it cannot be read.
std::string unrolled(const std::string& text) {
  std::string result;
  size_t open = std::string::npos;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    size_t unit = 1;  // characters that a factor repeats
    if (c == '(') {
      if (open != std::string::npos) return "";
      open = result.size();
      ++at;
      continue;
    }
    ++at;
    if (c == ')') {
      if (open == std::string::npos) return "";
      unit = result.size() - open;
      open = std::string::npos;
      if (at == text.size() || text[at] != '*') return "";
    } else {
      result += c;
    }
    if (at == text.size() || text[at] != '*') continue;
    const size_t factor = factorAt(text, at);
    if (factor == 0 || result.size() + unit * factor > kMostCharacters) return "";
    const std::string part = result.substr(result.size() - unit);
    for (size_t i = 1; i < factor; ++i) result += part;
  }
  return open == std::string::npos ? result : "";
}

}  // namespace

Result<std::vector<int64_t>> parseLayout(const std::string& layout, int64_t numLayers) {
  std::string text = layout;
  std::erase(text, ',');
  text = unrolled(text);
  const auto bad = [&](const std::string& why) {
    return Error(invalidArgument(fmt::format("is {}: {}; expected one like 'Ett|ttt|ttL'",
                                             spec::quoteForMessage(layout), why)));
  };
  if (text.find_first_not_of("EtL|") != std::string::npos || text.empty())
    return bad("it cannot be read");
  if (text.front() != 'E' || text.back() != 'L' || std::count(text.begin(), text.end(), 'E') != 1 ||
      std::count(text.begin(), text.end(), 'L') != 1)
    return bad("the embedding E is first and the loss L last");
  std::vector<int64_t> counts(1, 0);
  for (const char c : text) {
    if (c == '|') counts.push_back(0);
    if (c == 't') ++counts.back();
  }
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (sum != numLayers) return bad(fmt::format("it has {} layers, the model {}", sum, numLayers));
  return counts;
}

Result<std::vector<int64_t>> splitLayers(const StageSplit& s) {
  const auto bad = [](std::string why) { return Error(invalidArgument(std::move(why))); };
  const bool isUneven = s.first || s.last;
  const int64_t middleStages = s.pp - (s.first ? 1 : 0) - (s.last ? 1 : 0);
  const int64_t middle =
      s.numLayers + s.countsEmbedding + s.countsLoss - s.first.value_or(0) - s.last.value_or(0);
  if (middleStages < 0 || middle < 0 || (middleStages == 0 && middle != 0) ||
      (middleStages > 0 && middle % middleStages != 0))
    return bad(fmt::format("leaves {} layers to {} stages: they do not divide evenly", middle,
                           middleStages));
  const int64_t each = middleStages > 0 ? middle / middleStages : 0;
  for (const int64_t layers : {s.first.value_or(each), s.last.value_or(each), each})
    if (layers % s.virtualStages != 0 || (isUneven && layers < 1 && middleStages > 0))
      return bad(fmt::format("makes a stage of {} layers, which {} virtual stages do not divide",
                             layers, s.virtualStages));
  std::vector<int64_t> counts;
  for (int64_t chunk = 0; chunk < s.virtualStages; ++chunk)
    for (int64_t stage = 0; stage < s.pp; ++stage)
      counts.push_back((stage == 0 && s.first         ? *s.first
                        : stage == s.pp - 1 && s.last ? *s.last
                                                      : each) /
                       s.virtualStages);
  counts.front() -= s.countsEmbedding;
  counts.back() -= s.countsLoss;
  if (counts.front() < 0 || counts.back() < 0) return bad("leaves a stage without a layer to give");
  return counts;
}

std::vector<std::vector<plan::LayerRange>> layersOf(const std::vector<int64_t>& counts,
                                                    int64_t pp) {
  std::vector<std::vector<plan::LayerRange>> layers(static_cast<size_t>(pp));
  int64_t first = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    layers[i % static_cast<size_t>(pp)].push_back({first, counts[i]});
    first += counts[i];
  }
  return layers;
}

}  // namespace trireme::codegen
