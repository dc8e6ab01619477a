// Operands of kernels that are timed, as far from the processor as they are in a training step.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/program.h"
#include "runtime/executor/arena.h"

namespace trireme::runtime {

// Of one rank. Kept from one measurement to the next: to touch new pages takes longer than most
// kernels.
class OperandMemory {
 public:
  // As much, page-aligned, of unspecified contents, until the next call. kResourceExhausted: the
  // system has no such block.
  Result<char*> reserve(int64_t bytes);

 private:
  Arena arena_;
};

// How many copies there are of each operand of a segment, so that all take at most `most` bytes,
// but at least one of each. A step comes back to a product's weight, or adds to its gradient, after
// all other weights: half of the bytes are for copies of those, as many as fit. An op reads what
// the op before it has just written, and its own buffers come round again some ops later: of other
// operands there are a few copies.
std::vector<int64_t> numCopies(const program::Segment& segment, int64_t most);
// What they take.
int64_t bytesOfCopies(const program::Segment& segment, int64_t most);

// Sets one, two... of the copies, which take turns.
class Operands {
 public:
  // All hold small numbers, or small ids. They lie in `memory`, which must not be reserved again
  // before the last use.
  static Result<Operands> make(const program::Segment& segment, int64_t most,
                               OperandMemory& memory);

  // An address per operand of the segment, until the next call.
  void* const* next();

 private:
  struct Copies {
    char* first = nullptr;
    int64_t stride = 0;  // bytes
    int64_t count = 0, next = 0;
  };
  std::vector<Copies> copies_;
  std::vector<void*> addresses_;
};

// Neither denormal nor large; ids that every table has.
void fillSmall(const program::OperandType& type, void* data);

}  // namespace trireme::runtime
