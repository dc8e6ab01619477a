// The NVIDIA GPUs of this machine, measured: what `trireme calibrate --gpu` does in every build,
// the runtime alone included.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "ir/base/status.h"
#include "runtime/measure/gpu_measurements.h"

namespace trireme::cli {

// "2026-11-21", of UTC.
std::string today();

// Asked what there is before anything is measured; an error ends it.
using AcceptGpus = std::function<Status(const runtime::GpuInfo& gpu, int64_t numGpus)>;

// The first `numGpus`, or all; draws the progress. kUnavailable: no driver, fewer GPUs, several and
// no NCCL. Also the errors of takeMeasurements().
Result<runtime::GpuMeasurements> measureTheseGpus(const std::optional<int64_t>& numGpus,
                                                  const AcceptGpus& accept);

}  // namespace trireme::cli
