// One op of a segment as launches of kernels: what is known once the rank is, so that a call only
// fills in addresses and random keys. Matrix products are in matmul.h.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "ir/program/bundle.h"
#include "runtime/device/cuda/gpu.h"
#include "runtime/device/cuda/kernels/args.h"
#include "runtime/device/cuda/loss_chain.h"
#include "runtime/device/cuda/matmul.h"

namespace trireme::runtime::cuda {

// Whether there are kernels for the op: what OpLaunch::create() and Matmul::create() would say,
// asked where there is no GPU. kInvalidArgument: as theirs.
Status checkOp(const program::SegmentOp& op, const std::vector<program::OperandType>& types);

// Whether the op's result depends on random keys and the first sample.
bool drawsRandom(const program::SegmentOp& op);

// What is on the GPU beside the operands.
struct OpPlace {
  const program::LossScaling* lossScaling = nullptr;  // read by kLossGrad; null: nothing is scaled
  Workspace workspace;                                // program::kernelWorkspaceBytes()
};

class OpLaunch {
 public:
  // kInvalidArgument: shapes or types that the op does not take, a head size above 256, or less
  // workspace than the op needs.
  static Result<OpLaunch> create(const Gpu& gpu, const program::SegmentOp& op,
                                 const std::vector<program::OperandType>& types, int32_t tpIndex,
                                 const OpPlace& place = {});

  // The ops of a chain as one kernel. Errors: as of each of them.
  static Result<OpLaunch> create(const Gpu& gpu, const LossChain& chain,
                                 const std::vector<program::OperandType>& types, int32_t tpIndex);

  // What run() takes for granted of the addresses with which a segment is called. kInternal: an
  // operand of which kernels copy 16 bytes at a time does not begin at a multiple of 16.
  Status checkAlignment(void* const* operands) const;

  // `operands`: one per operand of the segment. Puts the same kernels in the same order always.
  Status run(const program::KernelContext& context, void* const* operands, KernelSink& sink) const;
  bool draws() const { return draws_; }

 private:
  struct Kernel {
    FunctionHandle function = nullptr;
    int64_t threads = 0;  // without `warps`
    int64_t blocks = 0;   // of so many warps
    int32_t warps = 0;
  };

  OpArgs args_{};
  RngStream random_ = RngStream::kInit;
  bool draws_ = false;             // drawsRandom()
  std::vector<int32_t> operands_;  // index in the segment, of args_.operands
  std::vector<int32_t> aligned_;   // of these, those that kernels copy in pieces of 16 bytes
  std::vector<Kernel> kernels_;
};

}  // namespace trireme::runtime::cuda
