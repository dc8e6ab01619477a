// Fills the tables from the shared libraries of this machine.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "runtime/device/cuda/cublaslt_api.h"
#include "runtime/device/cuda/driver_api.h"
#include "runtime/device/cuda/nccl_api.h"

namespace trireme::runtime::cuda {
namespace {

// Loaded for ever: whoever uses the table never outlives it.
void* openFirst(const std::vector<const char*>& names) {
  for (const char* name : names)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
  return nullptr;
}

class Symbols {
 public:
  Symbols(void* library, const char* name) : library_(library), name_(name) {}

  template <typename F>
  void find(F*& function, const char* symbol) {
    function = reinterpret_cast<F*>(dlsym(library_, symbol));
    if (function == nullptr && status_.ok())
      status_ = unavailable(fmt::format("{} is too old: it has no {}", name_, symbol));
  }
  const Status& status() const { return status_; }

 private:
  void* library_;
  const char* name_;
  Status status_;
};

Result<DriverApi> openDriver() {
  void* library = openFirst({"libcuda.so.1"});
  if (library == nullptr)
    return Error(
        unavailable("no NVIDIA driver: libcuda.so.1 cannot be loaded (trireme doctor says what "
                    "this machine has)"));
  DriverApi api;
  Symbols symbols(library, "libcuda.so.1");
#define TRIREME_FIND(field, symbol, parameters) symbols.find(api.field, #symbol);
  TRIREME_CUDA_DRIVER_FUNCTIONS(TRIREME_FIND)
#undef TRIREME_FIND
  TRIREME_RETURN_IF_ERROR(symbols.status());
  return api;
}

// 13000 where there is no driver to ask.
int driverVersionOr13() {
  const Result<const DriverApi*> driver = loadDriver();
  int version = 0;
  return driver.has_value() && (*driver)->driverVersion(&version) == 0 ? version : 13000;
}

Result<CublasLtApi> openCublasLt() {
  const int driver = driverVersionOr13();
  const std::vector<const char*> names = cublasLtNames(driver);
  void* library = openFirst(names);
  if (library == nullptr && names.size() == 1 && openFirst(cublasLtNames(13000)) != nullptr)
    return Error(unavailable(fmt::format(
        "libcublasLt.so.13 needs a driver of CUDA 13, this machine's is of CUDA {}.{}; install "
        "libcublasLt.so.12, or a newer driver",
        driver / 1000, driver % 1000 / 10)));
  if (library == nullptr)
    return Error(
        unavailable(fmt::format("cuBLASLt is missing: {} cannot be loaded; install it, or "
                                "put its folder on LD_LIBRARY_PATH",
                                fmt::join(names, " or "))));
  CublasLtApi api;
  Symbols symbols(library, "libcublasLt.so");
#define TRIREME_FIND(field, symbol, parameters) symbols.find(api.field, #symbol);
  TRIREME_CUBLASLT_FUNCTIONS(TRIREME_FIND)
#undef TRIREME_FIND
  symbols.find(api.version, "cublasLtGetVersion");
  TRIREME_RETURN_IF_ERROR(symbols.status());
  return api;
}

Result<NcclApi> openNccl() {
  void* library = openFirst({"libnccl.so.2"});
  if (library == nullptr)
    return Error(unavailable(
        "NCCL is missing: libnccl.so.2 cannot be loaded; ranks with a GPU each talk through it: "
        "install it, or put its folder on LD_LIBRARY_PATH"));
  NcclApi api;
  Symbols symbols(library, "libnccl.so.2");
#define TRIREME_FIND(field, symbol, parameters) symbols.find(api.field, #symbol);
  TRIREME_NCCL_FUNCTIONS(TRIREME_FIND)
#undef TRIREME_FIND
  symbols.find(api.errorString, "ncclGetErrorString");
  symbols.find(api.lastError, "ncclGetLastError");
  TRIREME_RETURN_IF_ERROR(symbols.status());
  TRIREME_RETURN_IF_ERROR(checkNcclVersion(api));
  return api;
}

}  // namespace

Result<const DriverApi*> loadDriver() {
  static const Result<DriverApi> api = openDriver();
  if (!api.has_value()) return Error(api.error());
  return &*api;
}

std::vector<const char*> cublasLtNames(int driverVersion) {
  if (driverVersion >= 13000) return {"libcublasLt.so.13", "libcublasLt.so.12"};
  return {"libcublasLt.so.12"};
}

Result<const CublasLtApi*> loadCublasLt() {
  static const Result<CublasLtApi> api = openCublasLt();
  if (!api.has_value()) return Error(api.error());
  return &*api;
}

Result<const NcclApi*> loadNccl() {
  static const Result<NcclApi> api = openNccl();
  if (!api.has_value()) return Error(api.error());
  return &*api;
}

std::string ncclVersionName(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

Status checkNcclVersion(const NcclApi& api) {
  int version = 0;
  if (const int result = api.version(&version); result != kNcclSuccess)
    return unavailable(fmt::format("NCCL does not say its version: {}", api.errorString(result)));
  if (version >= kMinNcclVersion) return {};
  return unavailable(fmt::format("NCCL is of version {}; {} is the oldest that will do",
                                 ncclVersionName(version), ncclVersionName(kMinNcclVersion)));
}

Result<int> ncclType(DType type) {
  switch (type) {
    case DType::kF64:
      return kNcclFloat64;
    case DType::kF32:
      return kNcclFloat32;
    case DType::kBf16:
      return kNcclBfloat16;
    case DType::kI32:
      return kNcclInt32;
    case DType::kF16:
      return kNcclFloat16;
  }
  return Error(invalidArgument(fmt::format("{} cannot be reduced", dtypeName(type))));
}

int ncclOp(program::ReduceOp op) { return op == program::ReduceOp::kSum ? kNcclSum : kNcclMax; }

Status driverStatus(const DriverApi& api, int error, const std::string& what) {
  if (error == 0) return {};
  constexpr int kOutOfMemory = 2;
  const char* text = nullptr;
  if (api.errorString(error, &text) != 0 || text == nullptr) text = "unknown error";
  const std::string message = fmt::format("CUDA, {}: {} (error {})", what, text, error);
  return error == kOutOfMemory ? resourceExhausted(message) : internalError(message);
}

}  // namespace trireme::runtime::cuda
