#include "cost_models/nccl_tests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "ir/base/format.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/quantity.h"

namespace trireme::cost {
namespace {

using spec::CollectiveKind;

struct Test {
  std::string_view name;
  CollectiveKind kind;
};
constexpr std::array<Test, 5> kTests = {{{"all_reduce_perf", CollectiveKind::kAllReduce},
                                         {"all_gather_perf", CollectiveKind::kAllGather},
                                         {"reduce_scatter_perf", CollectiveKind::kReduceScatter},
                                         {"alltoall_perf", CollectiveKind::kAllToAll},
                                         {"sendrecv_perf", CollectiveKind::kSend}}};

std::vector<std::string> testNames() {
  std::vector<std::string> names;
  for (const Test& test : kTests) names.emplace_back(test.name);
  return names;
}

// Bytes that cross a rank's link, over the size.
double busFactor(CollectiveKind kind, int64_t numRanks) {
  const auto n = static_cast<double>(numRanks);
  if (kind == CollectiveKind::kSend) return 1;
  return (kind == CollectiveKind::kAllReduce ? 2 : 1) * (n - 1) / n;
}

std::vector<std::string_view> fieldsOf(std::string_view line) {
  std::vector<std::string_view> fields;
  for (size_t i = 0; i < line.size();) {
    const size_t begin = line.find_first_not_of(" \t\r", i);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    i = end;
  }
  return fields;
}

std::string quote(std::string_view text) { return spec::quoteForMessage(std::string(text)); }

bool startsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

std::optional<int64_t> wholeNumber(std::string_view text) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Columns of the table that are read, of those out of place, but for the wrong results of both.
struct Columns {
  size_t count = 0, size = 0, time = 0, busBandwidth = 0;
  std::vector<size_t> wrong;
  bool isCount = true;  // of wrong results; older versions have the largest difference
};

// Without what comes in front of a line: a byte order mark, mpirun's "[1,0]<stdout>:" or srun's "0:
// ".
std::string_view contentOf(std::string_view line) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (startsWith(line, kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  const size_t rank = line.find_first_not_of(' '), end = line.find(": ");
  if (rank < end && end != std::string_view::npos && wholeNumber(line.substr(rank, end - rank)))
    return line.substr(end + 2);
  if (!startsWith(line, "[")) return line;
  for (const std::string_view tag : {"<stdout>:", "<stderr>:"})
    if (const size_t at = line.find(tag); at != std::string_view::npos && line[at - 1] == ']')
      return line.substr(at + tag.size());
  return line;
}

class Parser {
 public:
  Parser(const std::string& text, const std::string& name) : text_(text), name_(name) {}

  Result<std::vector<NcclSweep>> parse() {
    if (text_.size() > kMaxNcclBytes)
      return Error(at(fmt::format("longer than {} bytes", kMaxNcclBytes)));
    if (!spec::isValidUtf8(text_)) return Error(at("the file is not valid UTF-8"));
    for (size_t begin = 0; begin < text_.size();) {
      const size_t end = std::min(text_.find('\n', begin), text_.size());
      ++line_;
      TRIREME_RETURN_IF_ERROR(readLine(std::string_view(text_).substr(begin, end - begin)));
      begin = end + 1;
    }
    TRIREME_RETURN_IF_ERROR(finishSweep());
    if (sweeps_.empty())
      return Error(
          at("no table of nccl-tests; expected a line '#  size  count  type ...' and rows "
             "of numbers"));
    return std::move(sweeps_);
  }

 private:
  const std::string& text_;
  const std::string& name_;
  int line_ = 0;
  std::vector<NcclSweep> sweeps_;
  NcclSweep current_;
  std::map<std::string, size_t> hosts_;  // of the current one: places in ranksOnHosts
  std::optional<CollectiveKind> kind_;   // as a line of the text named it
  std::optional<Columns> columns_;
  bool isOpen_ = false;  // rows may follow

  Status at(const std::string& message) const {
    return invalidArgument(fmt::format("{}:{}: {}", name_, std::max(line_, 1), message));
  }

  Status readLine(std::string_view line) {
    const std::string_view content = contentOf(line);
    const std::vector<std::string_view> fields = fieldsOf(content);
    if (fields.empty()) return {};
    if (startsWith(fields[0], "#")) return readComment(fields);
    if (startsWith(content, "NCCL version") || content.find(" NCCL ") != std::string_view::npos)
      return {};
    // What launchers and shells print around the table.
    if (!isOpen_ && !wholeNumber(fields[0])) return {};
    return readRow(fields);
  }

  Status readComment(const std::vector<std::string_view>& fields) {
    const auto is = [&](size_t i, std::string_view word) {
      return fields.size() > i && fields[i] == word;
    };
    if (is(1, "Collective") && is(2, "test") && is(3, "starting:")) {
      TRIREME_RETURN_IF_ERROR(finishSweep());
      return readTestName(fields);
    }
    if (is(1, "nThread") && columns_) {  // The next run of a version that does not name itself.
      TRIREME_RETURN_IF_ERROR(finishSweep());
      kind_.reset();
    }
    const bool isSum = is(1, "Out") && is(2, "of") && is(3, "bounds");
    if (isSum && is(7, "FAILED"))
      return at(fmt::format("{} values are out of bounds: nothing to rely on", quote(fields[6])));
    if (isSum || is(1, "Avg")) isOpen_ = false;
    if (is(1, "Rank")) return readRank(fields);
    if (is(1, "size")) return readHead(fields);
    return {};
  }

  Status readTestName(const std::vector<std::string_view>& fields) {
    const std::string name(fields.size() > 4 ? fields[4] : "");
    for (const Test& test : kTests)
      if (test.name == name) {
        kind_ = test.kind;
        return {};
      }
    return at(fmt::format("unknown test {}{}", quote(name), spec::suggestion(name, testNames())));
  }

  Status readRank(const std::vector<std::string_view>& fields) {
    const std::optional<int64_t> rank =
        fields.size() > 2 ? wholeNumber(fields[2]) : std::optional<int64_t>();
    if (!rank) return at("expected the number of a rank, as in '#  Rank  0 Group  0 Pid ...'");
    if (columns_)
      return at("a rank below the table; expected '# nThread ...' of the next test first");
    if (*rank != current_.numRanks)
      return at(fmt::format("expected rank {}, got {}", current_.numRanks, *rank));
    // Ranks of one communicator have no number of a group, or the same.
    if (fields.size() > 4 && fields[3] == "Group" && wholeNumber(fields[4]) != 0)
      return at(
          fmt::format("rank {} is in group {}: groups that run at once (NCCL_TESTS_SPLIT) "
                      "share links, which is another measurement; run the test without",
                      *rank, quote(fields[4])));
    if (current_.numRanks == 0) current_.line = line_;
    ++current_.numRanks;
    return readPlace(fields);
  }

  // "... on node3 device  0 [0x07] NVIDIA A100-SXM4-80GB", as far as a version prints it; or
  // [0000:07:00].
  Status readPlace(const std::vector<std::string_view>& fields) {
    const auto behind = [&](auto isWord) {
      const auto found = std::find_if(fields.begin(), fields.end(), isWord);
      return found == fields.end() ? found : found + 1;
    };
    const auto host = behind([](std::string_view word) { return word == "on"; });
    if (host != fields.end()) {
      const size_t place = hosts_.emplace(*host, hosts_.size()).first->second;
      current_.ranksOnHosts.resize(hosts_.size());
      ++current_.ranksOnHosts[place];
    }
    const auto name =
        behind([](std::string_view word) { return word.front() == '[' && word.back() == ']'; });
    const std::string gpu = fmt::format("{}", fmt::join(name, fields.end(), " "));
    if (current_.numRanks > 1 && gpu != current_.gpu)
      return at(
          fmt::format("GPU {} beside {}: a curve is of one kind", quote(gpu), quote(current_.gpu)));
    current_.gpu = gpu;
    return {};
  }

  Status readHead(const std::vector<std::string_view>& fields) {
    if (columns_) return at("a second table; expected '# nThread ...' of the next test first");
    const std::vector<std::string_view> names(fields.begin() + 1, fields.end());
    const auto place = [&](std::string_view word) {
      return static_cast<size_t>(std::find(names.begin(), names.end(), word) - names.begin());
    };
    Columns columns{names.size(), place("size"), place("time"), place("busbw"), {}};
    columns.isCount = place("#wrong") < names.size();
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] == (columns.isCount ? "#wrong" : "error")) columns.wrong.push_back(i);
    for (const auto& [word, column] :
         {std::pair("time", columns.time),
          {"busbw", columns.busBandwidth},
          {"#wrong", columns.wrong.empty() ? names.size() : columns.wrong.front()}})
      if (column == names.size()) return at(fmt::format("the table has no column '{}'", word));
    columns_ = std::move(columns);
    isOpen_ = true;
    return nameCurrent();
  }

  // Which test it is, and of how many ranks, is known at the table's head.
  Status nameCurrent() {
    if (current_.numRanks == 0)
      return at("the ranks are missing above the table; expected lines '#  Rank  0 Group  0 ...'");
    if (current_.numRanks == 1)
      return at("a test of one rank measures no communication; expected at least 2 ranks");
    const std::string file = name_.substr(name_.find_last_of('/') + 1);
    for (const Test& test : kTests) {
      const std::string_view operation = test.name.substr(0, test.name.rfind('_'));
      if (!kind_ && file.find(operation) != std::string::npos) kind_ = test.kind;
    }
    if (!kind_)
      return at(
          fmt::format("cannot tell which test this is; expected a line '# Collective test "
                      "starting: all_reduce_perf' above, or one of {} in the file's name, with or "
                      "without '_perf'",
                      fmt::join(testNames(), ", ")));
    current_.kind = *kind_;
    return {};
  }

  Status readRow(const std::vector<std::string_view>& fields) {
    if (!columns_)
      return at(
          fmt::format("expected a comment that starts with '#', got {}; rows come below "
                      "the table's head '#  size  count ...'",
                      quote(fields[0])));
    if (fields.size() != columns_->count)
      return at(fmt::format("expected {} columns as in the table's head, got {}", columns_->count,
                            fields.size()));
    const auto number = [&](size_t column) {
      const Result<double> value = spec::parseDecimal(std::string(fields[column]));
      return value.has_value() && *value >= 0 ? std::optional<double>(*value) : std::nullopt;
    };
    const std::optional<int64_t> size = wholeNumber(fields[columns_->size]);
    const std::optional<double> time = number(columns_->time), bus = number(columns_->busBandwidth);
    if (!size || *size < 0)
      return at(fmt::format("expected a size in bytes, got {}", quote(fields[columns_->size])));
    if (!time || !bus)
      return at(fmt::format("expected a time in us and a bus bandwidth in GB/s, got {} and {}",
                            quote(fields[columns_->time]), quote(fields[columns_->busBandwidth])));
    for (const size_t column : columns_->wrong)
      TRIREME_RETURN_IF_ERROR(checkResults(fields[column]));
    if (*size == 0) return {};
    return addPoint(static_cast<double>(*size), *time, *bus);
  }

  // "#wrong" counts, in five digits or as 1.04858e+06, or is N/A if nobody looked; the "error" of
  // older versions is a difference such as 1e-07.
  Status checkResults(std::string_view wrong) {
    const Result<double> number = spec::parseDecimal(std::string(wrong));
    if (wrong == "N/A") return {};
    if (!number.has_value() || *number < 0)
      return at(fmt::format("expected the number of wrong results or N/A, got {}", quote(wrong)));
    if (columns_->isCount && *number > 0)
      return at(fmt::format("{} results are wrong: nothing to rely on", wrong));
    if (*number >= 1) return at(fmt::format("results are wrong by {}: nothing to rely on", wrong));
    return {};
  }

  Status addPoint(double size, double micros, double printedBus) {
    if (!(micros > 0)) return at("a time of 0 us; expected a time above 0");
    const double factor = busFactor(current_.kind, current_.numRanks);
    const double bus = factor * size / (micros * 1e-6);  // B/s
    // Printed with two decimals, and the time with as few as three digits.
    if (std::abs(bus * 1e-9 - printedBus) > 0.006 + 0.01 * printedBus)
      return at(
          fmt::format("a bus bandwidth of {} GB/s does not follow from the size and the time "
                      "among {} ranks, which give {:.2f} GB/s; is this another test, or are "
                      "ranks missing?",
                      printedBus, current_.numRanks, bus * 1e-9));
    if (!current_.points.empty() && Bytes(size) <= current_.points.back().bytes)
      return at(fmt::format("sizes must increase, {} does not after {}", size,
                            current_.points.back().bytes.count()));
    // The digits that were measured, not those of the division.
    const std::string digits = fmt::format("{:.3e}", bus);
    double value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    current_.points.push_back({Bytes(size), BytesPerSecond(value)});
    return {};
  }

  Status finishSweep() {
    if (current_.numRanks > 0 && !columns_) return at("ranks, but no table below them");
    if (columns_ && current_.points.empty()) return at("a table without rows");
    if (columns_) sweeps_.push_back(std::move(current_));
    current_ = {};
    hosts_.clear();
    columns_.reset();
    isOpen_ = false;
    return {};
  }
};

}  // namespace

Result<std::vector<NcclSweep>> parseNcclTests(const std::string& text, const std::string& name) {
  return Parser(text, name).parse();
}

// Where hosts are the blocks of the tier before and had fewer ranks than they have devices.
int64_t perBlockOf(const spec::ClusterSpec& cluster, size_t tier, const NcclSweep& sweep) {
  if (tier == 0 || sweep.numHosts() < 2) return 0;
  const int64_t ranks = sweep.ranksOnHosts.front(), host = cluster.tiers[tier - 1].devices;
  return host == cluster.devicesPerHost() && ranks < host ? ranks : 0;
}

// A curve is of groups that fill their hosts, or have as many ranks on each.
static Status checkHosts(const spec::ClusterSpec& cluster, const NcclSweep& sweep) {
  if (sweep.ranksOnHosts.empty()) return {};
  const auto [fewest, most] =
      std::minmax_element(sweep.ranksOnHosts.begin(), sweep.ranksOnHosts.end());
  if (const int64_t host = cluster.devicesPerHost(); host > 0 && *most > host)
    return invalidArgument(
        fmt::format("the test ran with {} ranks on a host, hosts of cluster {} have {} device{}: "
                    "name a cluster of such hosts, or say 'devices_per_host: {}' in its file",
                    *most, cluster.name, host, host == 1 ? "" : "s", *most));
  if (*fewest == *most) return {};
  return invalidArgument(fmt::format(
      "the test ran with {} ranks on one host and {} on another; expected as many on each", *most,
      *fewest));
}

// Of how many devices the ranks of a block have the links: fewer than it has devices have those of
// their ports, which several devices share.
static int64_t devicesWorth(const spec::ClusterSpec& cluster, size_t tier, const NcclSweep& sweep) {
  if (tier == 0) return 1;
  const int64_t devices = cluster.tiers[tier - 1].devices;
  const int64_t perBlock = perBlockOf(cluster, tier, sweep), ports = cluster.tiers[tier].nics;
  if (perBlock == 0) return devices;
  return std::min(devices, perBlock * std::max<int64_t>(ports > 0 ? devices / ports : devices, 1));
}

Status checkBandwidth(const spec::ClusterSpec& cluster, size_t tier, const NcclSweep& sweep) {
  constexpr double kMost = 4, kLeast = 1e-3;
  const BytesPerSecond links =
      cluster.tiers[tier].bandwidth * static_cast<double>(devicesWorth(cluster, tier, sweep));
  const auto rate = [](BytesPerSecond r) { return fmt::format("{:.1f} GB/s", r.count() / 1e9); };
  for (const spec::CollectivePoint& point : sweep.points)
    if (point.busBandwidth > links * kMost)
      return invalidArgument(fmt::format(
          "{} with {}, where the links of tier {} have {}: expected no more than {} times as much; "
          "is it a test of another cluster?",
          rate(point.busBandwidth), formatBytes(point.bytes), cluster.tiers[tier].name, rate(links),
          kMost));
  const spec::CollectivePoint& last = sweep.points.back();
  const BytesPerSecond link = cluster.tiers[tier].bandwidth;
  if (last.bytes >= kLargeMessage && last.busBandwidth < link * kLeast)
    return invalidArgument(fmt::format(
        "{:.4g} GB/s with {}, where a device's link of tier {} has {}: expected a thousandth of "
        "it at least; is it a test of another cluster, or did NCCL not find the network?",
        last.busBandwidth.count() / 1e9, formatBytes(last.bytes), cluster.tiers[tier].name,
        rate(link)));
  return {};
}

Status addSweep(spec::ClusterSpec& cluster, size_t tier, const NcclSweep& sweep,
                const std::string& source) {
  spec::LinkTier& to = cluster.tiers[tier];
  if (!cluster.holdsGroup(tier, sweep.numRanks))
    return invalidArgument(fmt::format("tier {} of cluster {} joins {} devices, the test ran on {}",
                                       to.name, cluster.name, to.devices, sweep.numRanks));
  TRIREME_RETURN_IF_ERROR(checkHosts(cluster, sweep));
  const int64_t perBlock = perBlockOf(cluster, tier, sweep);
  std::erase_if(to.curves, [&](const spec::CollectiveCurve& curve) {
    return curve.kind == sweep.kind && curve.group == sweep.numRanks && curve.perBlock == perBlock;
  });
  to.curves.push_back({sweep.kind, sweep.numRanks, sweep.points, source, perBlock});
  return {};
}

Result<double> efficiencyOf(const spec::ClusterSpec& cluster, size_t tier, const NcclSweep& sweep) {
  using spec::CollectiveKind;
  const auto none = [](std::string why) { return Error(invalidArgument(std::move(why))); };
  const bool isRing = sweep.kind == CollectiveKind::kAllReduce ||
                      sweep.kind == CollectiveKind::kAllGather ||
                      sweep.kind == CollectiveKind::kReduceScatter;
  const spec::CollectivePoint& last = sweep.points.back();
  const spec::LinkTier& of = cluster.tiers[tier];
  if (!isRing) return none("an all-gather, reduce-scatter or all-reduce would");
  if (last.bytes < kLargeMessage)
    return none(fmt::format("messages of {} and more would, these end with {}",
                            formatBytes(kLargeMessage), formatBytes(last.bytes)));
  int64_t inside = 1;
  if (tier == 0 && sweep.numRanks < of.devices)
    return none(
        fmt::format("all {} devices of the tier would, not {}", of.devices, sweep.numRanks));
  if (tier > 0) {
    inside = cluster.tiers[tier - 1].devices;
    const int64_t within = tier > 1 ? cluster.tiers[tier - 2].devices : 1;
    const BytesPerSecond links = cluster.tiers[tier - 1].sustained() * static_cast<double>(within);
    if (sweep.numRanks % inside != 0 || perBlockOf(cluster, tier, sweep) > 0)
      return none(fmt::format("all {} devices of each block of tier {} would", inside,
                              cluster.tiers[tier - 1].name));
    if (last.busBandwidth >= links)
      return none(fmt::format("the links of tier {} may be what it measured: they are no faster",
                              cluster.tiers[tier - 1].name));
  }
  const double share =
      last.busBandwidth / (of.bandwidth * static_cast<double>(inside)) * of.oversubscription;
  if (share > 1)
    return none(sweep.kind == CollectiveKind::kAllReduce
                    ? "it beats the line rate, as switches that reduce do; an all-gather would"
                    : "it beats the line rate, which may be wrong in the cluster's file");
  return share;
}

}  // namespace trireme::cost
