// The host kernels that are not generated: matrix products, attention, embedding, loss;
// and a slow readable reference of every op, which the fast ones and the generated ones are tested
// against.
#pragma once
#include <cstdint>
#include <functional>

#include "ir/base/status.h"
#include "ir/program/bundle.h"
#include "ir/program/op.h"
#include "ir/program/program.h"

namespace trireme::runtime {

// Runs `body(begin, end)` over a partition of [0, extent) in pieces of at least `grain`, in
// parallel on the rank's threads; returns when all are done. The partition must not influence
// results.
class ThreadPool;
void parallelFor(ThreadPool& pool, int64_t extent, int64_t grain,
                 const std::function<void(int64_t begin, int64_t end)>& body);

struct KernelCallArgs {
  const program::SegmentOp* op;
  const program::OperandType* types;  // of all operands of the segment
  void* const* operands;              // address of each operand of the segment
  const program::KernelContext* context;
  void* workspace;  // at least kernelWorkspaceBytes(...)
  ThreadPool* pool;
  const program::LossScaling* lossScaling = nullptr;  // the rank's; null: nothing is scaled
  bool overwrite = false;  // kMatmulGradWeight: what would be added to is zero, and not written yet
};

// Bytes of scratch that the library kernel of `op` may use (0 for most). Also called by ir/expand's
// memory layout through ir/program/workspace.h, so it depends on nothing but the op.
// Executes one op with the fast kernel if there is one, else with the reference.
// Bitwise repeatable: the result does not depend on the number of threads.
// kInvalidArgument: shapes or types that the op does not take.
Status runLibraryOp(const KernelCallArgs& args);

// The readable twin: plain loops in double (accumulators too), rounded once to the output type.
Status runReferenceOp(const KernelCallArgs& args);

}  // namespace trireme::runtime
