#include "codegen/passes.h"

namespace trireme::codegen {

#define GEN_PASS_DEF_SPLITNORMGRADPASS
#include "codegen/passes.h.inc"

namespace {

using mlir::ValueRange;

// Replaces `grad`, whose first result is dx, by the two ops.
template <typename WeightOp, typename InputOp, typename GradOp>
void split(GradOp grad, ValueRange weightOperands, ValueRange inputOperands) {
  mlir::OpBuilder builder(grad);
  const mlir::TypeRange types = grad->getResultTypes();
  auto weight = builder.create<WeightOp>(grad.getLoc(), types.drop_front(), weightOperands);
  auto input = builder.create<InputOp>(grad.getLoc(), types.take_front(), inputOperands);
  if (auto places = grad->template getAttrOfType<mlir::DenseI32ArrayAttr>(dialect::kPlaces)) {
    weight->setAttr(dialect::kPlaces,
                    builder.getDenseI32ArrayAttr(places.asArrayRef().drop_front()));
    input->setAttr(dialect::kPlaces, builder.getDenseI32ArrayAttr(places.asArrayRef().front()));
  }
  grad->getResult(0).replaceAllUsesWith(input->getResult(0));
  for (auto [old, made] : llvm::zip(grad->getResults().drop_front(), weight->getResults()))
    old.replaceAllUsesWith(made);
  grad->erase();
}

struct SplitNormGrad : public impl::SplitNormGradPassBase<SplitNormGrad> {
  void runOnOperation() override {
    getOperation().walk([](dialect::LayerNormGradOp op) {
      split<dialect::LayerNormGradWeightOp, dialect::LayerNormGradInputOp>(
          op,
          {op.getX(), op.getMean(), op.getRstd(), op.getDy(), op.getOldDgamma(), op.getOldDbeta()},
          {op.getX(), op.getGamma(), op.getMean(), op.getRstd(), op.getDy()});
    });
    getOperation().walk([](dialect::RmsNormGradOp op) {
      split<dialect::RmsNormGradWeightOp, dialect::RmsNormGradInputOp>(
          op, {op.getX(), op.getRstd(), op.getDy(), op.getOldDgamma()},
          {op.getX(), op.getGamma(), op.getRstd(), op.getDy()});
    });
  }
};

}  // namespace
}  // namespace trireme::codegen
