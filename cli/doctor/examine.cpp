#include "cli/doctor/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "ir/base/format.h"
#include "ir/base/version.h"
#include "runtime/device/cuda/cublaslt_api.h"
#include "runtime/device/cuda/driver_api.h"
#include "runtime/device/cuda/nccl_api.h"

#if !TRIREME_RUNTIME_ONLY
#include "cli/code_generator.h"
#endif

namespace trireme::cli {
namespace {

constexpr std::string_view kNames[] = {"good", "optional", "missing"};

Finding codeGenerator() {
#if TRIREME_RUNTIME_ONLY
  return {"trireme", Health::kGood, fmt::format("{}, the runtime alone", kVersion), ""};
#else
  const Result<const codegen::Generator*> generator = loadCodeGenerator();
  if (generator)
    return {"trireme", Health::kGood, fmt::format("{}, with the code generator", kVersion), ""};
  return {"trireme", Health::kMissing, fmt::format("{}; {}", kVersion, generator.error().message()),
          "trireme compile, and calibrate of this machine's processor; calibrate --gpu, "
          "--gpu-measurements and --nccl-tests work, and bundles made elsewhere run"};
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
          "trireme compile cannot link kernels for hosts, nor calibrate measure this one"};
}

// Where codegen looks for it.
[[maybe_unused]] Finding assembler(const Machine& machine) {
  for (const char* name : {"ptxas", "/usr/local/cuda/bin/ptxas"})
    if (const auto path = machine.findProgram(name)) return {"ptxas", Health::kGood, *path, ""};
  return {"ptxas", Health::kOptional, "neither in PATH nor in /usr/local/cuda/bin",
          "bundles for GPUs have PTX alone, which the driver compiles when they start"};
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

// As the library writes its version: cublasLtGetVersion, and nccl.h since 2.9.
std::string versionName(int64_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string describe(const LibraryFile& library) {
  return fmt::format("{}, {}", versionName(library.version), library.path);
}

// The one that `run` loads; of a machine without a driver, as if that were the newest.
Finding cublasLt(const Machine& machine) {
  constexpr int kNewest = 13000;
  const std::string prevents = "bundles that are compiled for GPUs cannot run here";
  std::string why;
  const std::optional<GpuDriver> driver = machine.gpuDriver(why);
  const auto firstOf = [&](int version) -> std::optional<LibraryFile> {
    for (const char* name : runtime::cuda::cublasLtNames(version))
      if (auto library = machine.findLibrary(name, "cublasLtGetVersion", false)) return library;
    return std::nullopt;
  };
  const int version = driver ? driver->version : kNewest;
  if (const auto library = firstOf(version))
    return {"cuBLASLt", Health::kGood, describe(*library), ""};
  if (const auto newer = firstOf(kNewest))
    return {"cuBLASLt", Health::kOptional,
            describe(*newer) + ", which needs a driver of CUDA 13; libcublasLt.so.12 would do",
            prevents};
  return {"cuBLASLt", Health::kOptional,
          fmt::format("no {}, in the loader's folders or LD_LIBRARY_PATH",
                      fmt::join(runtime::cuda::cublasLtNames(version), " or ")),
          prevents};
}

Finding nccl(const Machine& machine) {
  const auto library = machine.findLibrary("libnccl.so.2", "ncclGetVersion", true);
  const std::string prevents = "ranks with a GPU each; on one GPU: run --virtual-ranks";
  if (!library)
    return {"NCCL", Health::kOptional,
            "no libnccl.so.2, in the loader's folders or LD_LIBRARY_PATH", prevents};
  if (library->version < runtime::cuda::kMinNcclVersion)
    return {"NCCL", Health::kOptional, describe(*library) + ", older than 2.18", prevents};
  return {"NCCL", Health::kGood, describe(*library), ""};
}

Finding mpi(const Machine& machine) {
  if (const auto path = machine.findProgram("mpirun")) return {"MPI", Health::kGood, *path, ""};
  return {"MPI", Health::kOptional, "no mpirun in PATH",
          "nothing on one machine; on several torchrun or srun start ranks as well"};
}

}  // namespace

std::string_view healthName(Health health) { return kNames[static_cast<size_t>(health)]; }

std::vector<Finding> examine(const Machine& machine) {
  return {codeGenerator(), cpu(machine),       memory(machine),
#if !TRIREME_RUNTIME_ONLY
          linker(machine), assembler(machine),
#endif
          gpus(machine),   cublasLt(machine),  nccl(machine),   mpi(machine)};
}

}  // namespace trireme::cli
