#include "runtime/device/cuda/cuda_backend.h"

#include <fmt/format.h>

#include "ir/base/format.h"
#include "runtime/device/cuda/cuda_rank.h"
#include "runtime/device/cuda/virtual_communicator.h"

namespace trireme::runtime::cuda {

Result<std::unique_ptr<CudaBackend>> CudaBackend::open(const Apis& apis,
                                                       const program::Bundle& bundle,
                                                       const CudaOptions& options) {
  TRIREME_ASSIGN_OR_RETURN(const CudaTarget target, parseCudaTarget(bundle.target.arch));
  if (bundle.program.numRanks() > 1 && !options.virtualRanks)
    return Error(invalidArgument(fmt::format(
        "the bundle has {} ranks, and GPUs of several ranks are not there yet: run them "
        "all on one GPU with --virtual-ranks",
        bundle.program.numRanks())));
  if (!bundle.kernels.empty() && bundle.kernels.size() != bundle.program.segments.size())
    return Error(
        invalidArgument(fmt::format("the bundle has kernels for {} segments, not {}",
                                    bundle.kernels.size(), bundle.program.segments.size())));
  std::unique_ptr<CudaBackend> backend(new CudaBackend(bundle));
  TRIREME_ASSIGN_OR_RETURN(backend->gpu_, Gpu::open(apis, 0, target));
  std::vector<KernelImage> generated;
  if (!bundle.cubin.empty()) generated.push_back({target.capability, false, bundle.cubin});
  if (!bundle.ptx.empty()) generated.push_back({target.capability, true, bundle.ptx});
  if (!generated.empty()) TRIREME_RETURN_IF_ERROR(backend->gpu_->loadGenerated(generated));
  return backend;
}

Status CudaBackend::checkMemory(const program::Program& program) const {
  int64_t needed = 0;
  for (const program::RankInfo& rank : program.ranks)
    needed += program.roles[static_cast<size_t>(rank.role)].arenaBytes;
  TRIREME_ASSIGN_OR_RETURN(const int64_t available, gpu_->freeBytes());
  if (needed <= available) return {};
  const auto print = [](int64_t bytes) { return formatBytes(Bytes(static_cast<double>(bytes))); };
  return resourceExhausted(
      fmt::format("the arenas of {} rank{} need {} on {}, of which {} are free: {} are missing",
                  program.numRanks(), program.numRanks() == 1 ? "" : "s", print(needed),
                  gpu_->name(), print(available), print(needed - available)));
}

Result<RankSetup> CudaBackend::prepare(const RankProgram& image,
                                       std::unique_ptr<Communicator> control) {
  TRIREME_ASSIGN_OR_RETURN(std::unique_ptr<CudaRank> rank, CudaRank::create(*gpu_, bundle_, image));
  TRIREME_ASSIGN_OR_RETURN(
      auto comm, VirtualCommunicator::create(*rank, std::move(control), bundle_.program.groups));
  return RankSetup{std::move(rank), std::move(comm)};
}

}  // namespace trireme::runtime::cuda
