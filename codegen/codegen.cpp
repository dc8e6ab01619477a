#include "codegen/codegen.h"

#include <fmt/format.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <mlir/IR/Diagnostics.h>
#include <mlir/IR/Verifier.h>
#include <mlir/Pass/PassManager.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "codegen/build/build.h"
#include "codegen/emit/emit.h"
#include "codegen/passes.h"

namespace trireme::codegen {
namespace {

using program::CompiledSegment;
using program::KernelCall;
using program::KernelCallKind;

// What the kernels use if there. Others are left out, so that a bundle runs wherever it can.
constexpr std::array<const char*, 11> kUsefulFeatures = {
    "sse4.2", "avx",     "avx2",     "fma",      "f16c",    "bmi",
    "bmi2",   "avx512f", "avx512bw", "avx512dq", "avx512vl"};

Status checkFeatures(const std::vector<std::string>& features) {
  for (const char* needed : {"avx2", "fma"})
    if (std::count(features.begin(), features.end(), needed) == 0)
      return invalidArgument(fmt::format("generated kernels need {}, which the target ({}) lacks",
                                         needed, fmt::join(features, ", ")));
  return {};
}

// Without f16c LLVM would call functions to convert f16, which no kernel links.
Status checkHalf(const std::vector<program::Segment>& segments,
                 const std::vector<std::string>& features) {
  const auto isHalf = [](const program::OperandType& type) { return type.dtype == DType::kF16; };
  const bool needed =
      std::any_of(segments.begin(), segments.end(), [&](const program::Segment& segment) {
        return std::any_of(segment.operands.begin(), segment.operands.end(), isHalf);
      });
  if (!needed || std::count(features.begin(), features.end(), "f16c") > 0) return {};
  return invalidArgument(
      fmt::format("generated kernels in f16 need f16c, which the target ({}) lacks",
                  fmt::join(features, ", ")));
}

// Writes the IR of each phase into a folder.
class Dump {
 public:
  explicit Dump(const std::string& folder) : folder_(folder) {}

  bool wanted() const { return !folder_.empty(); }

  Status write(const std::string& name, const std::string& text) const {
    if (!wanted()) return {};
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    const std::string path = folder_ + "/" + name;
    std::ofstream file(path);
    file << text;
    if (!file.flush())
      return resourceExhausted(
          fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
    return {};
  }

  Status write(const std::string& name, mlir::ModuleOp module) const {
    if (!wanted()) return {};
    std::string text;
    llvm::raw_string_ostream stream(text);
    module->print(stream);
    return write(name, text);
  }

 private:
  std::string folder_;
};

int32_t placeOf(mlir::Value value) {
  const std::optional<int32_t> place = dialect::placeOf(value);
  TRIREME_CHECK(place.has_value());
  return *place;
}

KernelCall libraryCall(mlir::Operation* op) {
  KernelCall call;
  call.kind = KernelCallKind::kLibrary;
  call.op.kind = dialect::kindOf(op);
  call.op.attributes = dialect::attributesOf(op);
  const unsigned numInputs =
      op->getNumOperands() - static_cast<unsigned>(dialect::numAccumulators(call.op.kind));
  for (unsigned i = 0; i < numInputs; ++i) call.op.inputs.push_back(placeOf(op->getOperand(i)));
  for (mlir::Value result : op->getResults()) call.op.outputs.push_back(placeOf(result));
  return call;
}

KernelCall generatedCall(mlir::func::CallOp op) {
  KernelCall call;
  call.kind = KernelCallKind::kGenerated;
  call.symbol = op.getCallee().str();
  for (mlir::Value value : op.getOperands()) call.operands.push_back(placeOf(value));
  for (mlir::Value value : op.getResults()) call.operands.push_back(placeOf(value));
  return call;
}

// Takes the segments out of the module: only kernels are left in it.
std::vector<CompiledSegment> takeSegments(mlir::ModuleOp module) {
  std::vector<CompiledSegment> segments;
  for (auto func : llvm::make_early_inc_range(module.getOps<mlir::func::FuncOp>())) {
    if (func->hasAttr(dialect::kKernel)) continue;
    CompiledSegment& segment = segments.emplace_back();
    for (mlir::Operation& op : func.getBody().front().without_terminator()) {
      if (auto call = llvm::dyn_cast<mlir::func::CallOp>(op))
        segment.calls.push_back(generatedCall(call));
      else
        segment.calls.push_back(libraryCall(&op));
    }
    func.erase();
  }
  return segments;
}

void setExtents(mlir::ModuleOp module, std::vector<CompiledSegment>& segments) {
  for (CompiledSegment& segment : segments)
    for (KernelCall& call : segment.calls) {
      if (call.kind != KernelCallKind::kGenerated) continue;
      auto kernel = module.lookupSymbol<mlir::func::FuncOp>(call.symbol);
      call.extent = kernel->getAttrOfType<mlir::IntegerAttr>(kExtent).getInt();
      call.grain = kernel->getAttrOfType<mlir::IntegerAttr>(kGrain).getInt();
      if (auto warps = kernel->getAttrOfType<mlir::IntegerAttr>(kWarps))
        call.warps = static_cast<int32_t>(warps.getInt());
    }
}

class Compiler {
 public:
  explicit Compiler(const CodegenOptions& options)
      : options_(options),
        dump_(options.dumpIrFolder),
        diagnostics_(&context_, [this](mlir::Diagnostic& diagnostic) {
          if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error) return;
          llvm::raw_string_ostream stream(errors_);
          stream << (errors_.empty() ? "" : "; ") << diagnostic.getLocation() << ": " << diagnostic;
        }) {
    context_.loadDialect<dialect::TriremeDialect, mlir::func::FuncDialect>();
  }

  Result<CompiledKernels> compile(const std::vector<program::Segment>& segments) {
    CompiledKernels compiled;
    TRIREME_ASSIGN_OR_RETURN(compiled.target, target());
    if (!isForGpus()) TRIREME_RETURN_IF_ERROR(checkHalf(segments, compiled.target.cpuFeatures));

    auto module = buildModule(&context_, segments);
    TRIREME_RETURN_IF_ERROR(dump_.write("1_build.mlir", *module));
    if (failed(mlir::verify(*module))) return Error(invalidArgument(errors_));
    TRIREME_RETURN_IF_ERROR(fuse(*module));
    TRIREME_RETURN_IF_ERROR(dump_.write("2_fuse.mlir", *module));
    compiled.segments = takeSegments(*module);
    if (module->getBody()->empty()) return compiled;
    TRIREME_RETURN_IF_ERROR(lower(*module));
    TRIREME_RETURN_IF_ERROR(dump_.write("3_lower.mlir", *module));
    setExtents(*module, compiled.segments);
    TRIREME_RETURN_IF_ERROR(emit(*module, compiled));
    return compiled;
  }

 private:
  Result<program::Target> target() const {
    if (isForGpus()) return program::Target{program::printGpuTargets(options_.gpus), {}};
    program::Target host{"x86-64",
                         options_.cpuFeatures.empty() ? hostCpuFeatures() : options_.cpuFeatures};
    TRIREME_RETURN_IF_ERROR(checkFeatures(host.cpuFeatures));
    return host;
  }

  Status fuse(mlir::ModuleOp module) {
    mlir::PassManager passes(&context_);
    passes.addNestedPass<mlir::func::FuncOp>(createSplitNormGradPass());
    const bool epilogues = options_.fuse && (options_.epilogues || isForGpus());
    passes.addPass(createFusePass({options_.fuse, epilogues}));
    return failed(passes.run(module)) ? internalError("fuse: " + errors_) : Status();
  }

  Status lower(mlir::ModuleOp module) {
    mlir::PassManager passes(&context_);
    passes.addPass(createLowerKernelsPass({isForGpus()}));
    return failed(passes.run(module)) ? invalidArgument("lower: " + errors_) : Status();
  }

  Status emit(mlir::ModuleOp module, CompiledKernels& compiled) {
    if (failed(convertToLlvm(module))) return internalError("convert to LLVM: " + errors_);
    if (isForGpus()) return emitForGpus(module, compiled);
    TRIREME_ASSIGN_OR_RETURN(const EmittedCode code,
                             emitObject(module, compiled.target.cpuFeatures, dump_.wanted()));
    TRIREME_RETURN_IF_ERROR(dump_.write("4_emit.ll", code.llvmIr));
    TRIREME_ASSIGN_OR_RETURN(compiled.sharedObject, linkSharedObject(code.bytes));
    return {};
  }

  Status emitForGpus(mlir::ModuleOp module, CompiledKernels& compiled) {
    const std::string lowest(program::ptxTarget(options_.gpus).name);
    TRIREME_ASSIGN_OR_RETURN(EmittedCode code, emitPtx(module, lowest, dump_.wanted()));
    TRIREME_RETURN_IF_ERROR(dump_.write("4_emit.ll", code.llvmIr));
    compiled.ptx = std::move(code.bytes);
    for (const program::GpuTarget& gpu : options_.gpus) {
      std::string name(gpu.name);
      TRIREME_ASSIGN_OR_RETURN(std::string bytes, assembleCubin(compiled.ptx, name));
      if (!bytes.empty()) compiled.cubins.push_back({std::move(name), std::move(bytes)});
    }
    return {};
  }

  bool isForGpus() const { return !options_.gpus.empty(); }

  const CodegenOptions& options_;
  Dump dump_;
  std::string errors_;
  mlir::MLIRContext context_{mlir::MLIRContext::Threading::DISABLED};
  mlir::ScopedDiagnosticHandler diagnostics_;
};

}  // namespace

std::vector<std::string> hostCpuFeatures() {
  const llvm::StringMap<bool> all = llvm::sys::getHostCPUFeatures();
  std::vector<std::string> features;
  for (const char* feature : kUsefulFeatures)
    if (all.lookup(feature)) features.emplace_back(feature);
  return features;
}

Result<CompiledKernels> compileSegments(const std::vector<program::Segment>& segments,
                                        const CodegenOptions& options) {
  return Compiler(options).compile(segments);
}

Result<CompiledKernels> compileSegments(const program::Program& program,
                                        const CodegenOptions& options) {
  return compileSegments(program.segments, options);
}

}  // namespace trireme::codegen
