// Last phase: lowered kernels become the bytes of a shared object.
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
  std::string object;  // ELF, relocatable
};

// Compiles a module in the LLVM dialect for x86-64 with `cpuFeatures` and nothing else: never for
// the model of this machine, so that equal features give equal code. kInternal: LLVM refused.
Result<EmittedCode> emitObject(mlir::ModuleOp module, const std::vector<std::string>& cpuFeatures,
                               bool wantIr);

// Links one object into a shared object with `ld`, found on the path.
// kUnavailable: no `ld`, or it failed (its message). kResourceExhausted: no temporary files.
Result<std::string> linkSharedObject(const std::string& object);

}  // namespace trireme::codegen
