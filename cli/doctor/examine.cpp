#include "cli/doctor/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "ir/base/format.h"
#include "ir/base/version.h"
#include "runtime/device/cuda/driver_api.h"
#include "runtime/device/cuda/nccl_api.h"

namespace trireme::cli {
namespace {

constexpr std::string_view kNames[] = {"good", "optional", "missing"};

Finding codeGenerator() {
#if TRIREME_RUNTIME_ONLY
  return {"trireme", Health::kGood, fmt::format("{}, the runtime alone", kVersion), ""};
#elif TRIREME_HAVE_MLIR
  return {"trireme", Health::kGood, fmt::format("{}, with the code generator", kVersion), ""};
#else
  return {"trireme", Health::kMissing, fmt::format("{}, built without LLVM", kVersion),
          "trireme compile and calibrate need it; bundles made elsewhere run"};
#endif
}

// The widest vectors that kernels use, as gemm and generated code pick them.
Finding cpu(const Machine& machine) {
  const std::vector<std::string> flags = machine.cpuFlags();
  const auto has = [&](std::string_view flag) {
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
  };
  std::vector<std::string_view> features;
  if (has("avx2") && has("fma")) features.push_back("AVX2");
  if (has("avx512f")) features.push_back("AVX-512");
  if (has("amx_bf16") && has("amx_tile")) features.push_back("AMX");
  const std::string name = machine.cpuName().empty() ? "unknown" : machine.cpuName();
  const int cores = machine.numCores();
  const std::string text = fmt::format(
      "{}, {} core{}, {}", name, cores, cores == 1 ? "" : "s",
      features.empty() ? "no wide vectors" : fmt::format("{}", fmt::join(features, ", ")));
  if (features.empty())
    return {"CPU", Health::kOptional, text, "kernels on the host use vectors of 128 bits: slow"};
  return {"CPU", Health::kGood, text, ""};
}

Finding memory(const Machine& machine) {
  if (const auto available = machine.availableMemory())
    return {"memory", Health::kGood, formatBytes(*available) + " available", ""};
  return {"memory", Health::kOptional, "unknown",
          "run cannot tell beforehand whether a model fits"};
}

// [[maybe_unused]]: the runtime alone links nothing.
[[maybe_unused]] Finding linker(const Machine& machine) {
  if (const auto path = machine.findProgram("ld")) return {"linker", Health::kGood, *path, ""};
  return {"linker", Health::kMissing, "no ld in PATH (Debian: binutils)",
          "trireme compile cannot link the kernels of a bundle"};
}

Finding gpus(const Machine& machine) {
  const std::string prevents = "bundles that are compiled for GPUs cannot run here";
  std::string why;
  const std::optional<GpuDriver> driver = machine.gpuDriver(why);
  if (!driver) return {"GPU driver", Health::kOptional, "none: " + why, prevents};
  const std::string version =
      fmt::format("CUDA {}.{}", driver->version / 1000, driver->version % 1000 / 10);
  if (driver->version < runtime::cuda::kMinDriverVersion)
    return {"GPU driver", Health::kOptional, version + ", older than 12.0", prevents};
  if (driver->devices.empty())
    return {"GPU driver", Health::kOptional, version + ", no device", prevents};
  std::map<std::string, int> counts;
  for (const GpuDevice& device : driver->devices)
    ++counts[fmt::format("{}, {}", device.name, formatBytes(device.memory))];
  std::vector<std::string> devices;
  for (const auto& [device, count] : counts)
    devices.push_back(fmt::format("{} x {}", count, device));
  return {"GPU driver", Health::kGood, fmt::format("{}; {}", version, fmt::join(devices, "; ")),
          ""};
}

Finding nccl(const Machine& machine) {
  const auto version = machine.libraryVersion("libnccl.so.2", "ncclGetVersion", true);
  const std::string prevents = "ranks with a GPU each; on one GPU: run --virtual-ranks";
  if (!version) return {"NCCL", Health::kOptional, "no libnccl.so.2", prevents};
  // nccl.h: 10000 major + 100 minor + patch since 2.9.
  const std::string name =
      fmt::format("{}.{}.{}", *version / 10000, *version / 100 % 100, *version % 100);
  if (*version < runtime::cuda::kMinNcclVersion)
    return {"NCCL", Health::kOptional, name + ", older than 2.18", prevents};
  return {"NCCL", Health::kGood, name, ""};
}

Finding mpi(const Machine& machine) {
  if (const auto path = machine.findProgram("mpirun")) return {"MPI", Health::kGood, *path, ""};
  return {"MPI", Health::kOptional, "no mpirun in PATH",
          "nothing on one machine; on several torchrun or srun start ranks as well"};
}

}  // namespace

std::string_view healthName(Health health) { return kNames[static_cast<size_t>(health)]; }

std::vector<Finding> examine(const Machine& machine) {
  return {codeGenerator(), cpu(machine),  memory(machine),
#if !TRIREME_RUNTIME_ONLY
          linker(machine),
#endif
          gpus(machine),   nccl(machine), mpi(machine)};
}

}  // namespace trireme::cli
