#include "cli/process_memory.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace trireme::cli {

ProcessMemory parseProcessMemory(const std::string& status) {
  ProcessMemory memory;
  std::istringstream lines(status);
  for (std::string key; lines >> key; lines.ignore(4096, '\n')) {
    double kibibytes = 0;  // The unit is fixed: "VmRSS:     1234 kB".
    if (key == "VmRSS:" && lines >> kibibytes) memory.now = Bytes(kibibytes * 1024);
    if (key == "VmHWM:" && lines >> kibibytes) memory.peak = Bytes(kibibytes * 1024);
  }
  return memory;
}

ProcessMemory readProcessMemory() {
  std::ifstream file("/proc/self/status");
  std::stringstream text;
  text << file.rdbuf();
  return parseProcessMemory(text.str());
}

}  // namespace trireme::cli
