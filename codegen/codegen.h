// Turns the segments of a program into code: fused kernels for everything between the library
// calls, compiled ahead of time into one shared object for x86-64 hosts.
//
//   build   segments -> functions of `trireme` ops on tensors
//   fuse    neighbouring ops -> kernels; equal kernels are one function
//   lower   kernels -> loops over rows or columns with vectors -> LLVM
//   emit    LLVM IR -> object code -> shared object
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/bundle.h"

namespace trireme::codegen {

struct CodegenOptions {
  std::string dumpIrFolder;  // The IR after each phase goes here; empty: nowhere.
  std::vector<std::string>
      cpuFeatures;   // As program::Target names them; empty: those of this host.
  bool fuse = true;  // false: one kernel per op, for tests and for debugging.
};

struct CompiledKernels {
  std::vector<program::CompiledSegment> segments;  // One per segment, in order.
  std::string sharedObject;                        // Bytes; empty if nothing was generated.
  program::Target target;
};

// The features of this host that generated code can use, found by CPUID.
std::vector<std::string> hostCpuFeatures();

// Compiles all segments into one shared object. The result depends on nothing but the arguments:
// not on layers, ranks or microbatches, which segments do not know.
//
// Matrix products, attention, embedding and loss ops stay library calls; all other ops are
// generated. Results do not depend on `fuse`, on how the runtime splits a kernel, or on the vector
// width.
//
// kInvalidArgument: an operand type that a generated op does not take, or a target without AVX2 and
// FMA. kUnavailable:     no linker (`ld`) on the path, or it failed. kResourceExhausted: a dump or
// temporary file could not be written. kInternal:        the IR did not verify after a phase.
Result<CompiledKernels> compileSegments(const std::vector<program::Segment>& segments,
                                        const CodegenOptions& options);
Result<CompiledKernels> compileSegments(const program::Program& program,
                                        const CodegenOptions& options);

}  // namespace trireme::codegen
