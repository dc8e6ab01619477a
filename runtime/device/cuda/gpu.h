// One GPU of this machine: its context and Trireme's kernels on it. Shared by the ranks that live
// there.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/bundle.h"
#include "runtime/device/cuda/cublaslt_api.h"
#include "runtime/device/cuda/driver_api.h"
#include "runtime/device/cuda/nccl_api.h"

namespace trireme::runtime::cuda {

// Kernels, compiled.
struct KernelImage {
  int capability = 0;  // 93: runs on 9.3, 9.4... (code) or on 9.3 and all later (PTX)
  bool ptx = false;
  std::string_view bytes;  // PTX: with its final zero
  bool exact = false;      // runs on `capability` alone
};

// Those of kernels/all.cu that this build carries; none if it was configured without nvcc.
const std::vector<KernelImage>& shippedImages();

// The generated ones of a bundle for `targets`; of these the bytes live in the bundle.
std::vector<KernelImage> generatedImages(const program::Bundle& bundle,
                                         const std::vector<program::GpuTarget>& targets);

// The images for a GPU of compute capability `capability`, never none, the best first: of the code
// that it runs, that for the newest GPU, of that capability alone first; then such PTX, which the
// driver compiles.
// kUnavailable: none fits; says which `whose` has ("this build").
Result<std::vector<KernelImage>> imagesFor(std::vector<KernelImage> images, int capability,
                                           std::string_view whose);

// "code for 9.0", "PTX for 8.0".
std::string describe(const KernelImage& image);

// The outside world. The tables outlive what uses them.
struct Apis {
  const DriverApi* driver = nullptr;
  const CublasLtApi* cublasLt = nullptr;
  const NcclApi* nccl = nullptr;  // null: not asked for; ranks with a GPU each need it
  std::vector<KernelImage> images;
};

// Those of this machine. kUnavailable: no driver, no cuBLASLt, or a build without kernels; if
// `withNccl`, also those of loadNccl().
Result<Apis> loadApis(bool withNccl);

// A launch of a kernel of one parameter, which is copied. Without blocks there is nothing to do.
struct KernelLaunch {
  FunctionHandle function = nullptr;
  const void* args = nullptr;
  unsigned blocks = 0, threads = 0;  // of the grid, of a block
};
// `threads` are covered by blocks of 256, up to a grid of 2^20 blocks; kernels loop over the rest.
KernelLaunch launchOf(FunctionHandle kernel, const void* args, int64_t threads);
// The same with `blocks` blocks of `warps` warps each (1 to 32).
KernelLaunch launchOfBlocks(FunctionHandle kernel, const void* args, int64_t blocks, int32_t warps);

// Where launches go: onto a stream, or into a graph.
class KernelSink {
 public:
  virtual ~KernelSink() = default;
  // kInternal: the driver refuses.
  virtual Status put(const KernelLaunch& launch) = 0;
};

// Whether any GPU of this process was ever given up (Gpu::abandon()). What CUDA's libraries do when
// a process exits may then wait for it for ever.
bool anyGpuAbandoned();

class Gpu {
 public:
  // kUnavailable: no GPU, a driver older than CUDA 12.0, or a GPU that no library kernel runs on.
  static Result<std::unique_ptr<Gpu>> open(const Apis& apis, int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const DriverApi& driver() const { return *apis_.driver; }
  const CublasLtApi& cublasLt() const { return *apis_.cublasLt; }
  const std::string& name() const { return name_; }
  int capability() const { return capability_; }
  int numMultiprocessors() const { return numMultiprocessors_; }
  int driverVersion() const { return driverVersion_; }  // 13010: of CUDA 13.1

  // GPUs of this machine. Errors: as open().
  static Result<int> count(const Apis& apis);

  // For the calling thread. Before any other call to the driver.
  Status makeCurrent() const;
  Result<int64_t> freeBytes() const;
  Result<int64_t> totalBytes() const;  // free or not
  // It does not answer: from now on nobody frees, unloads or waits for anything on it.
  void abandon() const;
  bool isAbandoned() const { return abandoned_; }
  // kInternal: there is no such kernel.
  Result<FunctionHandle> kernel(const std::string& kernelName) const;
  // Generated kernels, of generatedImages(). At most once. Errors: imagesFor(); kUnavailable: the
  // driver refuses them all.
  Status loadGenerated(const std::vector<KernelImage>& images);
  Result<FunctionHandle> generatedKernel(const std::string& symbol) const;
  Status launch(const KernelLaunch& launch, StreamHandle stream) const;

 private:
  Gpu() = default;
  Status initialise(int ordinal);
  // The first that the driver takes.
  Status load(const std::vector<KernelImage>& images, const std::string& what,
              ModuleHandle& module) const;
  Status memory(size_t& available, size_t& total) const;
  Result<FunctionHandle> find(ModuleHandle module, const std::string& name) const;

  Apis apis_;
  int device_ = -1;
  int capability_ = 0, driverVersion_ = 0, numMultiprocessors_ = 0;
  std::string name_;
  ContextHandle context_ = nullptr;
  ModuleHandle module_ = nullptr, generated_ = nullptr;
  mutable std::atomic<bool> abandoned_ = false;
};

class StreamSink final : public KernelSink {
 public:
  StreamSink(const Gpu& gpu, StreamHandle stream) : gpu_(gpu), stream_(stream) {}
  Status put(const KernelLaunch& launch) override { return gpu_.launch(launch, stream_); }

 private:
  const Gpu& gpu_;
  StreamHandle stream_;
};

}  // namespace trireme::runtime::cuda
