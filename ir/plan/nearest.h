// The nearest valid numbers, for the end of a message that refuses one.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace trireme::plan {

// "; nearest: 2 or 4": the valid values next to `wanted` within [1, limit], below and above; empty
// if there are none within 2^16.
std::string nearest(int64_t wanted, int64_t limit, const std::function<bool(int64_t)>& isValid);

// The same for a number that should divide `number`.
std::string nearestDivisor(int64_t wanted, int64_t number);

// The same for a number that should be a multiple of `factor`.
std::string nearestMultiple(int64_t number, int64_t factor);

}  // namespace trireme::plan
