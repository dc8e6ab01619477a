// Sessions whose ranks live on GPUs.
#pragma once
#include <memory>
#include <vector>

#include "runtime/device/cuda/gpu.h"
#include "runtime/device/cuda/matmul_tuning.h"
#include "runtime/device/device.h"

namespace trireme::runtime::cuda {

struct CudaOptions {
  bool virtualRanks = false;  // all ranks on one GPU
  double timeoutSeconds = 60;
  bool graphs = true;  // segments as CUDA graphs
  // The ranks of this process, and the number of the first among those of its machine, as whoever
  // started the processes says. All others are of other processes.
  int32_t firstRank = 0, numRanks = 1, firstOnMachine = 0;
  MatmulTuning tuning;
};

// A GPU for each rank of this process, with NCCL between all ranks; or GPU 0 for all of them, as
// virtual ranks.
class CudaBackend final : public Backend {
 public:
  // `bundle` outlives the result.
  // kInvalidArgument: an unknown target. kUnavailable: fewer GPUs than ranks; says how many.
  // Also the errors of Gpu::open().
  static Result<std::unique_ptr<CudaBackend>> open(const Apis& apis, const program::Bundle& bundle,
                                                   const CudaOptions& options);

  // kResourceExhausted: says how much is missing, and where.
  Status checkMemory(const program::Program& program) const override;
  Result<RankSetup> prepare(const RankProgram& image,
                            std::unique_ptr<Communicator> control) override;

 private:
  CudaBackend(const Apis& apis, const program::Bundle& bundle, const CudaOptions& options)
      : apis_(apis), bundle_(bundle), options_(options) {}
  Status openGpus();
  // Ranks [first, first + number) of this process's, which are all of their GPU.
  Status checkMemoryOf(const program::Program& program, int32_t first, int32_t number) const;
  // That of a rank of this process.
  const Gpu& gpuOf(int32_t rank) const;
  bool usesNccl() const { return bundle_.program.numRanks() > 1 && !options_.virtualRanks; }

  Apis apis_;
  const program::Bundle& bundle_;
  CudaOptions options_;
  std::vector<std::unique_ptr<Gpu>> gpus_;  // one, or one per rank of this process
};

}  // namespace trireme::runtime::cuda
