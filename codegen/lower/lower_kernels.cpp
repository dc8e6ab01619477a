#include "codegen/fuse/iteration.h"
#include "codegen/lower/kernel.h"
#include "codegen/passes.h"

namespace trireme::codegen {

#define GEN_PASS_DEF_LOWERKERNELSPASS
#include "codegen/passes.h.inc"

namespace {

using namespace mlir;

// (C1), (C2)
LogicalResult checkKernel(func::FuncOp kernel) {
  Type compute;
  for (Operation& op : kernel.getBody().front().without_terminator()) {
    const Space space = iterationOf(&op).space;
    const bool alone = llvm::hasSingleElement(kernel.getBody().front().without_terminator());
    if (space == Space::kLibrary || (space != Space::kTokens && !alone))
      return op.emitOpError("(C2) is not generated in this kernel");
    const Type element = elementOf(op.getOperand(0));
    if (compute && element != compute)
      return op.emitOpError("(C1) computes on ") << element << " in a kernel of another type";
    compute = element;
  }
  if (!compute) return kernel.emitOpError("(C2) is empty");
  return success();
}

struct LowerKernels : public impl::LowerKernelsPassBase<LowerKernels> {
  using LowerKernelsPassBase::LowerKernelsPassBase;

  void runOnOperation() override {
    for (func::FuncOp kernel : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (!kernel->hasAttr(dialect::kKernel)) continue;
      if (failed(checkKernel(kernel))) return signalPassFailure();
      lower(kernel);
    }
  }

  void lower(func::FuncOp kernel) {
    ImplicitLocOpBuilder builder(kernel.getLoc(), kernel);
    const Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
    const Type i64 = builder.getI64Type();
    const SmallVector<Type> arguments =
        warps ? SmallVector<Type>{pointer} : SmallVector<Type>{pointer, pointer, i64, i64};
    auto lowered = builder.create<func::FuncOp>((kernel.getName() + "_lowered").str(),
                                                builder.getFunctionType(arguments, {}));
    builder.setInsertionPointToEnd(lowered.addEntryBlock());
    VectorEmitter emitter(builder, warps ? Lanes::kWarp : Lanes::kOneThread);
    Kernel k(emitter, kernel, lowered.getArguments());
    const Extent extent = emitLoops(k);
    builder.create<func::ReturnOp>();
    lowered->setAttr(kExtent, builder.getI64IntegerAttr(extent.extent));
    lowered->setAttr(kGrain, builder.getI64IntegerAttr(extent.grain));
    if (warps) {
      lowered->setAttr(kWarps, builder.getI64IntegerAttr(extent.warps));
      lowered->setAttr(kNumOperands, builder.getI64IntegerAttr(kernel.getNumArguments() +
                                                               kernel.getNumResults()));
    }
    const std::string name = kernel.getName().str();
    kernel.erase();
    lowered.setName(name);
  }

  static Extent emitLoops(Kernel& kernel) {
    switch (iterationOf(kernel.firstOp()).space) {
      case Space::kColumns:
        return emitColumnKernel(kernel);
      case Space::kPositions:
        return emitPositionKernel(kernel);
      default:
        return emitRowKernel(kernel);
    }
  }
};

}  // namespace
}  // namespace trireme::codegen
