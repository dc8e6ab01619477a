// A curve drawn with characters, for losses over steps.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::cli {

// `values` from left to right, each column the mean of the values that fall into it; the two
// numbers at the left are the ends of the scale, those below are `first` and the number of the last
// value.
//
//   5.55 |*
//        | **
//        |   ***
//   3.21 |      ****
//        +----------
//         1       10
//
// Values that are not finite leave their column empty. Empty if no value is finite.
std::string drawCurve(const std::vector<double>& values, int64_t first, int width = 72,
                      int height = 8);

}  // namespace trireme::cli
