// Sessions whose ranks live on GPUs.
#pragma once
#include <memory>

#include "runtime/device/cuda/gpu.h"
#include "runtime/device/device.h"

namespace trireme::runtime::cuda {

struct CudaOptions {
  bool virtualRanks = false;  // all ranks on one GPU
};

// All ranks of a bundle on GPU 0: one rank, or several virtual ones.
class CudaBackend final : public Backend {
 public:
  // `bundle` outlives the result.
  // kInvalidArgument: a bundle of several ranks without virtualRanks, or of an unknown target.
  // Also the errors of Gpu::open().
  static Result<std::unique_ptr<CudaBackend>> open(const Apis& apis, const program::Bundle& bundle,
                                                   const CudaOptions& options);

  // kResourceExhausted: says how much is missing.
  Status checkMemory(const program::Program& program) const override;
  Result<RankSetup> prepare(const RankProgram& image,
                            std::unique_ptr<Communicator> control) override;

 private:
  explicit CudaBackend(const program::Bundle& bundle) : bundle_(bundle) {}

  const program::Bundle& bundle_;
  std::unique_ptr<Gpu> gpu_;
};

}  // namespace trireme::runtime::cuda
