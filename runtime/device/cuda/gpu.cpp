#include "runtime/device/cuda/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace trireme::runtime::cuda {
namespace {

constexpr int32_t kWarp = 32;

std::atomic<bool> anyAbandoned = false;

}  // namespace

bool anyGpuAbandoned() { return anyAbandoned; }

void Gpu::abandon() const {
  abandoned_ = true;
  anyAbandoned = true;
}

Result<Apis> loadApis(bool withNccl) {
  Apis apis;
  TRIREME_ASSIGN_OR_RETURN(apis.driver, loadDriver());
  apis.images = shippedImages();
  if (apis.images.empty())
    return Error(
        unavailable("this build of trireme has no GPU kernels: it was configured without nvcc "
                    "(-DTRIREME_CUDA=ON asks for it)"));
  TRIREME_ASSIGN_OR_RETURN(apis.cublasLt, loadCublasLt());
  if (withNccl) {
    TRIREME_ASSIGN_OR_RETURN(apis.nccl, loadNccl());
  }
  return apis;
}

// The driver answers 100 without a device, and other errors where it is broken.
Result<int> Gpu::count(const Apis& apis) {
  static_cast<void>(setenv(kConnectionsVariable, std::to_string(kMaxConnections).c_str(), 0));
  // Since 2.22 NCCL connects the members of a collective in the first call that needs it, within a
  // step, unless it is told to do so when they meet.
  static_cast<void>(setenv("NCCL_RUNTIME_CONNECT", "0", 0));
  if (const int error = apis.driver->init(0); error != 0)
    return Error(unavailable("no GPU: " +
                             driverStatus(*apis.driver, error, "starting the driver").message()));
  int count = 0;
  return apis.driver->deviceCount(&count) == 0 ? count : 0;
}

Result<std::unique_ptr<Gpu>> Gpu::open(const Apis& apis, int ordinal) {
  std::unique_ptr<Gpu> gpu(new Gpu);
  gpu->apis_ = apis;
  TRIREME_RETURN_IF_ERROR(gpu->initialise(ordinal));
  return gpu;
}

Status Gpu::initialise(int ordinal) {
  const DriverApi& api = driver();
  const auto check = [&](int error, const char* what) { return driverStatus(api, error, what); };
  TRIREME_ASSIGN_OR_RETURN(const int present, count(apis_));
  if (present <= ordinal)
    return unavailable(fmt::format("no GPU {}: the driver has {}", ordinal, present));
  TRIREME_RETURN_IF_ERROR(check(api.driverVersion(&driverVersion_), "asking for its version"));
  if (driverVersion_ < kMinDriverVersion)
    return unavailable(
        fmt::format("the NVIDIA driver is of CUDA {}.{}; 12.0 is the oldest that "
                    "will do",
                    driverVersion_ / 1000, driverVersion_ % 1000 / 10));
  std::array<char, 256> text{};
  int major = 0, minor = 0;
  TRIREME_RETURN_IF_ERROR(check(api.device(&device_, ordinal), "opening the GPU"));
  TRIREME_RETURN_IF_ERROR(
      check(api.deviceName(text.data(), static_cast<int>(text.size()), device_), "its name"));
  TRIREME_RETURN_IF_ERROR(
      check(api.deviceAttribute(&major, kComputeCapabilityMajor, device_), "its capability"));
  TRIREME_RETURN_IF_ERROR(
      check(api.deviceAttribute(&minor, kComputeCapabilityMinor, device_), "its capability"));
  TRIREME_RETURN_IF_ERROR(
      check(api.deviceAttribute(&numMultiprocessors_, kMultiprocessorCount, device_),
            "its multiprocessors"));
  name_ = text.data();
  capability_ = 10 * major + minor;
  const auto images = imagesFor(apis_.images, capability_, "this build");
  if (!images) return images.error().withContext(fmt::format("GPU {} ({})", ordinal, name_));
  TRIREME_RETURN_IF_ERROR(check(api.retainContext(&context_, device_), "opening its context"));
  TRIREME_RETURN_IF_ERROR(makeCurrent());
  return load(*images, "the kernels", module_);
}

// Code of a newer toolkit than the driver may be refused where its PTX is not.
Status Gpu::load(const std::vector<KernelImage>& images, const std::string& what,
                 ModuleHandle& module) const {
  std::string refusals;
  for (const KernelImage& image : images) {
    const int error = driver().loadModule(&module, image.bytes.data());
    if (error == 0) return {};
    const Status status = driverStatus(driver(), error, describe(image));
    if (!refusesImage(error)) return status.withContext("loading " + what);
    refusals += "; " + status.message();
  }
  return unavailable(fmt::format("the driver, of CUDA {}.{}, takes {} in no form{}",
                                 driverVersion_ / 1000, driverVersion_ % 1000 / 10, what,
                                 refusals));
}

Gpu::~Gpu() {
  if (context_ == nullptr || abandoned_) return;
  static_cast<void>(driver().setContext(context_));
  for (ModuleHandle module : {generated_, module_})
    if (module != nullptr) static_cast<void>(driver().unloadModule(module));
  static_cast<void>(driver().releaseContext(device_));
}

Status Gpu::makeCurrent() const {
  return driverStatus(driver(), driver().setContext(context_), "choosing the GPU");
}

Status Gpu::memory(size_t& available, size_t& total) const {
  TRIREME_RETURN_IF_ERROR(makeCurrent());
  return driverStatus(driver(), driver().memoryInfo(&available, &total), "asking for its memory");
}

Result<int64_t> Gpu::freeBytes() const {
  size_t available = 0, total = 0;
  TRIREME_RETURN_IF_ERROR(memory(available, total));
  return static_cast<int64_t>(available);
}

Result<int64_t> Gpu::totalBytes() const {
  size_t available = 0, total = 0;
  TRIREME_RETURN_IF_ERROR(memory(available, total));
  return static_cast<int64_t>(total);
}

Result<FunctionHandle> Gpu::find(ModuleHandle module, const std::string& name) const {
  FunctionHandle function = nullptr;
  TRIREME_RETURN_IF_ERROR(driverStatus(driver(), driver().function(&function, module, name.c_str()),
                                       "finding the kernel " + name));
  return function;
}

Result<FunctionHandle> Gpu::kernel(const std::string& kernelName) const {
  return find(module_, kernelName);
}

Status Gpu::loadGenerated(const std::vector<KernelImage>& images) {
  TRIREME_CHECK(generated_ == nullptr);
  TRIREME_ASSIGN_OR_RETURN(const std::vector<KernelImage> fitting,
                           imagesFor(images, capability_, "the bundle"));
  TRIREME_RETURN_IF_ERROR(makeCurrent());
  return load(fitting, "the generated kernels", generated_);
}

Result<FunctionHandle> Gpu::generatedKernel(const std::string& symbol) const {
  if (generated_ == nullptr)
    return Error(internalError(fmt::format("no generated kernels, among them {}", symbol)));
  return find(generated_, symbol);
}

KernelLaunch launchOf(FunctionHandle kernel, const void* args, int64_t threads) {
  constexpr int64_t kBlock = 256;
  return launchOfBlocks(kernel, args, (threads + kBlock - 1) / kBlock, kBlock / kWarp);
}

KernelLaunch launchOfBlocks(FunctionHandle kernel, const void* args, int64_t blocks,
                            int32_t warps) {
  constexpr int64_t kMaxBlocks = 1 << 20;
  return {kernel, args, static_cast<unsigned>(std::clamp<int64_t>(blocks, 0, kMaxBlocks)),
          static_cast<unsigned>(warps * kWarp)};
}

Status Gpu::launch(const KernelLaunch& launch, StreamHandle stream) const {
  if (launch.blocks == 0) return {};
  void* params[] = {const_cast<void*>(launch.args)};
  return driverStatus(driver(),
                      driver().launch(launch.function, launch.blocks, 1, 1, launch.threads, 1, 1, 0,
                                      stream, params, nullptr),
                      "launching a kernel");
}

}  // namespace trireme::runtime::cuda
