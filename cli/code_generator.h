// The code generator, which is a shared library beside the command (codegen/generator.h).
#pragma once
#include "codegen/generator.h"
#include "ir/base/status.h"

namespace trireme::cli {

// It is loaded by the first call and stays. Looked for in the folder of this executable, where a
// build puts it, and in ../lib/trireme, where an installation does.
// kUnavailable: it is not there (builds without LLVM have none), LLVM is not, or it is of another
// build.
Result<const codegen::Generator*> loadCodeGenerator();

}  // namespace trireme::cli
