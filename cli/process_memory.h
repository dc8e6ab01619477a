// What the kernel says this process takes.
#pragma once
#include <string>

#include "ir/base/units.h"

namespace trireme::cli {

struct ProcessMemory {
  Bytes now;   // resident
  Bytes peak;  // the most that was ever resident
};

// Zero where the system does not tell.
ProcessMemory readProcessMemory();
// `status` is the text of Linux's /proc/<pid>/status.
ProcessMemory parseProcessMemory(const std::string& status);

}  // namespace trireme::cli
