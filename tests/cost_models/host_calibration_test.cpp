#include "cost_models/host_calibration.h"

#include <gtest/gtest.h>

#include "tests/cost_models/small_specs.h"

namespace trireme::cost {
namespace {

using namespace literals;

// 10 TFLOP/s, 1 TB/s, 1 us. Products of 1 TFLOP in 0.2, 0.125 and 0.1 s (0.5, 0.8, 1.0 of the
// peak), copies of 1 GB in 4 ms (0.25 of the bandwidth).
std::vector<TimedKernel> kernels() {
  const KernelWork product{DType::kBf16, Flops(1e12), 1_MB, 1};
  const KernelWork copy{DType::kBf16, Flops(0), 1_GB, 1};
  return {{product, Seconds(0.2 + 1e-6)},
          {product, Seconds(0.125 + 1e-6)},
          {product, Seconds(0.1 + 1e-6)},
          {copy, Seconds(0.004 + 1e-6)}};
}

TEST(Calibrate, TakesTheMedianOfEachRoof) {
  const auto device = calibrate(small::cluster().device, kernels());
  ASSERT_TRUE(device.has_value());
  EXPECT_NEAR(device->matmulEfficiency, 0.8, 1e-9);
  EXPECT_NEAR(device->memoryEfficiency, 0.25, 1e-9);
}

TEST(Calibrate, AttentionIsFittedApart) {
  std::vector<TimedKernel> timed = kernels();
  timed.push_back({{DType::kBf16, Flops(1e12), 1_MB, 1, true}, Seconds(0.5 + 1e-6)});
  const auto device = calibrate(small::cluster().device, timed);
  ASSERT_TRUE(device.has_value());
  EXPECT_NEAR(device->matmulEfficiency, 0.8, 1e-9);
  EXPECT_NEAR(device->attentionEfficiency, 0.2, 1e-9);
}

TEST(Calibrate, ReproducesWhatItWasFittedTo) {
  spec::DeviceSpec truth = small::cluster().device;
  truth.matmulEfficiency = 0.6;
  truth.memoryEfficiency = 0.7;
  std::vector<TimedKernel> timed = kernels();
  for (TimedKernel& kernel : timed) kernel.measured = kernelTime(kernel.work, truth);
  const auto device = calibrate(small::cluster().device, timed);
  ASSERT_TRUE(device.has_value());
  EXPECT_NEAR(medianError(*device, timed), 0, 1e-12);
}

TEST(Calibrate, LeavesARoofWithoutKernelsAlone) {
  spec::DeviceSpec device = small::cluster().device;
  device.memoryEfficiency = 0.9;
  const auto fitted = calibrate(device, {kernels()[0]});
  ASSERT_TRUE(fitted.has_value());
  EXPECT_EQ(fitted->memoryEfficiency, 0.9);
}

TEST(Calibrate, RefusesAKernelShorterThanItsLaunch) {
  EXPECT_FALSE(calibrate(small::cluster().device, {{kernels()[3].work, 1_us}}).has_value());
  EXPECT_FALSE(calibrate(small::cluster().device, {}).has_value());
}

}  // namespace
}  // namespace trireme::cost
