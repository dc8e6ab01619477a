// Which ops have a fast kernel, for which types; all others run the reference.
#include "runtime/kernels/kernels.h"

#include "runtime/kernels/matmul.h"
#include "runtime/kernels/operands.h"

namespace trireme::runtime {

Status runLibraryOp(const KernelCallArgs& args) {
  using program::OpKind;
  TRIREME_RETURN_IF_ERROR(checkOperands(args));
  switch (args.op->kind) {
    case OpKind::kMatmul:
    case OpKind::kMatmulGradInput:
    case OpKind::kMatmulGradWeight:
      if (!isFastMatmul(args)) break;
      fastMatmul(args);
      return {};
    default: break;
  }
  return runReferenceOp(args);
}

}  // namespace trireme::runtime
