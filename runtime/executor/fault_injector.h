// The outside world breaking: lets a test stop a rank at any instruction.
#pragma once
#include <cstdint>

#include "ir/program/program.h"

namespace trireme::runtime {

enum class Fault : uint8_t {
  kNone,
  kFail,   // the rank reports an error and stops: its peers hear of it at once
  kStall,  // the rank stops without a word: its peers find out by their timeouts
};

class FaultInjector {
 public:
  virtual ~FaultInjector() = default;
  // Asked before each instruction is issued, by all ranks at once. `instruction` is its index in
  // the body; `layer` is logical, -1 outside a repeat.
  virtual Fault before(int32_t rank, const program::TaskRecord& task, int32_t instruction,
                       int32_t layer) = 0;
};

}  // namespace trireme::runtime
