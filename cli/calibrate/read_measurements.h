// Reads the file of `trireme calibrate --gpu --save-measurements`.
#pragma once
#include <string>

#include "ir/base/status.h"
#include "runtime/measure/gpu_measurements.h"

namespace trireme::cli {

// What printMeasurements() wrote, of any machine. Strict: every key is known and there; times and
// sizes are above 0; of several GPUs every collective among every MeasuredGpus::groupSizes() is
// there, in order and with sizes that increase, and one message; of one GPU none. `name` is the
// file's; one that ends in .json is read as JSON, any other as YAML, of which JSON is a part.
//
// kInvalidArgument, with file, line and column: what is wrong, and what was expected. A version
// that is newer, too.
Result<runtime::GpuMeasurements> parseMeasurements(const std::string& text,
                                                   const std::string& name);
// kUnavailable: the file cannot be read.
Result<runtime::GpuMeasurements> readMeasurements(const std::string& path);

}  // namespace trireme::cli
