#include "cli/doctor/machine.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "runtime/executor/host_memory.h"

namespace trireme::cli {
namespace {

// A shared library. It stays loaded: cuBLASLt leaves memory behind when it is closed.
class Library {
 public:
  explicit Library(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) error_ = dlerror();
  }

  bool isOpen() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }
  std::string path() const {
    link_map* map = nullptr;
    const bool isKnown = isOpen() && dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0;
    return isKnown ? map->l_name : "";
  }
  template <typename Function>
  Function* find(const std::string& symbol) const {
    return handle_ != nullptr ? reinterpret_cast<Function*>(dlsym(handle_, symbol.c_str()))
                              : nullptr;
  }

 private:
  void* handle_;
  std::string error_;
};

// The value of the first line of /proc/cpuinfo that begins with `key`.
std::string cpuField(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key))
      if (const size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return {};
}

class ThisMachine final : public Machine {
 public:
  std::string cpuName() const override { return cpuField("model name"); }

  std::vector<std::string> cpuFlags() const override {
    std::istringstream words(cpuField("flags"));
    std::vector<std::string> flags;
    for (std::string word; words >> word;) flags.push_back(word);
    return flags;
  }

  int numCores() const override {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
    return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  }

  std::optional<Bytes> availableMemory() const override { return runtime::availableMemory(); }

  std::optional<std::string> findProgram(const std::string& name) const override {
    if (name.find('/') != std::string::npos)
      return access(name.c_str(), X_OK) == 0 ? std::optional(name) : std::nullopt;
    const char* path = std::getenv("PATH");
    std::istringstream folders(path != nullptr ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string file = (folder.empty() ? "." : folder) + "/" + name;
      if (access(file.c_str(), X_OK) == 0) return file;
    }
    return std::nullopt;
  }

  // cuda.h: every function returns 0 on success.
  std::optional<GpuDriver> gpuDriver(std::string& why) const override {
    const Library cuda("libcuda.so.1");
    if (!cuda.isOpen()) {
      why = cuda.error();
      return std::nullopt;
    }
    auto* init = cuda.find<int(unsigned)>("cuInit");
    auto* getVersion = cuda.find<int(int*)>("cuDriverGetVersion");
    auto* getCount = cuda.find<int(int*)>("cuDeviceGetCount");
    auto* getName = cuda.find<int(char*, int, int)>("cuDeviceGetName");
    auto* getMemory = cuda.find<int(size_t*, int)>("cuDeviceTotalMem_v2");
    if (!init || !getVersion || !getCount || !getName || !getMemory) {
      why = "libcuda.so.1 lacks functions of the driver";
      return std::nullopt;
    }
    int count = 0;
    GpuDriver driver;
    if (const int code = init(0);
        code != 0 || getVersion(&driver.version) != 0 || getCount(&count) != 0) {
      why = fmt::format("the driver does not start (cuInit: error {})", code);
      return std::nullopt;
    }
    for (int device = 0; device < count; ++device) {
      char name[128] = {};
      size_t memory = 0;
      if (getName(name, sizeof(name), device) != 0 || getMemory(&memory, device) != 0) {
        why = fmt::format("device {} does not answer", device);
        return std::nullopt;
      }
      driver.devices.push_back({name, Bytes(static_cast<double>(memory))});
    }
    return driver;
  }

  std::optional<LibraryFile> findLibrary(const std::string& name, const std::string& symbol,
                                         bool byPointer) const override {
    const Library file(name);
    if (byPointer) {
      auto* function = file.find<int(int*)>(symbol);
      int version = 0;
      if (function == nullptr || function(&version) != 0) return std::nullopt;
      return LibraryFile{file.path(), version};
    }
    auto* function = file.find<size_t()>(symbol);
    if (function == nullptr) return std::nullopt;
    return LibraryFile{file.path(), static_cast<int64_t>(function())};
  }
};

}  // namespace

std::unique_ptr<Machine> thisMachine() { return std::make_unique<ThisMachine>(); }

}  // namespace trireme::cli
