#include "cost_models/host_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trireme::cost {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

Result<spec::DeviceSpec> calibrate(spec::DeviceSpec device,
                                   const std::vector<TimedKernel>& kernels) {
  if (kernels.empty()) return Error(invalidArgument("no timed kernel to calibrate from"));
  std::vector<double> products, attention, memory;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const KernelWork& work = kernels[i].work;
    const Seconds time = kernels[i].measured - device.launchOverhead * work.numLaunches;
    if (time.count() <= 0)
      return Error(invalidArgument(fmt::format(
          "timed kernel {}: {} s is no longer than its launches", i, kernels[i].measured.count())));
    const Seconds byMemory = work.bytes / device.memoryBandwidth;
    if (work.flops.count() > 0) TRIREME_RETURN_IF_ERROR(checkDevice(device, work.dtype));
    if (work.flops.count() > 0 && work.flops / matmulPeak(device, work.dtype) > byMemory)
      (work.fusedAttention ? attention : products)
          .push_back((work.flops / matmulPeak(device, work.dtype)) / time);
    else
      memory.push_back(byMemory / time);
  }
  if (!products.empty()) device.matmulEfficiency = median(std::move(products));
  if (!attention.empty()) device.attentionEfficiency = median(std::move(attention));
  if (!memory.empty()) device.memoryEfficiency = median(std::move(memory));
  return device;
}

double medianError(const spec::DeviceSpec& device, const std::vector<TimedKernel>& kernels) {
  TRIREME_CHECK(!kernels.empty());
  std::vector<double> errors;
  for (const TimedKernel& kernel : kernels)
    errors.push_back(std::abs(kernelTime(kernel.work, device) / kernel.measured - 1));
  return median(std::move(errors));
}

}  // namespace trireme::cost
