// The code generator as a shared library of its own, loaded by the commands that compile: LLVM
// takes tens of milliseconds and of MiB to load, which plans and runs need not spend, and machines
// without LLVM can have the command.
#pragma once
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "ir/graph/graph.h"

namespace trireme::codegen {

struct Generator {
  const char* build;  // kBuild of ir/base/version.h, which must be that of whoever loads it
  Result<CompiledKernels> (*compileSegments)(const std::vector<program::Segment>& segments,
                                             const CodegenOptions& options);
  std::string (*printModelGraph)(const graph::ModelGraph& graph);  // of ir/dialect
};

// The library's file, and its one symbol: a Generator.
inline constexpr char kGeneratorFile[] = "libtrireme_generator.so";
inline constexpr char kGeneratorSymbol[] = "triremeGenerator";

}  // namespace trireme::codegen
