// One op with random operands, to run on the fast kernels and on the reference.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernels/kernels.h"
#include "runtime/kernels/operands.h"

namespace trireme::runtime::testing {

// What all draws begin with: TRIREME_SEED of the environment, else 42.
uint64_t seedOfDraws();

class OpCase {
 public:
  explicit OpCase(program::OpKind kind, program::OpAttributes attributes = {});

  // Adds an operand and returns its index. Inputs are normal draws; ids are uniform in [0, limit).
  int input(DType type, std::vector<int64_t> dims);
  int ids(std::vector<int64_t> dims, int64_t limit);
  int input(DType type, std::vector<int64_t> dims, std::span<const double> values);
  // An output starts as NaN (as normal draws if it accumulates): what is not written is noticed.
  int output(DType type, std::vector<int64_t> dims, bool accumulates = false);
  // An operand that is an input and an output: input `i` is written over.
  void outputOver(int input);
  // What accumulates is written instead (KernelCallArgs::overwrite).
  void overwrite() { overwrite_ = true; }

  program::OpKind kind() const { return op_.kind; }
  program::OpAttributes& attributes() { return op_.attributes; }
  program::KernelContext& context() { return context_; }
  std::vector<double> values(int operand) const;
  void setValues(int operand, std::span<const double> values);
  double& scalar(int operand, int64_t i);  // f64 operands only

  // Runs on the current operands. The workspace holds exactly kernelWorkspaceBytes() of NaN;
  // writing beyond it fails the test.
  Status runFast(int numThreads = 1);
  Status runReference();
  // On another device: `run` gets the op, the types and the addresses of its operands.
  using Run = std::function<Status(
      const program::SegmentOp& op, const std::vector<program::OperandType>& types,
      const program::KernelContext& context, const std::vector<void*>& operands)>;
  Status runOn(const Run& run);

 private:
  program::SegmentOp op_;
  std::vector<program::OperandType> types_;
  std::vector<std::vector<std::max_align_t>> data_;
  program::KernelContext context_;
  bool overwrite_ = false;
  std::mt19937_64 random_{seedOfDraws()};

  int add(DType type, std::vector<int64_t> dims);
  Tensor tensor(int operand) const;
  KernelCallArgs args(std::vector<void*>& addresses);
};

// Runs a copy of `test` on each, with 1 and 3 threads on the fast side. The outputs must equal
// bitwise between numbers of threads, and the reference within `tolerance`, relative to the largest
// element of the output.
void expectFastMatchesReference(const OpCase& test, std::span<const int> outputs, double tolerance);

inline constexpr DType kFloats[] = {DType::kF64, DType::kF32, DType::kBf16, DType::kF16};
// The state type that goes with a compute type, and the rounding error of a compute type.
DType stateOf(DType type);
double roundingOf(DType type);

}  // namespace trireme::runtime::testing
