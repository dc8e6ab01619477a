// Measures the NVIDIA GPUs of this machine as the devices of a cluster.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cli/calibrate/measured.h"
#include "ir/base/status.h"
#include "ir/spec/cluster_spec.h"
#include "runtime/measure/measured_gpus.h"

namespace trireme::cli {

struct MeasureGpuOptions {
  int64_t numRanks = 1;  // a GPU each
  std::string name;      // of the cluster
  // What is completed: its network, and the numbers that are not measured. Null: a cluster of these
  // GPUs alone, whose other numbers are those of the shipped device of the GPU's name.
  const spec::ClusterSpec* base = nullptr;
  std::vector<DType> types = {DType::kBf16, DType::kF32};  // of the kernels
  runtime::GpuTiming timing;
  // Bytes of each GPU: no more than the first, or nine tenths of what is free; an error if that is
  // below the second.
  int64_t mostMemory = int64_t{2} << 30, leastMemory = int64_t{512} << 20;
  MeasureProgress progress;
};

// The file in examples/devices of the GPU with the driver's name and so much memory: "NVIDIA
// A100-SXM4-80GB" is a100-80gb-sxm. Empty: there is none. A name that says more than the file's
// ("PCIe", "NVL", "Laptop") is that of another GPU.
std::string shippedDeviceOf(const std::string& gpuName, Bytes memory);

// "measured on 2026-11-21 by trireme calibrate 0.1.0 on NVIDIA H100 80GB HBM3 (CUDA 13.0), 8 GPUs
// at once".
std::string measurementSource(const runtime::GpuInfo& gpu, int64_t numRanks);

// All GPUs do the same at the same time. Takes about a minute.
//
// The device: launch overhead, memory, kernels of matrix products and attention as measured;
// efficiencies are what was reached over the peaks of the data sheet or, for a GPU that is not
// known, peaks are what was reached. Collectives: curves of the innermost tier that holds the GPUs.
//
// kInvalidArgument: `base` is of other GPUs, or too small; GPUs of different kinds.
// kResourceExhausted: too little memory is free. kUnavailable, kInternal: as MeasuredGpus.
Result<MeasuredCluster> measureGpus(const runtime::cuda::Apis& apis,
                                    const MeasureGpuOptions& options);

}  // namespace trireme::cli
