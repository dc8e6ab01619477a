// What a machine has, as far as a program can ask: an interface, so that tests can take things
// away.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/units.h"

namespace trireme::cli {

struct GpuDevice {
  std::string name;
  Bytes memory;
};

// The NVIDIA driver: its version as it writes it (13000 is 13.0), and its devices.
struct GpuDriver {
  int version = 0;
  std::vector<GpuDevice> devices;
};

// A shared library, as the loader finds it.
struct LibraryFile {
  std::string path;
  int64_t version = 0;  // as the library writes it
};

class Machine {
 public:
  virtual ~Machine() = default;
  virtual std::string cpuName() const = 0;                // empty: unknown
  virtual std::vector<std::string> cpuFlags() const = 0;  // as Linux names them
  virtual int numCores() const = 0;                       // that this process may use
  virtual std::optional<Bytes> availableMemory() const = 0;
  // Its path; of a name with a slash that, if it is a program.
  virtual std::optional<std::string> findProgram(const std::string& name) const = 0;
  // None, and in `why` the reason, where the driver or a device does not answer.
  virtual std::optional<GpuDriver> gpuDriver(std::string& why) const = 0;
  // A shared library whose version function `symbol` gives, if both are there: as
  // `int symbol(int*)`, or, without an argument, as `size_t symbol()`.
  virtual std::optional<LibraryFile> findLibrary(const std::string& name, const std::string& symbol,
                                                 bool byPointer) const = 0;
};

// The machine that this process runs on.
std::unique_ptr<Machine> thisMachine();

}  // namespace trireme::cli
