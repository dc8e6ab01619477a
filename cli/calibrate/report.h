// What `trireme calibrate` says of a measurement: --json, and the table.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/calibrate/measured.h"

namespace trireme::cli {

std::string bandwidthText(BytesPerSecond rate);  // "25.2 GB/s"

// All measured collectives, of every tier.
nlohmann::json curvesJson(const spec::ClusterSpec& cluster);

// Rates are those that were reached, per rank; kernels beside what was fitted to them.
nlohmann::json toJson(const MeasuredCluster& measured);
std::string toTable(const MeasuredCluster& measured);

}  // namespace trireme::cli
