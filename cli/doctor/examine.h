// What is there for Trireme to work with, and what each missing piece prevents.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cli/doctor/machine.h"

namespace trireme::cli {

enum class Health : uint8_t {
  kGood,
  kOptional,  // missing, and something that not everybody needs does not work or is slow
  kMissing,   // a command cannot work
};
std::string_view healthName(Health health);  // "good", "optional", "missing"

struct Finding {
  std::string subject;  // "linker"
  Health health = Health::kGood;
  std::string found;     // what is there: "/usr/bin/ld"
  std::string prevents;  // what does not work without; empty if it is there
};

// In the order of the table.
std::vector<Finding> examine(const Machine& machine);

}  // namespace trireme::cli
