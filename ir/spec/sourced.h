// Readers of {value, source} with a range, shared by the loaders of this folder.
#pragma once
#include <fmt/format.h>

#include <string_view>

#include "ir/base/units.h"
#include "ir/spec/map_reader.h"

namespace trireme::spec {

// The number itself: for quantities, what count() gives in base units.
inline double plain(double value) { return value; }
inline double plain(int64_t value) { return static_cast<double>(value); }
template <typename Tag>
double plain(Quantity<Tag> value) {
  return value.count();
}

template <typename T>
void readPositive(MapReader& map, std::string_view key, T* out) {
  map.requiredSourced(key, out);
  if (const Node* node = map.child(key); node && map.firstValueError().ok() && !(plain(*out) > 0))
    map.fail(*node, "must be above 0");
}

template <typename T>
void readPositiveIfGiven(MapReader& map, std::string_view key, T* out) {
  if (map.child(key)) readPositive(map, key, out);
}

template <typename T>
void readNotNegative(MapReader& map, std::string_view key, T* out) {
  map.requiredSourced(key, out);
  if (const Node* node = map.child(key); node && map.firstValueError().ok() && !(plain(*out) >= 0))
    map.fail(*node, "must not be negative");
}

// A share of a peak.
inline void readEfficiency(MapReader& map, std::string_view key, double* out) {
  readPositive(map, key, out);
  if (const Node* node = map.child(key); node && map.firstValueError().ok() && *out > 1)
    map.fail(*node, fmt::format("an efficiency is at most 1, got {}", *out));
}

}  // namespace trireme::spec
