// Last phase: lowered kernels become the bytes of a shared object, or PTX.
#pragma once
#include <mlir/IR/BuiltinOps.h>

#include <string>
#include <vector>

#include "ir/base/status.h"

namespace trireme::codegen {

// Converts the functions of a module, lowered kernels only, to the LLVM dialect. Errors are
// diagnostics.
mlir::LogicalResult convertToLlvm(mlir::ModuleOp module);

struct EmittedCode {
  std::string llvmIr;  // optimised; only if asked for
  std::string bytes;   // a relocatable ELF object; PTX
};

// Compiles a module in the LLVM dialect for x86-64 with `cpuFeatures` and nothing else: never for
// the model of this machine, so that equal features give equal code. kInternal: LLVM refused.
Result<EmittedCode> emitObject(mlir::ModuleOp module, const std::vector<std::string>& cpuFeatures,
                               bool wantIr);

// Compiles a module in the LLVM dialect, whose kernels were lowered with `warps`, to PTX for GPUs
// of `processor` ("sm_90") and later, or for "sm_90a" alone. kInternal: LLVM refused.
Result<EmittedCode> emitPtx(mlir::ModuleOp module, const std::string& processor, bool wantIr);

// The code that ptxas makes for exactly `processor` of PTX for it or an older one; empty if there
// is no ptxas on the path or where CUDA is usually installed: then the driver compiles the PTX.
// kInternal: ptxas refused it. kResourceExhausted: no temporary files.
Result<std::string> assembleCubin(const std::string& ptx, const std::string& processor);

// Links one object into a shared object with `ld`, found on the path.
// kUnavailable: no `ld`, or it failed (its message). kResourceExhausted: no temporary files.
Result<std::string> linkSharedObject(const std::string& object);

}  // namespace trireme::codegen
