#include "planner/whatif/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/spec/map_reader.h"
#include "ir/spec/quantity.h"

namespace trireme::planner {
namespace {

constexpr double kDay = 86400;

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(' ') - begin + 1));
}

std::vector<std::string> split(const std::string& text, std::string_view separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(trimmed(std::string_view(text).substr(begin, end - begin)));
    if (end == std::string::npos) return parts;
    begin = end + separator.size();
  }
}

// Where the unit of "2.5e3 GB/s" begins: behind what looks like a number.
size_t unitPlace(std::string_view text) {
  const auto isDigit = [&](size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  size_t i = 0;
  while (i < text.size() && (isDigit(i) || std::string_view("+-.").find(text[i]) != text.npos)) ++i;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E') && i > 0) {
    const size_t sign = i + 1 < text.size() && (text[i + 1] == '-' || text[i + 1] == '+') ? 1 : 0;
    if (isDigit(i + 1 + sign))
      for (i += 1 + sign; isDigit(i);) ++i;
  }
  return i;
}

std::string unitOf(const std::string& text) {
  return trimmed(std::string_view(text).substr(unitPlace(text)));
}

// One piece of a list: a value, or a range with both ends and perhaps a step.
struct Piece {
  std::string first, last, step;
};

Error refused(std::string message) { return Error(invalidArgument(std::move(message))); }

Result<std::vector<Piece>> piecesOf(const std::string& text, std::string_view example) {
  std::vector<Piece> pieces;
  for (const std::string& item : split(text, ",")) {
    const std::vector<std::string> ends = split(item, "..");
    Piece piece{ends[0], "", ""};
    if (ends.size() > 1) {
      const std::vector<std::string> rest = split(ends[1], ":");
      piece.last = rest[0];
      if (rest.size() > 1) piece.step = rest[1];
      if (rest.size() > 2 || (rest.size() > 1 && rest[1].empty()) || rest[0].empty())
        piece.first = "";
    }
    if (piece.first.empty() || ends.size() > 2)
      return refused(
          fmt::format("expected a value, a list or a range such as '{}', got '{}'", example, text));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

template <typename T>
Status addRange(const Piece& piece, T first, T last, T step, bool isDoubled,
                std::vector<T>& values) {
  const std::string range = piece.first + ".." + piece.last;
  if (last < first)
    return invalidArgument(fmt::format("the range {} runs backwards; nearest: {}..{}", range,
                                       piece.last, piece.first));
  if (isDoubled) {
    for (T value = first; value < last; value *= 2) {
      values.push_back(value);
      if (value > last / 2) break;
    }
    values.push_back(last);
    return {};
  }
  if (step > last - first && last > first)
    return invalidArgument(fmt::format("step {} is longer than the range {}", piece.step, range));
  // A millionth of a step is rounding: ten steps of 0.1 end at 1.
  const auto steps =
      static_cast<double>((last - first) / step + (std::is_integral_v<T> ? 0 : 1e-6));
  if (steps > static_cast<double>(kMostValues))
    return invalidArgument(fmt::format("the range {} has more than {} values; give a longer step",
                                       range, kMostValues));
  for (int64_t i = 0; static_cast<double>(i) <= steps; ++i)
    values.push_back(std::min(last, first + static_cast<T>(i) * step));
  return {};
}

std::vector<std::string> namesOf(const UnitKind& kind) {
  std::vector<std::string> names;
  for (const UnitKind::Unit& unit : kind.units) names.emplace_back(unit.name);
  return names;
}

}  // namespace

const UnitKind& rateUnits() {
  static const UnitKind kKind{"400 Gbit/s",
                              {{"B/s", 1},
                               {"kB/s", 1e3},
                               {"MB/s", 1e6},
                               {"GB/s", 1e9},
                               {"TB/s", 1e12},
                               {"MiB/s", 1048576.0},
                               {"GiB/s", 1073741824.0},
                               {"TiB/s", 1099511627776.0},
                               {"Mbit/s", 125e3},
                               {"Gbit/s", 125e6},
                               {"Tbit/s", 125e9},
                               {"Mb/s", 125e3},
                               {"Gb/s", 125e6},
                               {"Tb/s", 125e9},
                               {"Mbps", 125e3},
                               {"Gbps", 125e6},
                               {"Tbps", 125e9}},
                              0,
                              1e15,
                              false,
                              "no network or storage moves more than 1000 TB/s"};
  return kKind;
}

const UnitKind& durationUnits() {
  static const UnitKind kKind{
      "30 d", {{"s", 1}, {"min", 60}, {"h", 3600}, {"d", kDay}, {"y", 365 * kDay}},
      0,      1000 * 365 * kDay,
      false,  "a thousand years at most"};
  return kKind;
}

const UnitKind& pauseUnits() {
  static const UnitKind kKind = [] {
    UnitKind kind = durationUnits();
    kind.example = "10 min";
    kind.leastAllowed = true;
    return kind;
  }();
  return kKind;
}

const UnitKind& priceUnits() {
  static const UnitKind kKind{
      "2.5 USD/h", {{"USD/h", 1}}, 0,
      1000,        true,           "the price is that of one device and hour, 1000 USD/h at most"};
  return kKind;
}

const UnitKind& moneyUnits() {
  static const UnitKind kKind{"5 MUSD", {{"USD", 1}, {"kUSD", 1e3}, {"MUSD", 1e6}, {"GUSD", 1e9}},
                              0,        1e12,
                              false,    "1000 GUSD at most"};
  return kKind;
}

const UnitKind& powerUnits() {
  static const UnitKind kKind{"700 W", {{"W", 1}, {"kW", 1e3}, {"MW", 1e6}},
                              0,       1e5,
                              false,   "the power is that of one device, 100 kW at most"};
  return kKind;
}

const UnitKind& tokenUnits() {
  static const UnitKind kKind{
      "15T", {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"B", 1e9}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}},
      1,     1e18,
      true,  "1000P tokens at most"};
  return kKind;
}

Result<double> parseUnit(const std::string& text, const UnitKind& kind) {
  const std::string whole = trimmed(text), unit = unitOf(whole);
  const std::string number = trimmed(std::string_view(whole).substr(0, unitPlace(whole)));
  const Result<double> value = spec::parseDecimal(number);
  if (!value.has_value())
    return refused(fmt::format("expected a number such as '{}', got '{}'", kind.example, text));
  const auto found = std::find_if(kind.units.begin(), kind.units.end(),
                                  [&](const UnitKind::Unit& u) { return u.name == unit; });
  if (found == kind.units.end() && unit.empty())
    return refused(fmt::format("'{}' has no unit; write it like '{}'; units: {}", text,
                               kind.example, fmt::join(namesOf(kind), ", ")));
  if (found == kind.units.end())
    return refused(fmt::format("unknown unit '{}'{}; write it like '{}'", unit,
                               spec::suggestion(unit, namesOf(kind)), kind.example));
  const double result = *value * found->factor;
  if (result < kind.least || (result == kind.least && !kind.leastAllowed))
    return refused(fmt::format("must be {} {}, got '{}'", kind.leastAllowed ? "at least" : "above",
                               kind.least, text));
  if (!(result <= kind.most)) return refused(fmt::format("'{}': {}", text, kind.absurd));
  return result;
}

namespace {

// In the largest unit of which it is at least one, or the least that has a name.
std::string withUnit(double value, const UnitKind& kind) {
  const UnitKind::Unit* best = &kind.units[1];
  for (const UnitKind::Unit& unit : kind.units)
    if (unit.factor > best->factor && value >= unit.factor) best = &unit;
  return fmt::format("{}{}", value / best->factor, best->name);
}

// Where a number may stand without a unit, one beside others that have one may mean itself. In a
// range it has the other end's.
Status checkBare(const std::vector<Piece>& pieces, const std::string& common,
                 const UnitKind& kind) {
  if (common.empty() || !kind.units.front().name.empty()) return {};
  for (const Piece& piece : pieces) {
    const Result<double> value = spec::parseDecimal(piece.first);
    if (!value.has_value() || !unitOf(piece.last).empty() || !unitOf(piece.step).empty()) continue;
    std::vector<std::string> texts;
    for (const std::string& text : {piece.first + common, withUnit(*value, kind)})
      if (parseUnit(text, kind).has_value()) texts.push_back(fmt::format("'{}'", text));
    if (texts.empty()) continue;  // no such number with any unit
    return invalidArgument(fmt::format("'{}' beside numbers with a unit: write {}", piece.first,
                                       fmt::join(texts, " or ")));
  }
  return {};
}

}  // namespace

Result<std::vector<double>> parseUnits(const std::string& text, const UnitKind& kind,
                                       bool* isRange) {
  TRIREME_ASSIGN_OR_RETURN(const std::vector<Piece> pieces, piecesOf(text, kind.example));
  if (isRange)
    *isRange = std::any_of(pieces.begin(), pieces.end(),
                           [](const Piece& piece) { return !piece.last.empty(); });
  // The last one that is written stands for all numbers without.
  std::string common;
  for (const Piece& piece : pieces)
    for (const std::string* part : {&piece.first, &piece.last, &piece.step})
      if (const std::string unit = unitOf(*part); !unit.empty()) common = unit;
  TRIREME_RETURN_IF_ERROR(checkBare(pieces, common, kind));
  const auto read = [&](const std::string& number) {
    return parseUnit(unitOf(number).empty() && !common.empty() ? number + " " + common : number,
                     kind);
  };
  std::vector<double> values;
  for (const Piece& piece : pieces) {
    TRIREME_ASSIGN_OR_RETURN(const double first, read(piece.first));
    if (piece.last.empty()) {
      values.push_back(first);
      continue;
    }
    const bool isDoubled = piece.step.empty();
    if (isDoubled && !(first > 0))
      return refused(fmt::format("a range that doubles cannot begin at 0; give a step: '{}..{}:1'",
                                 piece.first, piece.last));
    double step = 0;
    if (!isDoubled) {
      TRIREME_ASSIGN_OR_RETURN(step, read(piece.step));
      if (!(step > 0)) return refused("the step of a range must be above 0");
    }
    TRIREME_ASSIGN_OR_RETURN(const double last, read(piece.last));
    TRIREME_RETURN_IF_ERROR(addRange(piece, first, last, step, isDoubled, values));
  }
  return values;
}

Result<std::vector<int64_t>> parseWhole(const std::string& text, int64_t least, bool byOnes) {
  TRIREME_ASSIGN_OR_RETURN(const std::vector<Piece> pieces,
                           piecesOf(text, byOnes ? "1..4" : "64..4096"));
  std::vector<int64_t> values;
  for (const Piece& piece : pieces) {
    TRIREME_ASSIGN_OR_RETURN(const int64_t first, spec::parseCount(piece.first, least));
    if (piece.last.empty()) {
      values.push_back(first);
      continue;
    }
    const bool isDoubled = piece.step.empty() && !byOnes;
    int64_t step = 1;
    if (!piece.step.empty()) {
      TRIREME_ASSIGN_OR_RETURN(step, spec::parseCount(piece.step, 1));
    }
    TRIREME_ASSIGN_OR_RETURN(const int64_t last, spec::parseCount(piece.last, least));
    TRIREME_RETURN_IF_ERROR(addRange(piece, first, last, step, isDoubled, values));
  }
  return withoutRepeats(values);
}

Result<std::vector<std::string>> parseNames(const std::string& text) {
  const std::vector<std::string> names = split(text, ",");
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (name->empty()) return refused(fmt::format("expected names between commas, got '{}'", text));
    if (std::find(names.begin(), name, *name) != name)
      return refused(fmt::format("'{}' is there twice: name it once", *name));
  }
  return names;
}

}  // namespace trireme::planner
