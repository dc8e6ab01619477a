// How far numbers may be apart that differ in nothing but the order of arithmetic.
#pragma once

namespace trireme::planner {

// A bound times this is no higher than the estimate that it bounds.
inline constexpr double kRounding = 1 - 1e-9;
// Of two times, what is no difference.
inline constexpr double kTie = 1e-12;

}  // namespace trireme::planner
