// The MLIR dialect `trireme`: the ops of ir/program/op.h as verified IR, and the way between the
// two.
#pragma once
#include <mlir/Bytecode/BytecodeOpInterface.h>
#include <mlir/IR/BuiltinTypes.h>
#include <mlir/IR/Dialect.h>
#include <mlir/IR/OpDefinition.h>
#include <mlir/IR/OpImplementation.h>
#include <mlir/IR/SymbolTable.h>
#include <mlir/IR/TensorEncoding.h>
#include <mlir/Interfaces/SideEffectInterfaces.h>

#include "ir/graph/graph.h"
#include "ir/program/op.h"

namespace trireme::dialect {

// Names of the attributes that say where values live (see the dialect's description).
inline constexpr llvm::StringLiteral kPlaces = "trireme.places";  // of an op: per result
inline constexpr llvm::StringLiteral kPlace = "trireme.place";    // of a function argument
inline constexpr llvm::StringLiteral kKernel = "trireme.kernel";  // of an outlined function
inline constexpr llvm::StringLiteral kNames = "trireme.names";    // of an op of a model: per result

// What the ops generated from the .td call.
mlir::LogicalResult verifyComputeOp(mlir::Operation* op);  // (D1), (D2)
mlir::LogicalResult verifyCall(mlir::Operation* call, mlir::FlatSymbolRefAttr callee,
                               mlir::SymbolTableCollection& symbols);  // (M1) to (M3)
mlir::ParseResult parseComputeOp(mlir::OpAsmParser& parser, mlir::OperationState& result);
void printComputeOp(mlir::OpAsmPrinter& printer, mlir::Operation* op);
void nameResults(mlir::Operation* op, mlir::OpAsmSetValueNameFn setName);

// Every op that stands for an OpKind. Its mnemonic is program::opName(kind).
template <typename ConcreteType>
struct ComputeOp : public mlir::OpTrait::TraitBase<ConcreteType, ComputeOp> {
  static mlir::LogicalResult verifyTrait(mlir::Operation* op) { return verifyComputeOp(op); }
};

// Requires an op with the trait ComputeOp.
program::OpKind kindOf(mlir::Operation* op);
program::OpAttributes attributesOf(mlir::Operation* op);

inline bool isComputeOp(mlir::Operation* op) { return op->hasTrait<ComputeOp>(); }

// Outputs of `kind` that accumulate; their old values are the op's last operands, in order.
int numAccumulators(program::OpKind kind);
int numOutputs(program::OpKind kind);

// An op of `kind` with `inputs` (old values of accumulating outputs behind the others). Fields of
// `attributes` that the op does not have are ignored.
mlir::Operation* createComputeOp(mlir::OpBuilder& builder, mlir::Location loc, program::OpKind kind,
                                 const program::OpAttributes& attributes, mlir::ValueRange inputs,
                                 mlir::TypeRange outputs);

// The segment operand that a value is read from or written to; nullopt if nothing says so.
std::optional<int32_t> placeOf(mlir::Value value);

// No labels: a tensor of a segment.
mlir::RankedTensorType toTensorType(mlir::MLIRContext* context, const program::OperandType& type,
                                    const graph::Labels& labels = {});
// Requires a type that toTensorType() can give; the verifier accepts no other.
program::OperandType fromTensorType(mlir::Type type);
graph::Labels labelsOf(mlir::Type type);  // empty: none

}  // namespace trireme::dialect

#include "ir/dialect/trireme_dialect.h.inc"
#include "ir/dialect/trireme_enums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "ir/dialect/trireme_attrs.h.inc"

#define GET_OP_CLASSES
#include "ir/dialect/trireme_ops.h.inc"
