// Turns the segments of a program into code: fused kernels for everything between the library
// calls, compiled ahead of time into one shared object for x86-64 hosts, or into PTX for GPUs and
// code for those that are named.
//
//   build   segments -> functions of `trireme` ops on tensors
//   fuse    neighbouring ops -> kernels; equal kernels are one function
//   lower   kernels -> loops over rows or columns with vectors, or with warps -> LLVM
//   emit    LLVM IR -> object code -> shared object, or PTX
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
  std::vector<program::GpuTarget> gpus;  // As parseGpuTargets() orders them; empty: for hosts.
  // Leave bias_add, gelu and gelu_grad to the matrix product before them where they would be
  // kernels of their own; always for GPUs, for hosts in tests.
  bool epilogues = false;
};

struct CompiledKernels {
  std::vector<program::CompiledSegment> segments;  // One per segment, in order.
  std::string sharedObject;  // Bytes; empty if nothing was generated, and for GPUs.
  std::string ptx;  // For the GPUs' ptxTarget() and later ones; empty if nothing was generated.
  std::vector<program::Cubin> cubins;  // The same for each; empty if this machine has no ptxas.
  program::Target target;              // Of GPUs: arch alone, "cuda:sm_80,sm_90".
};

// The features of this host that generated code can use, found by CPUID.
std::vector<std::string> hostCpuFeatures();

// Compiles all segments into one shared object or PTX. The result depends on nothing but the
// arguments: not on layers, ranks or microbatches, which segments do not know.
//
// Matrix products, attention, embedding and loss ops stay library calls; all other ops are
// generated. Results do not depend on `fuse`, on how the runtime splits a kernel, on the vector
// width, or on whether a host or a GPU computes.
//
// kInvalidArgument: an operand type that a generated op does not take, or a target without AVX2 and
// FMA. kUnavailable:     no linker (`ld`) on the path, or it failed. kResourceExhausted: a dump or
// temporary file could not be written. kInternal:        the IR did not verify after a phase.
Result<CompiledKernels> compileSegments(const std::vector<program::Segment>& segments,
                                        const CodegenOptions& options);
Result<CompiledKernels> compileSegments(const program::Program& program,
                                        const CodegenOptions& options);

}  // namespace trireme::codegen
