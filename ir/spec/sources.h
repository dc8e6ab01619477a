// Where the numbers of a spec come from.
#pragma once
#include <map>
#include <string>

namespace trireme::spec {

// From the path of a number in its file ("device.memory_bandwidth", "tiers[0].latency") to the text
// that names its source.
using Sources = std::map<std::string, std::string>;

}  // namespace trireme::spec
