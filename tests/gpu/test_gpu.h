// What the tests of this folder run on: the GPU of this machine, where TRIREME_GPU=real is in the
// environment, else an emulated one.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device/cuda/gpu.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::runtime::gpu {

bool isRealGpu();

// Expects, when it goes, that an emulated GPU was not misused and got all back. One at a time.
class TestGpu {
 public:
  // Ends the process, after saying why, if the driver or a library of the real one is missing.
  explicit TestGpu(const trireme::testing::EmulatedGpuOptions& emulation = {});
  ~TestGpu();
  const cuda::Apis& apis() const { return apis_; }

 private:
  std::unique_ptr<trireme::testing::EmulatedGpu> emulated_;
  cuda::Apis apis_;
};

// Copies of host memory on a GPU, with guards behind them that must stay as they are, and the
// stream on which they are made. Failures fail the test.
class GpuMemory {
 public:
  explicit GpuMemory(const cuda::Gpu& gpu);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  cuda::StreamHandle stream() const { return stream_; }
  void* upload(const void* data, int64_t bytes);
  template <typename T>
  T* upload(const std::vector<T>& values) {
    return static_cast<T*>(upload(values.data(), static_cast<int64_t>(values.size() * sizeof(T))));
  }
  // Waits for the stream, looks at the guard, and copies back.
  void download(const void* onGpu, void* data, int64_t bytes);
  template <typename T>
  std::vector<T> download(const T* onGpu, size_t count) {
    std::vector<T> values(count);
    download(onGpu, values.data(), static_cast<int64_t>(count * sizeof(T)));
    return values;
  }

 private:
  const cuda::Gpu& gpu_;
  cuda::StreamHandle stream_ = nullptr;
  std::vector<cuda::DevicePointer> blocks_;
};

}  // namespace trireme::runtime::gpu
