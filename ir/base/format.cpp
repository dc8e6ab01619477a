#include "ir/base/format.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace trireme {

std::string formatBytes(Bytes bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = bytes.count();
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", value) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string formatBytesExactly(Bytes bytes) {
  const Bytes whole(std::ceil(bytes.count()));
  if (whole.count() < 1024) return formatBytes(whole);
  return fmt::format("{} ({:.0f} bytes)", formatBytes(whole), whole.count());
}

std::string formatSeconds(Seconds time) {
  const double t = time.count();
  if (t >= 1) return fmt::format("{:.3f} s", t);
  if (t >= 1e-3) return fmt::format("{:.3f} ms", t * 1e3);
  return fmt::format("{:.1f} us", t * 1e6);
}

}  // namespace trireme
