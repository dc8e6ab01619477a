// Values, lists and ranges with units, as `trireme whatif` takes them.
//
//   64             a value
//   64,96,128      a list
//   64..4096       a range: doubled from the first, and the last:  64, 128, ... 4096
//   64..4096:64    a range by steps, up to the last
//
// A unit stands behind every number or, once, behind the last: "200..1600 Gbit/s". In a list of
// what may go without a unit ("15000" tokens) it stands behind every number or none. Errors are
// kInvalidArgument: what is wrong, what was expected, what is near.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace trireme::planner {

inline constexpr size_t kMostValues = 10'000;

// What a number with a unit may be.
struct UnitKind {
  std::string_view example;  // "2.5 USD/h"
  struct Unit {
    std::string_view name;
    double factor = 1;
  };
  std::vector<Unit> units;
  double least = 0, most = 0;  // in the first unit; `least` itself is out unless leastAllowed
  bool leastAllowed = false;
  std::string_view absurd;  // why more than `most` makes no sense
};

const UnitKind& rateUnits();      // B/s
const UnitKind& durationUnits();  // s; a year has 365 days
const UnitKind& pauseUnits();     // the same, and 0
const UnitKind& priceUnits();     // USD/h, of one device
const UnitKind& moneyUnits();     // USD
const UnitKind& powerUnits();     // W, of one device
const UnitKind& tokenUnits();     // tokens: "15T"

// One number with a unit, in the first unit of the kind.
Result<double> parseUnit(const std::string& text, const UnitKind& kind);
// As they are written: one that stands there twice may be meant for two devices. `isRange`: whether
// any of it is a range.
Result<std::vector<double>> parseUnits(const std::string& text, const UnitKind& kind,
                                       bool* isRange = nullptr);

// Of equals the first.
template <typename T>
std::vector<T> withoutRepeats(const std::vector<T>& values) {
  std::vector<T> once;
  for (const T& value : values)
    if (std::find(once.begin(), once.end(), value) == once.end()) once.push_back(value);
  return once;
}

// Whole numbers of at least `least`, each once. `byOnes`: a range has every number, not the
// doubles.
Result<std::vector<int64_t>> parseWhole(const std::string& text, int64_t least,
                                        bool byOnes = false);

// Names between commas, none empty, each once.
Result<std::vector<std::string>> parseNames(const std::string& text);

}  // namespace trireme::planner
