// Runs a segment twice: compiled, and op by op through the readable reference of runtime/kernels.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "codegen/codegen.h"

namespace trireme::codegen {

using program::OpAttributes;
using program::OperandType;
using program::OpKind;
using program::Segment;

// Bytes of every operand of a segment. Operands may share memory.
class Memory {
 public:
  // sharedWith[i]: the operand whose memory operand i uses; empty: each has its own.
  Memory(const Segment& segment, const std::vector<int32_t>& sharedWith = {});

  void* data(int32_t operand) const;
  std::vector<void*> pointers() const;
  double at(int32_t operand, int64_t i) const;
  void set(int32_t operand, int64_t i, double value);
  // The operand's bytes, and the guard behind them, which nobody may touch.
  std::string bytes(int32_t operand) const;
  bool guardsAreIntact() const;

 private:
  std::vector<OperandType> types_;
  std::vector<int32_t> owner_;
  mutable std::vector<std::vector<std::byte>> storage_;
};

void runReferenceCall(const program::SegmentOp& op, const Segment& source,
                      const std::vector<void*>& operands, const program::KernelContext& context);

// A shared object in this process.
class LoadedKernels {
 public:
  explicit LoadedKernels(CompiledKernels compiled);
  ~LoadedKernels();
  LoadedKernels(const LoadedKernels&) = delete;
  LoadedKernels& operator=(const LoadedKernels&) = delete;

  const CompiledKernels& compiled() const { return compiled_; }
  // Calls every kernel in pieces of `piece` (0: in one piece). Library calls go to the reference.
  void run(size_t segment, const Segment& source, const Memory& memory,
           const program::KernelContext& context, int64_t piece = 0) const;

 private:
  CompiledKernels compiled_;
  void* handle_ = nullptr;
};

void runReference(const Segment& segment, const Memory& memory,
                  const program::KernelContext& context);

program::KernelContext testContext();

// A segment, operand by operand and op by op.
struct SegmentBuilder {
  Segment segment;
  explicit SegmentBuilder(std::string name = "test") { segment.name = std::move(name); }
  int32_t operand(DType dtype, std::vector<int64_t> dims, bool temporary = false);
  void op(OpKind kind, std::vector<int32_t> inputs, std::vector<int32_t> outputs,
          OpAttributes attributes = {});
};

// Deterministic values in (-2, 2) for every operand that is read before it is written; others are
// poisoned. rstd of a norm gradient is positive.
void fillInputs(const Segment& segment, Memory& memory);

// Largest relative error that a kernel may have against the reference, by type.
double toleranceOf(DType dtype);

// Compiles, runs and compares all operands that outlive the segment:
// against the reference, in one piece and in many (bitwise), fused and unfused (bitwise).
// `sharedWith`: also run with operands sharing memory (bitwise).
void expectMatchesReference(const Segment& segment, const std::vector<int32_t>& sharedWith = {});

}  // namespace trireme::codegen
