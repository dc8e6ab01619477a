// Which ops have a fast kernel, for which types; all others run the reference.
#include "runtime/kernels/kernels.h"

#include "runtime/kernels/attention.h"
#include "runtime/kernels/embedding.h"
#include "runtime/kernels/loss.h"
#include "runtime/kernels/matmul.h"
#include "runtime/kernels/operands.h"

namespace trireme::runtime {
namespace {

using program::OpKind;

struct FastKernel {
  bool (*takes)(const KernelCallArgs&);
  void (*run)(const KernelCallArgs&);
};

FastKernel fastKernelOf(OpKind kind) {
  switch (kind) {
    case OpKind::kMatmul:
    case OpKind::kMatmulGradInput:
    case OpKind::kMatmulGradWeight:
      return {isFastMatmul, fastMatmul};
    case OpKind::kAttention:
      return {isFastAttention, fastAttention};
    case OpKind::kAttentionGrad:
      return {isFastAttention, fastAttentionGrad};
    case OpKind::kEmbedding:
      return {isFastEmbedding, fastEmbedding};
    case OpKind::kEmbeddingGrad:
      return {isFastEmbedding, fastEmbeddingGrad};
    case OpKind::kLossMax:
      return {isFastLoss, fastLossMax};
    case OpKind::kLossSumExp:
      return {isFastLoss, fastLossSumExp};
    case OpKind::kLossGrad:
      return {isFastLoss, fastLossGrad};
    default:
      return {nullptr, nullptr};
  }
}

}  // namespace

Status runLibraryOp(const KernelCallArgs& args) {
  const FastKernel fast = fastKernelOf(args.op->kind);
  if (fast.run == nullptr) return runReferenceOp(args);
  TRIREME_RETURN_IF_ERROR(checkOperands(args));
  if (!fast.takes(args)) return runReferenceOp(args);
  fast.run(args);
  return {};
}

}  // namespace trireme::runtime
