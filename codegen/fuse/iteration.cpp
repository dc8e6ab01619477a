#include "codegen/fuse/iteration.h"

#include <llvm/ADT/TypeSwitch.h>

#include "ir/dialect/dialect.h"
#include "ir/graph/semantics.h"

namespace trireme::codegen {

using namespace dialect;

int64_t batchOf(mlir::Type tensor) {
  const auto shape = llvm::cast<mlir::RankedTensorType>(tensor).getShape();
  return shape.size() > 2 ? shape[1] : 1;
}

int64_t tokensOf(mlir::Type tensor) {
  const auto shape = llvm::cast<mlir::RankedTensorType>(tensor).getShape();
  return shape.size() > 1 ? shape[0] * batchOf(tensor) : 1;
}

int64_t widthOf(mlir::Type tensor) {
  return llvm::cast<mlir::RankedTensorType>(tensor).getNumElements() / tokensOf(tensor);
}

Iteration iterationOf(mlir::Operation* op) {
  Iteration it;
  if (isComputeOp(op) && !graph::isGenerated(kindOf(op))) return it;
  it.space =
      llvm::TypeSwitch<mlir::Operation*, Space>(op)
          .Case<AddPositionOp, DropoutOp, LayerNormOp, RmsNormOp, BiasAddOp, GeluOp, SwiGluOp,
                RotaryOp, AddOp, GeluGradOp, SwiGluGradOp, RotaryGradOp, LayerNormGradInputOp,
                RmsNormGradInputOp>([](auto) { return Space::kTokens; })
          .Case<BiasGradOp, LayerNormGradWeightOp, RmsNormGradWeightOp>(
              [](auto) { return Space::kColumns; })
          .Case<PositionGradOp>([](auto) { return Space::kPositions; })
          .Default([](auto) { return Space::kLibrary; });
  if (it.space == Space::kLibrary) return it;
  const mlir::Type tensor = op->getOperand(0).getType();
  it.tokens = tokensOf(tensor);
  it.batch = batchOf(tensor);
  it.width = widthOf(tensor);
  if (llvm::isa<SwiGluOp, SwiGluGradOp>(op)) it.pairing = Pairing::kHalves;
  if (llvm::isa<RotaryOp, RotaryGradOp>(op)) it.pairing = Pairing::kHeads;
  it.wholeRows = llvm::isa<LayerNormOp, RmsNormOp, LayerNormGradInputOp, RmsNormGradInputOp>(op);
  return it;
}

}  // namespace trireme::codegen
