// First phase: segments become functions of `trireme` ops on tensors.
#pragma once
#include <mlir/IR/BuiltinOps.h>
#include <mlir/IR/OwningOpRef.h>

#include <vector>

#include "ir/program/op.h"

namespace trireme::codegen {

// A module with one function per segment, `segment_<index>`. Its arguments are the operands that
// are read before they are written, its results those that outlive the segment and are written;
// `trireme.place` and `trireme.places` say which operand each value is. The module is not verified
// yet.
mlir::OwningOpRef<mlir::ModuleOp> buildModule(mlir::MLIRContext* context,
                                              const std::vector<program::Segment>& segments);

}  // namespace trireme::codegen
