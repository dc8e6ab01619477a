#include "codegen/import/mpi.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>

#include "codegen/import/shell_expansion.h"
#include "codegen/import/words.h"
#include "ir/spec/quantity.h"
#include "ir/spec/yaml_node.h"

namespace trireme::codegen {
namespace {

constexpr int64_t kMostRanks = 1 << 20;
// Open MPI's and Hydra's, with one dash or two.
constexpr std::array<std::string_view, 3> kAllRanks = {"np", "n", "c"};
constexpr std::array<std::string_view, 4> kRanksPerHost = {"N", "npernode", "ppn", "perhost"};

// The 8 of "ppr:8:node"; absent: ranks are mapped by something else.
std::optional<std::string> perNode(const std::string& policy) {
  constexpr std::string_view kBegin = "ppr:", kEnd = ":node";
  const size_t end = policy.find(kEnd);
  if (!policy.starts_with(kBegin) || end == std::string::npos) return std::nullopt;
  return policy.substr(kBegin.size(), end - kBegin.size());
}

Status readNumber(const std::string& option, const std::string& value, const std::string& place,
                  int64_t& number) {
  if (hasOpenPart(value)) return {};
  const Result<int64_t> parsed = spec::parseCount(value, 1);
  if (!parsed.has_value() || *parsed > kMostRanks)
    return invalidArgument(
        fmt::format("{}: {} of mpirun is {}; expected a whole number of at least 1", place, option,
                    spec::quoteForMessage(value)));
  number = *parsed;
  return {};
}

}  // namespace

Result<MpiRanks> readMpirun(const std::vector<std::string>& words, const std::string& place) {
  MpiRanks ranks;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string option = words[i].substr(0, equals);
    const size_t dashes = option.find_first_not_of('-');
    if (dashes == 0 || dashes > 2) continue;
    const std::string name = option.substr(dashes);
    const bool isPolicy = name == "map-by";
    const bool isAll = isIn(kAllRanks, name);
    if (!isPolicy && !isAll && !isIn(kRanksPerHost, name)) continue;
    if (equals == std::string::npos && i + 1 == words.size()) break;
    std::string value = equals == std::string::npos ? words[++i] : words[i].substr(equals + 1);
    if (isPolicy) {
      const std::optional<std::string> each = perNode(value);
      if (!each) continue;
      value = *each;
    }
    TRIREME_RETURN_IF_ERROR(readNumber(option, value, place, isAll ? ranks.all : ranks.perHost));
  }
  return ranks;
}

}  // namespace trireme::codegen
