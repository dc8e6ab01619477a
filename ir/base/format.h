// Quantities as people read them, one spelling for every message and table.
#pragma once
#include <string>

#include "ir/base/units.h"

namespace trireme {

// "1.25 GiB", "42.50 MiB", "17 B".
std::string formatBytes(Bytes bytes);
// "1.25 GiB (1342177280 bytes)", "17 B". Parts of a byte count as one.
std::string formatBytesExactly(Bytes bytes);
// "1.234 s", "12.300 ms", "4.5 us".
std::string formatSeconds(Seconds time);

}  // namespace trireme
