#include "ir/spec/quantity.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "ir/spec/suggestion.h"

namespace trireme::spec {
namespace {

// One spelling of a unit. Both factors are exact, and one of them is 1: "5 us" is 5 / 1e6, rounded
// once.
struct Unit {
  std::string_view name;
  double multiply = 1;
  double divide = 1;
};

constexpr double kKi = 1024.0;
constexpr double kMi = kKi * kKi;
constexpr double kGi = kMi * kKi;
constexpr double kTi = kGi * kKi;

constexpr Unit kBytes[] = {{"B"},        {"kB", 1e3},  {"MB", 1e6},  {"GB", 1e9}, {"TB", 1e12},
                           {"KiB", kKi}, {"MiB", kMi}, {"GiB", kGi}, {"TiB", kTi}};
constexpr Unit kSeconds[] = {
    {"s"}, {"ms", 1, 1e3}, {"us", 1, 1e6}, {"ns", 1, 1e9}, {"ps", 1, 1e12}};
constexpr Unit kBytesPerSecond[] = {
    {"B/s"},         {"kB/s", 1e3},     {"MB/s", 1e6},     {"GB/s", 1e9},    {"TB/s", 1e12},
    {"KiB/s", kKi},  {"MiB/s", kMi},    {"GiB/s", kGi},    {"TiB/s", kTi},   {"bit/s", 1, 8},
    {"kbit/s", 125}, {"Mbit/s", 125e3}, {"Gbit/s", 125e6}, {"Tbit/s", 125e9}};
constexpr Unit kFlopsPerSecond[] = {
    {"FLOP/s"}, {"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}};
constexpr Unit kWatts[] = {{"W"}, {"kW", 1e3}, {"MW", 1e6}};

std::string listOf(std::span<const Unit> units) {
  std::string list;
  for (const Unit& unit : units) {
    if (!list.empty()) list += ", ";
    list += unit.name;
  }
  return list;
}

// Of another case.
std::string sameLetters(std::span<const Unit> units, std::string_view name) {
  std::vector<std::string_view> alike;
  for (const Unit& unit : units)
    if (lowerCase(unit.name) == lowerCase(name)) alike.push_back(unit.name);
  return alike.size() == 1 ? fmt::format("; did you mean {}?", alike.front()) : "";
}

// "Gb/s" and "Gbps" are bits to whom sells links and bytes to whom forgot the shift key.
std::string bitsOrBytes(std::span<const Unit> units, std::string_view name) {
  const bool isSuffixed = name.ends_with("b/s") || name.ends_with("bps");
  if (!isSuffixed || units.data() != kBytesPerSecond) return "";
  const std::string bits = lowerCase(name.substr(0, name.size() - 3)) + "bit/s";
  for (const Unit& unit : units)
    if (lowerCase(unit.name) == bits)
      return fmt::format("; did you mean {0}bit/s or {0}B/s?",
                         unit.name.substr(0, unit.name.size() - 5));
  return "";
}

bool isDigit(char c) { return c >= '0' && c <= '9'; }

// Length of the number that `text` starts with, 0 if none:  -? digits (. digits)? (e sign? digits)?
size_t numberLength(std::string_view text) {
  size_t i = 0;
  auto digits = [&] {
    const size_t start = i;
    while (i < text.size() && isDigit(text[i])) ++i;
    return i > start;
  };
  if (i < text.size() && text[i] == '-') ++i;
  if (!digits()) return 0;
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (!digits()) return 0;
  }
  // "5 e" or "5eB" is a number and an unknown unit, not a broken exponent.
  const size_t mantissa = i;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (!digits()) return mantissa;
  }
  return i;
}

// `example` is a valid text of the kind: the message shows it.
Result<double> parseQuantity(std::string_view text, std::span<const Unit> units,
                             std::string_view example) {
  const size_t length = numberLength(text);
  if (length == 0)
    return Error(invalidArgument(fmt::format(
        "expected a number with a unit such as '{}'; units: {}", example, listOf(units))));
  TRIREME_ASSIGN_OR_RETURN(const double number, parseDecimal(text.substr(0, length)));
  std::string_view name = text.substr(length);
  while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
  if (name.empty())
    return Error(invalidArgument(fmt::format(
        "a bare number has no unit; write it like '{}'; units: {}", example, listOf(units))));
  for (const Unit& unit : units) {
    if (unit.name != name) continue;
    const double value = number * unit.multiply / unit.divide;
    if (!std::isfinite(value)) return Error(invalidArgument("the number is out of range"));
    return value;
  }
  std::string meant = bitsOrBytes(units, name);
  if (meant.empty()) meant = sameLetters(units, name);
  return Error(invalidArgument(
      fmt::format("unknown unit{}; write it like '{}'; units: {}", meant, example, listOf(units))));
}

// Dividing by the unit may round: a text counts only if it parses to the value.
std::string printIn(std::span<const Unit> units, double value) {
  std::string best;
  for (const Unit& unit : units) {
    const double number = value * unit.divide / unit.multiply;
    if (!std::isfinite(number)) continue;
    std::string text = fmt::format("{} {}", number, unit.name);
    const Result<double> parsed = parseQuantity(text, units, "");
    if (parsed.has_value() && *parsed == value && (best.empty() || text.size() < best.size()))
      best = std::move(text);
  }
  return best;  // The first unit has factors of 1, so there is one.
}

// Of the units whose numbers are of a size to be read, the one with the shortest number.
std::string readIn(std::span<const Unit> units, double value) {
  std::string best;
  std::string_view bestUnit = units.front().name;
  for (const Unit& unit : units) {
    if (unit.name.find("bit") != std::string_view::npos) continue;
    const double number = value * unit.divide / unit.multiply;
    if (value != 0 && !(std::abs(number) >= 1 && std::abs(number) < 1e4)) continue;
    std::string text = fmt::format("{:.6g}", number);
    if (!best.empty() && text.size() >= best.size()) continue;
    best = std::move(text);
    bestUnit = unit.name;
  }
  return fmt::format("{} {}", best.empty() ? fmt::format("{:.6g}", value) : best, bestUnit);
}

template <typename T>
Result<T> withUnit(Result<double> number) {
  if (!number.has_value()) return Error(std::move(number).error());
  return T(*number);
}

}  // namespace

Result<double> parseDecimal(std::string_view text) {
  if (text.empty() || numberLength(text) != text.size())
    return Error(invalidArgument("expected a decimal number"));
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc::result_out_of_range || !std::isfinite(value))
    return Error(invalidArgument("the number is out of range"));
  if (code != std::errc() || end != text.data() + text.size())
    return Error(invalidArgument("expected a decimal number"));
  return value;
}

Result<Bytes> parseBytes(std::string_view text) {
  return withUnit<Bytes>(parseQuantity(text, kBytes, "80 GiB"));
}
Result<Seconds> parseSeconds(std::string_view text) {
  return withUnit<Seconds>(parseQuantity(text, kSeconds, "5 us"));
}
Result<BytesPerSecond> parseBytesPerSecond(std::string_view text) {
  return withUnit<BytesPerSecond>(parseQuantity(text, kBytesPerSecond, "900 GB/s"));
}
Result<FlopsPerSecond> parseFlopsPerSecond(std::string_view text) {
  return withUnit<FlopsPerSecond>(parseQuantity(text, kFlopsPerSecond, "312 TFLOP/s"));
}
Result<Watts> parseWatts(std::string_view text) {
  return withUnit<Watts>(parseQuantity(text, kWatts, "400 W"));
}

std::string printQuantity(Bytes value) { return printIn(kBytes, value.count()); }
std::string printQuantity(Seconds value) { return printIn(kSeconds, value.count()); }
std::string printQuantity(BytesPerSecond value) { return printIn(kBytesPerSecond, value.count()); }
std::string printQuantity(FlopsPerSecond value) { return printIn(kFlopsPerSecond, value.count()); }
std::string printQuantity(Watts value) { return printIn(kWatts, value.count()); }

std::string readableQuantity(Bytes value) { return readIn(kBytes, value.count()); }
std::string readableQuantity(Seconds value) { return readIn(kSeconds, value.count()); }
std::string readableQuantity(BytesPerSecond value) {
  return readIn(kBytesPerSecond, value.count());
}
std::string readableQuantity(FlopsPerSecond value) {
  return readIn(kFlopsPerSecond, value.count());
}
std::string readableQuantity(Watts value) { return readIn(kWatts, value.count()); }

Result<int64_t> parseCount(std::string_view text, int64_t least) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code == std::errc::result_out_of_range)
    return Error(invalidArgument(fmt::format("{} is out of range", text)));
  if (code != std::errc() || stop != end)
    return Error(invalidArgument(fmt::format("expected a whole number, got '{}'", text)));
  if (value < least)
    return Error(invalidArgument(fmt::format("must be at least {}, got {}", least, value)));
  return value;
}

}  // namespace trireme::spec
