// The ops of a model: their verifiers ask ir/graph, by way of the importer.
#include <llvm/ADT/STLExtras.h>

#include <array>

#include "ir/dialect/dialect.h"
#include "ir/dialect/import.h"

namespace trireme::dialect {

using mlir::Operation;

namespace {

// What block arguments are called, which have no attributes to say so.
void nameArguments(mlir::Region& body, llvm::ArrayRef<llvm::StringRef> names,
                   mlir::OpAsmSetValueNameFn setName) {
  if (body.getNumArguments() != names.size()) return;
  for (const auto& [argument, name] : llvm::zip(body.getArguments(), names))
    setName(argument, name);
}

bool isTensor(mlir::Type type) {
  const auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape()) return false;
  const mlir::Type element = tensor.getElementType();
  return element.isF64() || element.isF32() || element.isF16() || element.isBF16() ||
         element.isSignlessInteger(32);
}

mlir::Type resultTypeOf(BlockOp block) {
  return block.getBody().front().getTerminator()->getOperand(0).getType();
}

}  // namespace

mlir::LogicalResult verifyCall(Operation* call, mlir::FlatSymbolRefAttr callee,
                               mlir::SymbolTableCollection& symbols) {
  auto block = symbols.lookupNearestSymbolFrom<BlockOp>(call, callee);
  if (!block) {  // (M1)
    auto error = call->emitOpError("(M1) no block is called ") << callee << "; valid:";
    for (BlockOp other : llvm::cast<ModelOp>(call->getParentOp()).getOps<BlockOp>())
      error << " @" << other.getSymName();
    return error;
  }
  const auto parameters = block.getBody().getArgumentTypes();
  if (call->getNumOperands() != parameters.size())  // (M2)
    return call->emitOpError("(M2) ") << call->getNumOperands() << " operands, but block " << callee
                                      << " takes " << parameters.size();
  for (const auto& [i, types] : llvm::enumerate(llvm::zip(call->getOperandTypes(), parameters)))
    if (const auto& [given, taken] = types; given != taken)  // (M2)
      return call->emitOpError("(M2) operand ")
             << i << " is " << given << ", but block " << callee << " takes " << taken;
  const mlir::Type made = resultTypeOf(block);
  if (llvm::isa<RepeatOp>(call) && made != parameters[0])  // (M3)
    return call->emitOpError("(M3) block ")
           << callee << " cannot be repeated: it takes " << parameters[0] << " and makes " << made;
  if (call->getResult(0).getType() != made)  // (M2)
    return call->emitOpError("(M2) the result is ")
           << call->getResult(0).getType() << ", but block " << callee << " makes " << made;
  return mlir::success();
}

void BlockOp::getAsmBlockArgumentNames(mlir::Region& body, mlir::OpAsmSetValueNameFn setName) {
  nameArguments(body, {"input", "labels", "old_loss"}, setName);
  if (body.getNumArguments() != 1) return;
  const auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(body.getArgument(0).getType());
  const bool isIds = tensor && tensor.getElementType().isInteger(32);
  nameArguments(body, {isIds ? "tokens" : "input"}, setName);
}

mlir::LogicalResult BlockOp::verifyRegions() {
  for (mlir::BlockArgument argument : getBody().getArguments())
    if (!isTensor(argument.getType()))  // (M4)
      return emitOpError("(M4) argument ")
             << argument.getArgNumber() << " is " << argument.getType()
             << ", expected a tensor of static shape in f64, f32, f16, bf16 or i32";
  const auto block = importBlock(*this);
  if (!block) return emitOpError(block.error().message());
  return mlir::success();
}

void ModelOp::getAsmBlockArgumentNames(mlir::Region& body, mlir::OpAsmSetValueNameFn setName) {
  nameArguments(body, {"batch.tokens", "batch.labels", "batch.old_loss"}, setName);
}

mlir::LogicalResult ModelOp::verifyRegions() {
  const auto graph = importModel(*this);
  if (!graph) return emitOpError(graph.error().message());
  return mlir::success();
}

}  // namespace trireme::dialect
