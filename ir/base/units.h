// Quantities that cannot be mixed up: Bytes / BytesPerSecond is Seconds and nothing else.
#pragma once
#include <compare>

namespace trireme {

// A number with a unit in its type. `count()` leaves the unit: only at a print or an API edge.
template <typename Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double count) : count_(count) {}
  constexpr double count() const { return count_; }

  constexpr Quantity operator+(Quantity o) const { return Quantity(count_ + o.count_); }
  constexpr Quantity operator-(Quantity o) const { return Quantity(count_ - o.count_); }
  constexpr Quantity operator*(double f) const { return Quantity(count_ * f); }
  constexpr Quantity operator/(double f) const { return Quantity(count_ / f); }
  constexpr double operator/(Quantity o) const { return count_ / o.count_; }
  constexpr Quantity& operator+=(Quantity o) {
    count_ += o.count_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    count_ -= o.count_;
    return *this;
  }
  constexpr Quantity& operator*=(double f) {
    count_ *= f;
    return *this;
  }
  constexpr auto operator<=>(const Quantity&) const = default;
  friend constexpr Quantity operator*(double f, Quantity q) { return q * f; }

 private:
  double count_ = 0;
};

using Bytes = Quantity<struct BytesTag>;
using Seconds = Quantity<struct SecondsTag>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag>;
using Flops = Quantity<struct FlopsTag>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag>;
using Watts = Quantity<struct WattsTag>;

constexpr Seconds operator/(Bytes b, BytesPerSecond r) { return Seconds(b.count() / r.count()); }
constexpr Seconds operator/(Flops f, FlopsPerSecond r) { return Seconds(f.count() / r.count()); }
constexpr BytesPerSecond operator/(Bytes b, Seconds s) {
  return BytesPerSecond(b.count() / s.count());
}
constexpr FlopsPerSecond operator/(Flops f, Seconds s) {
  return FlopsPerSecond(f.count() / s.count());
}
constexpr Bytes operator*(BytesPerSecond r, Seconds s) { return Bytes(r.count() * s.count()); }
constexpr Flops operator*(FlopsPerSecond r, Seconds s) { return Flops(r.count() * s.count()); }

namespace literals {
constexpr Bytes operator""_B(unsigned long long v) { return Bytes(static_cast<double>(v)); }
constexpr Bytes operator""_MB(unsigned long long v) { return Bytes(static_cast<double>(v) * 1e6); }
constexpr Bytes operator""_GB(unsigned long long v) { return Bytes(static_cast<double>(v) * 1e9); }
constexpr Bytes operator""_GiB(unsigned long long v) {
  return Bytes(static_cast<double>(v) * 1073741824.0);
}
constexpr Seconds operator""_us(unsigned long long v) {
  return Seconds(static_cast<double>(v) * 1e-6);
}
constexpr Seconds operator""_ms(unsigned long long v) {
  return Seconds(static_cast<double>(v) * 1e-3);
}
constexpr Seconds operator""_s(unsigned long long v) { return Seconds(static_cast<double>(v)); }
constexpr BytesPerSecond operator""_GBps(unsigned long long v) {
  return BytesPerSecond(static_cast<double>(v) * 1e9);
}
}  // namespace literals

}  // namespace trireme
