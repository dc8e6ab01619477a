// The executable form of a program's segments: generated kernels, library kernels or references.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/bundle.h"
#include "runtime/executor/deferred_zeros.h"
#include "runtime/kernels/kernels.h"

namespace trireme::runtime {

// Shared by all ranks; immutable after load().
class SegmentCode {
 public:
  // `bundle` must outlive the result. A segment without calls is executed op by op with library
  // kernels; with `useReference` every segment is, with the references.
  // kInvalidArgument: this machine lacks a CPU feature of the target, or a symbol is missing.
  static Result<SegmentCode> load(const program::Bundle& bundle, bool useReference);

  struct Call {
    const program::KernelContext* context;
    void* const* operands;  // one per operand of the segment
    void** arguments;       // scratch: at least maxArguments() pointers
    void* workspace;
    ThreadPool* pool;
    const program::LossScaling* lossScaling = nullptr;  // null: nothing is scaled
    DeferredZeros* zeros = nullptr;                     // null: all are written
  };
  Status run(int32_t segment, const Call& call) const;

  size_t maxArguments() const { return maxArguments_; }

 private:
  // One kernel: generated if `kernel` is set, else `op`.
  struct Step {
    program::GeneratedKernel kernel = nullptr;
    const program::KernelCall* generated = nullptr;
    const program::SegmentOp* op = nullptr;
  };
  // Runs one op, which writes instead of adding where it would add to zeros.
  Status runOp(const program::Segment& segment, const program::SegmentOp& op,
               const Call& call) const;
  Status addCompiled(const program::Segment& segment, const program::CompiledSegment& compiled,
                     std::vector<Step>& steps);

  std::shared_ptr<void> library_;  // of dlopen()
  const program::Program* program_ = nullptr;
  std::vector<std::vector<Step>> segments_;
  size_t maxArguments_ = 0;
  bool useReference_ = false;
};

}  // namespace trireme::runtime
