// Readers of {value, source} with a range, shared by the loaders of this folder.
#pragma once
#include <fmt/format.h>

#include <string_view>

#include "ir/base/units.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/quantity.h"

namespace trireme::spec {

// The number itself: for quantities, what count() gives in base units.
inline double plain(double value) { return value; }
inline double plain(int64_t value) { return static_cast<double>(value); }
template <typename Tag>
double plain(Quantity<Tag> value) {
  return value.count();
}

// What numbers of a kind may be, in base units: further than any hardware or software is, and so
// near that their products and powers neither overflow nor vanish.
struct Limits {
  double least = 0, most = 0;  // the least above 0
};
inline Limits limitsOf(double) { return {1e-6, 1e6}; }
inline Limits limitsOf(int64_t) { return {1, 0x1p24}; }
inline Limits limitsOf(Bytes) { return {1, 1e18}; }
inline Limits limitsOf(Seconds) { return {1e-15, 3600}; }
inline Limits limitsOf(BytesPerSecond) { return {1, 1e18}; }
inline Limits limitsOf(FlopsPerSecond) { return {1, 1e24}; }
inline Limits limitsOf(Watts) { return {1e-3, 1e9}; }

inline std::string numberText(double value) { return fmt::format("{}", value); }
inline std::string numberText(int64_t value) { return fmt::format("{}", value); }
template <typename Tag>
std::string numberText(Quantity<Tag> value) {
  return readableQuantity(value);
}

// Whether a number is within the limits of its kind.
template <typename T>
Status checkMost(T value) {
  const double most = limitsOf(value).most;
  if (plain(value) <= most) return {};
  return invalidArgument(fmt::format("must be at most {}, got {}", numberText(static_cast<T>(most)),
                                     numberText(value)));
}
// The same of one that others are divided by.
template <typename T>
Status checkLimits(T value) {
  const double least = limitsOf(value).least;
  if (plain(value) >= least) return checkMost(value);
  return invalidArgument(fmt::format("must be at least {}, got {}",
                                     numberText(static_cast<T>(least)), numberText(value)));
}

template <typename T>
void readPositive(MapReader& map, std::string_view key, T* out) {
  map.requiredSourced(key, out);
  const Node* node = map.child(key);
  if (!node || !map.firstValueError().ok()) return;
  if (!(plain(*out) > 0)) return map.fail(*node, "must be above 0");
  map.check(*node, checkLimits(*out));
}

template <typename T>
void readPositiveIfGiven(MapReader& map, std::string_view key, T* out) {
  if (map.child(key)) readPositive(map, key, out);
}

template <typename T>
void readNotNegative(MapReader& map, std::string_view key, T* out) {
  map.requiredSourced(key, out);
  const Node* node = map.child(key);
  if (!node || !map.firstValueError().ok()) return;
  if (!(plain(*out) >= 0)) return map.fail(*node, "must not be negative");
  map.check(*node, checkMost(*out));
}

// A share of a peak.
inline void readEfficiency(MapReader& map, std::string_view key, double* out) {
  readPositive(map, key, out);
  if (const Node* node = map.child(key); node && map.firstValueError().ok() && *out > 1)
    map.fail(*node, fmt::format("an efficiency is at most 1, got {}", *out));
}

}  // namespace trireme::spec
