// Measured NVIDIA GPUs as the devices of a cluster.
#pragma once
#include <cstdint>
#include <string>

#include "cli/calibrate/measured.h"
#include "ir/base/status.h"
#include "ir/spec/cluster_spec.h"
#include "runtime/measure/gpu_measurements.h"

namespace trireme::cli {

struct GpuClusterOptions {
  std::string name;  // of the cluster
  // What is completed: its network, and the numbers that are not measured. Null: a cluster of these
  // GPUs alone, whose other numbers are those of the shipped device of the GPU's name.
  const spec::ClusterSpec* base = nullptr;
};

// The file in examples/devices of the GPU with the driver's name and so much memory: "NVIDIA
// A100-SXM4-80GB" is a100-80gb-sxm. Empty: there is none. A name that says more than the file's
// ("PCIe", "NVL", "Laptop") is that of another GPU.
std::string shippedDeviceOf(const std::string& gpuName, Bytes memory);

// "measured on 2026-11-21 by trireme calibrate 0.1.0 on NVIDIA H100 80GB HBM3 (CUDA 13.0), 8 GPUs
// at once".
std::string measurementSource(const runtime::GpuMeasurements& measurements);

// What clusterOf() will refuse whatever is measured. kInvalidArgument: `base`, which may be null,
// is of other GPUs, or too small.
Status checkBase(const spec::ClusterSpec* base, const runtime::GpuInfo& gpu, int64_t numGpus);

// The device: launch overhead, memory, kernels of matrix products and attention as measured;
// efficiencies are what was reached over the peaks of the data sheet or, for a GPU that is not
// known, peaks are what was reached. Collectives: curves of the innermost tier that holds the GPUs.
//
// kInvalidArgument: as checkBase(); too few times of a kernel for a fit.
Result<MeasuredCluster> clusterOf(const runtime::GpuMeasurements& measurements,
                                  const GpuClusterOptions& options);

}  // namespace trireme::cli
