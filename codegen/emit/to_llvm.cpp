// The conversions of upstream MLIR and the LLVM back end. Expensive to compile: keep it alone.
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <mlir/Conversion/ArithToLLVM/ArithToLLVM.h>
#include <mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h>
#include <mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h>
#include <mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h>
#include <mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h>
#include <mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h>
#include <mlir/Pass/PassManager.h>
#include <mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h>
#include <mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h>
#include <mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h>
#include <mlir/Target/LLVMIR/Export.h>
#include <mlir/Transforms/Passes.h>

#include <algorithm>
#include <bit>

#include "codegen/emit/emit.h"
#include "codegen/lower/vector_emitter.h"
#include "codegen/passes.h"
#include "ir/program/bundle.h"

namespace trireme::codegen {

mlir::LogicalResult convertToLlvm(mlir::ModuleOp module) {
  mlir::PassManager passes(module.getContext());
  passes.addPass(mlir::createCSEPass());
  passes.addPass(mlir::createConvertSCFToCFPass());
  passes.addPass(mlir::createConvertVectorToLLVMPass());
  passes.addPass(mlir::createArithToLLVMConversionPass());
  passes.addPass(mlir::createConvertControlFlowToLLVMPass());
  passes.addPass(mlir::createConvertFuncToLLVMPass());
  passes.addPass(mlir::createReconcileUnrealizedCastsPass());
  return passes.run(module);
}

namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";

std::unique_ptr<llvm::TargetMachine> makeTarget(const std::vector<std::string>& cpuFeatures) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  std::string error, features;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(kTriple, error);
  if (!target) return nullptr;
  for (const std::string& feature : cpuFeatures) {
    features += (features.empty() ? "+" : ",+") + feature;
    if (feature == "avx512f") features += ",+evex512";  // LLVM's name for its 512-bit registers.
  }
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(kTriple, "x86-64", features, llvm::TargetOptions(),
                                  llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Default));
}

// PTX of CUDA 12.0. Products and sums are not contracted: LLVM then says so to ptxas as well.
std::unique_ptr<llvm::TargetMachine> makeGpuTarget(const std::string& processor) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  constexpr const char* kGpuTriple = "nvptx64-nvidia-cuda";
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(kGpuTriple, error);
  if (!target) return nullptr;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(kGpuTriple, processor, "+ptx80", options, std::nullopt,
                                  std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

// The kernels are vectors already: LLVM's own vectorisers would only cost time.
void optimise(llvm::Module& module, llvm::TargetMachine& target) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&target, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

Result<std::unique_ptr<llvm::Module>> translate(mlir::ModuleOp module, llvm::LLVMContext& context) {
  mlir::registerBuiltinDialectTranslation(*module.getContext());
  mlir::registerLLVMDialectTranslation(*module.getContext());
  mlir::registerNVVMDialectTranslation(*module.getContext());
  std::unique_ptr<llvm::Module> ir = mlir::translateModuleToLLVMIR(module, context, "kernels");
  if (!ir) return Error(internalError("translation to LLVM IR failed"));
  return ir;
}

// Optimises the module, and compiles it.
Result<std::string> compile(llvm::Module& module, llvm::TargetMachine& target,
                            llvm::CodeGenFileType type) {
  module.setTargetTriple(target.getTargetTriple().str());
  module.setDataLayout(target.createDataLayout());
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) function.setDoesNotThrow();
  optimise(module, target);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (target.addPassesToEmitFile(passes, stream, nullptr, type))
    return Error(internalError("LLVM cannot emit code for " + target.getTargetTriple().str()));
  passes.run(module);
  return std::string(bytes.begin(), bytes.end());
}

std::string printed(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

// Its argument is copied into the kernel's parameters.
void markKernel(mlir::LLVM::LLVMFuncOp kernel) {
  if (kernel.isExternal()) return;
  mlir::OpBuilder builder(kernel);
  const auto operands = kernel->getAttrOfType<mlir::IntegerAttr>(kNumOperands).getInt();
  const auto bytes = sizeof(program::KernelContext) + sizeof(void*) * static_cast<size_t>(operands);
  const mlir::Type word = builder.getI64Type();
  kernel->setAttr(mlir::NVVM::NVVMDialect::getKernelFuncAttrName(), builder.getUnitAttr());
  // ptxas divides the registers among the threads of a block. Others have fewer than it can serve.
  // Of a bound between the powers of two it spills for the sake of blocks that no processor would
  // hold.
  const auto warps = std::bit_ceil(
      static_cast<uint32_t>(kernel->getAttrOfType<mlir::IntegerAttr>(kWarps).getInt()));
  if (warps > 1)
    kernel->setAttr(mlir::NVVM::NVVMDialect::getMaxntidAttrName(),
                    builder.getDenseI32ArrayAttr({static_cast<int32_t>(warps * kLanes), 1, 1}));
  kernel.setArgAttr(0, mlir::LLVM::LLVMDialect::getByValAttrName(),
                    mlir::TypeAttr::get(mlir::LLVM::LLVMArrayType::get(word, bytes / 8)));
  kernel.setArgAttr(0, mlir::LLVM::LLVMDialect::getAlignAttrName(), builder.getI64IntegerAttr(8));
}

}  // namespace

Result<EmittedCode> emitObject(mlir::ModuleOp module, const std::vector<std::string>& cpuFeatures,
                               bool wantIr) {
  llvm::LLVMContext context;
  TRIREME_ASSIGN_OR_RETURN(const std::unique_ptr<llvm::Module> ir, translate(module, context));
  const std::unique_ptr<llvm::TargetMachine> target = makeTarget(cpuFeatures);
  if (!target) return Error(internalError("LLVM was built without the X86 target"));
  const bool wide = std::count(cpuFeatures.begin(), cpuFeatures.end(), "avx512f") > 0;
  for (llvm::Function& function : *ir)
    if (!function.isDeclaration()) function.addFnAttr("prefer-vector-width", wide ? "512" : "256");
  EmittedCode code;
  TRIREME_ASSIGN_OR_RETURN(code.bytes, compile(*ir, *target, llvm::CodeGenFileType::ObjectFile));
  if (wantIr) code.llvmIr = printed(*ir);
  return code;
}

Result<EmittedCode> emitPtx(mlir::ModuleOp module, const std::string& processor, bool wantIr) {
  for (auto kernel : module.getOps<mlir::LLVM::LLVMFuncOp>()) markKernel(kernel);
  llvm::LLVMContext context;
  TRIREME_ASSIGN_OR_RETURN(const std::unique_ptr<llvm::Module> ir, translate(module, context));
  const std::unique_ptr<llvm::TargetMachine> target = makeGpuTarget(processor);
  if (!target) return Error(internalError("LLVM was built without the NVPTX target"));
  EmittedCode code;
  TRIREME_ASSIGN_OR_RETURN(code.bytes, compile(*ir, *target, llvm::CodeGenFileType::AssemblyFile));
  if (wantIr) code.llvmIr = printed(*ir);
  return code;
}

}  // namespace trireme::codegen
