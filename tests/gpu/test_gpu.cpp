#include "tests/gpu/test_gpu.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace trireme::runtime::gpu {
namespace {

constexpr int64_t kBlockGuardBytes = 256;
constexpr char kBlockGuard = 0x5A;

}  // namespace

bool isRealGpu() {
  const char* choice = std::getenv("TRIREME_GPU");
  return choice != nullptr && std::string_view(choice) == "real";
}

TestGpu::TestGpu(const trireme::testing::EmulatedGpuOptions& emulation) {
  if (!isRealGpu()) {
    emulated_ = std::make_unique<trireme::testing::EmulatedGpu>(emulation);
    apis_ = emulated_->apis();
    return;
  }
  const Result<cuda::Apis> apis = cuda::loadApis(false);
  if (!apis.has_value()) {
    fmt::print(stderr, "{}\n", apis.error().message());
    std::exit(EXIT_FAILURE);  // no test can go on
  }
  apis_ = *apis;
}

TestGpu::~TestGpu() {
  if (emulated_ == nullptr) return;
  EXPECT_EQ(emulated_->faults(), std::vector<std::string>());
  EXPECT_EQ(emulated_->numLiveObjects(), 0);
}

GpuMemory::GpuMemory(const cuda::Gpu& gpu) : gpu_(gpu) {
  EXPECT_EQ(gpu_.driver().createStream(&stream_, cuda::kStreamNonBlocking, 0), 0);
}

GpuMemory::~GpuMemory() {
  for (cuda::DevicePointer block : blocks_) EXPECT_EQ(gpu_.driver().release(block), 0);
  EXPECT_EQ(gpu_.driver().destroyStream(stream_), 0);
}

void* GpuMemory::upload(const void* data, int64_t bytes) {
  const cuda::DriverApi& api = gpu_.driver();
  cuda::DevicePointer block = 0;
  EXPECT_EQ(api.allocate(&block, static_cast<size_t>(bytes + kBlockGuardBytes)), 0);
  blocks_.push_back(block);
  if (bytes > 0) {
    EXPECT_EQ(api.copyToDevice(block, data, static_cast<size_t>(bytes), stream_), 0);
  }
  EXPECT_EQ(api.fill(block + static_cast<size_t>(bytes), kBlockGuard, kBlockGuardBytes, stream_),
            0);
  EXPECT_EQ(api.synchronize(stream_), 0);  // `data` may go
  return reinterpret_cast<void*>(block);
}

void GpuMemory::download(const void* onGpu, void* data, int64_t bytes) {
  const cuda::DriverApi& api = gpu_.driver();
  const cuda::DevicePointer block = reinterpret_cast<uintptr_t>(onGpu);
  std::vector<char> guard(kBlockGuardBytes);
  if (bytes > 0) {
    EXPECT_EQ(api.copyToHost(data, block, static_cast<size_t>(bytes), stream_), 0);
  }
  EXPECT_EQ(
      api.copyToHost(guard.data(), block + static_cast<size_t>(bytes), kBlockGuardBytes, stream_),
      0);
  EXPECT_EQ(api.synchronize(stream_), 0);
  EXPECT_EQ(guard, std::vector<char>(kBlockGuardBytes, kBlockGuard)) << "written behind an operand";
}

}  // namespace trireme::runtime::gpu
