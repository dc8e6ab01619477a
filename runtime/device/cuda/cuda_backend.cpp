#include "runtime/device/cuda/cuda_backend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/base/format.h"
#include "ir/program/gpu_memory.h"
#include "runtime/device/cuda/cuda_rank.h"
#include "runtime/device/cuda/driver_memory.h"
#include "runtime/device/cuda/nccl_communicator.h"
#include "runtime/device/cuda/virtual_communicator.h"
#include "runtime/executor/arena.h"

namespace trireme::runtime::cuda {
namespace {

// A launcher that shows each process one GPU, its own, numbers it 0.
Result<int> ordinalOf(int32_t onMachine, int count, int32_t numRanks) {
  if (onMachine < count) return onMachine;
  if (count == 1 && numRanks == 1) return 0;
  return Error(unavailable(
      fmt::format("rank {} of this machine has no GPU: the driver has {}; ranks with a GPU each "
                  "are started on several machines (torchrun, srun or mpirun), or all share one "
                  "GPU with --virtual-ranks",
                  onMachine, count)));
}

// Also for a bundle whose kernels are all the library's: it would run, but was not made for that.
Status checkTargets(std::vector<program::GpuTarget> targets, const Gpu& gpu, int ordinal) {
  if (program::runsOn(targets, gpu.capability())) return {};
  const std::string bundles = program::printGpuTargets(targets);
  std::string needed;
  for (const program::GpuTarget& target : targets)
    needed += fmt::format("{}{}{}", needed.empty() ? "" : ", ",
                          program::capabilityName(target.capability),
                          target.exact ? " alone" : " and later");
  // No GPU that the library's kernels run on is too old for every target.
  const std::optional<program::GpuTarget> nearest = program::nearestTarget(gpu.capability());
  if (nearest) targets.insert(std::upper_bound(targets.begin(), targets.end(), *nearest), *nearest);
  return unavailable(fmt::format(
      "the bundle is for {} (compute capability {}), and GPU {} ({}) has {}; trireme compile "
      "--target {} makes one that runs there as well",
      bundles, needed, ordinal, gpu.name(), program::capabilityName(gpu.capability()),
      program::printGpuTargets(targets)));
}

int64_t arenaBytesOf(const program::Program& program, int32_t rank) {
  const int32_t role = program.ranks[static_cast<size_t>(rank)].role;
  return program.roles[static_cast<size_t>(role)].arenaBytes;
}

}  // namespace

Result<std::unique_ptr<CudaBackend>> CudaBackend::open(const Apis& apis,
                                                       const program::Bundle& bundle,
                                                       const CudaOptions& options) {
  if (!bundle.kernels.empty() && bundle.kernels.size() != bundle.program.segments.size())
    return Error(
        invalidArgument(fmt::format("the bundle has kernels for {} segments, not {}",
                                    bundle.kernels.size(), bundle.program.segments.size())));
  std::unique_ptr<CudaBackend> backend(new CudaBackend(apis, bundle, options));
  if (backend->usesNccl() && apis.nccl == nullptr)
    return Error(internalError("ranks with a GPU each, and nobody has loaded NCCL"));
  TRIREME_RETURN_IF_ERROR(backend->openGpus());
  return backend;
}

Status CudaBackend::openGpus() {
  TRIREME_ASSIGN_OR_RETURN(const std::vector<program::GpuTarget> targets,
                           program::parseGpuTargets(bundle_.target.arch));
  TRIREME_ASSIGN_OR_RETURN(const int present, Gpu::count(apis_));
  const std::vector<KernelImage> generated = generatedImages(bundle_, targets);
  for (int32_t i = 0; i < (usesNccl() ? options_.numRanks : 1); ++i) {
    int ordinal = 0;
    if (usesNccl()) {
      TRIREME_ASSIGN_OR_RETURN(ordinal,
                               ordinalOf(options_.firstOnMachine + i, present, options_.numRanks));
    }
    TRIREME_ASSIGN_OR_RETURN(gpus_.emplace_back(), Gpu::open(apis_, ordinal));
    TRIREME_RETURN_IF_ERROR(checkTargets(targets, *gpus_.back(), ordinal));
    if (!generated.empty()) TRIREME_RETURN_IF_ERROR(gpus_.back()->loadGenerated(generated));
  }
  return {};
}

const Gpu& CudaBackend::gpuOf(int32_t rank) const {
  return usesNccl() ? *gpus_[static_cast<size_t>(rank - options_.firstRank)] : *gpus_.front();
}

Status CudaBackend::checkMemory(const program::Program& program) const {
  const int32_t perGpu = usesNccl() ? 1 : options_.numRanks;
  for (int32_t first = 0; first < options_.numRanks; first += perGpu)
    TRIREME_RETURN_IF_ERROR(checkMemoryOf(program, options_.firstRank + first, perGpu));
  return {};
}

Status CudaBackend::checkMemoryOf(const program::Program& program, int32_t first,
                                  int32_t number) const {
  using program::kLazyBytes;
  int64_t arenas = 0, numNodes = 0;
  for (int32_t rank = first; rank < first + number; ++rank) arenas += arenaBytesOf(program, rank);
  const Gpu& gpu = gpuOf(first);
  TRIREME_ASSIGN_OR_RETURN(const int64_t available, gpu.freeBytes());
  for (int32_t rank = first; rank < first + number; ++rank) {
    if (!options_.graphs || arenas + kLazyBytes > available) break;  // it shows without
    TRIREME_ASSIGN_OR_RETURN(const Arena unused, Arena::allocate(arenaBytesOf(program, rank)));
    TRIREME_ASSIGN_OR_RETURN(const RankProgram resolved,
                             resolveRank(program, rank, unused.data()));  // addresses alone
    numNodes += numGraphNodes(bundle_, resolved);
  }
  const int64_t graphs = numNodes * program::kGraphNodeBytes;
  const int64_t needed = arenas + kLazyBytes + graphs;
  if (needed <= available) return {};
  const auto print = [](int64_t bytes) { return formatBytes(Bytes(static_cast<double>(bytes))); };
  const std::string whose =
      usesNccl() ? fmt::format("the arena of rank {} needs", first)
                 : fmt::format("the arenas of {} rank{} need", number, number == 1 ? "" : "s");
  std::vector<std::string> besides = {print(kLazyBytes) + " for what the driver loads"};
  if (numNodes > 0)
    besides.push_back(
        fmt::format("{} for {} launches in CUDA graphs, which --no-cuda-graphs does without",
                    print(graphs), numNodes));
  return resourceExhausted(
      fmt::format("{} {} on {}, of which {} are free: {} are missing, with estimates of {}", whose,
                  print(arenas), gpu.name(), print(available), print(needed - available),
                  fmt::join(besides, " and ")));
}

Result<RankSetup> CudaBackend::prepare(const RankProgram& image,
                                       std::unique_ptr<Communicator> control) {
  TRIREME_ASSIGN_OR_RETURN(std::unique_ptr<CudaRank> rank,
                           CudaRank::create(gpuOf(image.rank), bundle_, image, options_.graphs));
  std::vector<std::string> notes;
  TRIREME_RETURN_IF_ERROR(tuneMatmuls(*rank, *control, options_.tuning, notes));
  std::unique_ptr<Communicator> comm;
  if (usesNccl()) {
    TRIREME_ASSIGN_OR_RETURN(comm, NcclCommunicator::create(*rank, std::move(control), *apis_.nccl,
                                                            options_.timeoutSeconds));
  } else {
    TRIREME_ASSIGN_OR_RETURN(
        comm, VirtualCommunicator::create(*rank, std::move(control), bundle_.program.groups));
  }
  return RankSetup{std::move(rank), std::move(comm), std::move(notes)};
}

}  // namespace trireme::runtime::cuda
