// How far a stream of reductions is behind the compute stream that feeds it.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ir/base/units.h"

namespace trireme::cost {

// The time x >= 0 until the reductions' stream is idle, and what work makes of it:
//
//   after(x) = max(x + shift, floor)
//
//   computing for t           max(x - t, 0)
//   a reduction of time r     x + r           of what was computed so far
//   (a, f), then (b, g)       max(max(x + a, f) + b, g) = max(x + a + b, max(f + b, g))
//   n times (a, f), n >= 1    max(x + n a, f + j a for j = 0 ... n - 1); linear in j, so that the
//                             ends suffice: max(x + n a, f + max((n - 1) a, 0))
//
// n layers that compute for b and then reduce for r are (r - b, r) each, and together
//
//   max(x + n r - n b, n r - (n - 1) b, r)
//
// which is what is left of the first layer's, or of all, or of the last layer's reduction.
class Backlog {
 public:
  Backlog() = default;

  Seconds after(Seconds before) const { return std::max(before + shift_, floor_); }
  void compute(Seconds time) {
    shift_ -= time;
    floor_ = std::max(floor_ - time, Seconds(0));
  }
  void reduce(Seconds time) {
    shift_ += time;
    floor_ += time;
  }
  void follow(const Backlog& next) {
    floor_ = next.after(floor_);
    shift_ += next.shift_;
  }
  Backlog repeated(int64_t times) const {
    const auto n = static_cast<double>(times);
    Backlog all;
    all.shift_ = shift_ * n;
    all.floor_ = floor_ + std::max(shift_ * (n - 1), Seconds(0));
    return all;
  }

 private:
  Seconds shift_, floor_;
};

}  // namespace trireme::cost
