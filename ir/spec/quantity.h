// Quantities as users write them: a number, a space and a unit ("200 Gbit/s", "80 GiB", "5 us").
//
// k, M, G, T are powers of 1000; Ki, Mi, Gi, Ti powers of 1024; bit/s is an eighth of B/s. A bare
// number is refused, and so is a unit in another spelling: the message lists the valid ones.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "ir/base/status.h"
#include "ir/base/units.h"

namespace trireme::spec {

// Errors: kInvalidArgument (no number, no unit, wrong unit, overflow), without a place in a file.
Result<Bytes> parseBytes(std::string_view text);                    // "80 GiB"
Result<Seconds> parseSeconds(std::string_view text);                // "5 us"
Result<BytesPerSecond> parseBytesPerSecond(std::string_view text);  // "900 GB/s", "200 Gbit/s"
Result<FlopsPerSecond> parseFlopsPerSecond(std::string_view text);  // "312 TFLOP/s"
Result<Watts> parseWatts(std::string_view text);                    // "400 W"

// The shortest text that parses to exactly this value, in bytes rather than bits. Requires a finite
// value.
std::string printQuantity(Bytes value);
std::string printQuantity(Seconds value);
std::string printQuantity(BytesPerSecond value);
std::string printQuantity(FlopsPerSecond value);
std::string printQuantity(Watts value);

// For people to read, not for files: six digits, and the unit that makes the number 1 to 10000
// ("156.25 MB/s", "989.4 TFLOP/s"). Requires a finite value.
std::string readableQuantity(Bytes value);
std::string readableQuantity(Seconds value);
std::string readableQuantity(BytesPerSecond value);
std::string readableQuantity(FlopsPerSecond value);
std::string readableQuantity(Watts value);

// A decimal number and nothing else: no inf, nan, hexadecimal, or leading plus; within the range of
// double. Errors: kInvalidArgument.
Result<double> parseDecimal(std::string_view text);

// A whole number of at least `least` and nothing else. Errors: kInvalidArgument.
Result<int64_t> parseCount(std::string_view text, int64_t least);

}  // namespace trireme::spec
