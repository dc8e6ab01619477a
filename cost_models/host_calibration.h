// Fits a device's efficiencies to kernels that were timed on it. Meant for hosts, whose sustained
// rates no datasheet states; the result goes into the cluster file, with the measurement as its
// source.
#pragma once
#include <vector>

#include "cost_models/compute.h"
#include "ir/base/status.h"

namespace trireme::cost {

struct TimedKernel {
  KernelWork work;
  Seconds measured;
};

// The device with
//   matmulEfficiency = median of (flops / t) / peak             over kernels bound by products
//   attentionEfficiency = the same                              over fused attention
//   memoryEfficiency = median of (bytes / t) / memoryBandwidth  over kernels bound by memory
// where t is the measured time less the launches. Which roof bounds a kernel is decided by the
// peaks as they stand, so a second call on the result may move kernels; an efficiency without
// kernels stays as it is. Values above 1 are kept: the stated peak was too low, and the estimate
// should say what was measured.
//
// kInvalidArgument: no kernel, a kernel no longer than its launches, or no peak for its dtype.
Result<spec::DeviceSpec> calibrate(spec::DeviceSpec device,
                                   const std::vector<TimedKernel>& kernels);

// Median over kernels of |kernelTime / measured - 1|. Requires at least one kernel.
double medianError(const spec::DeviceSpec& device, const std::vector<TimedKernel>& kernels);

}  // namespace trireme::cost
