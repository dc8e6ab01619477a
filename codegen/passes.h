// The passes of codegen; what each does is in passes.td.
#pragma once
#include <mlir/Dialect/Arith/IR/Arith.h>
#include <mlir/Dialect/Func/IR/FuncOps.h>
#include <mlir/Dialect/LLVMIR/LLVMDialect.h>
#include <mlir/Dialect/LLVMIR/NVVMDialect.h>
#include <mlir/Dialect/SCF/IR/SCF.h>
#include <mlir/Dialect/Vector/IR/VectorOps.h>
#include <mlir/Pass/Pass.h>

#include "ir/dialect/dialect.h"

namespace trireme::codegen {

// Names of the attributes of a lowered kernel.
inline constexpr llvm::StringLiteral kExtent = "trireme.extent";
inline constexpr llvm::StringLiteral kGrain = "trireme.grain";
inline constexpr llvm::StringLiteral kWarps = "trireme.warps";               // with `warps`
inline constexpr llvm::StringLiteral kNumOperands = "trireme.num_operands";  // with `warps`

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "codegen/passes.h.inc"

}  // namespace trireme::codegen
