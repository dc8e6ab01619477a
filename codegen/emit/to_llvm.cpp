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
#include <mlir/Target/LLVMIR/Export.h>
#include <mlir/Transforms/Passes.h>

#include <algorithm>

#include "codegen/emit/emit.h"

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
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(module, modules);
}

}  // namespace

Result<EmittedCode> emitObject(mlir::ModuleOp module, const std::vector<std::string>& cpuFeatures,
                               bool wantIr) {
  mlir::registerBuiltinDialectTranslation(*module.getContext());
  mlir::registerLLVMDialectTranslation(*module.getContext());
  llvm::LLVMContext context;
  const std::unique_ptr<llvm::Module> ir =
      mlir::translateModuleToLLVMIR(module, context, "kernels");
  if (!ir) return Error(internalError("translation to LLVM IR failed"));
  const std::unique_ptr<llvm::TargetMachine> target = makeTarget(cpuFeatures);
  if (!target) return Error(internalError("LLVM was built without the X86 target"));
  ir->setTargetTriple(kTriple);
  ir->setDataLayout(target->createDataLayout());
  const bool wide = std::count(cpuFeatures.begin(), cpuFeatures.end(), "avx512f") > 0;
  for (llvm::Function& function : *ir) {
    if (function.isDeclaration()) continue;
    function.setDoesNotThrow();
    function.addFnAttr("prefer-vector-width", wide ? "512" : "256");
  }
  optimise(*ir, *target);

  EmittedCode code;
  if (wantIr) {
    llvm::raw_string_ostream stream(code.llvmIr);
    ir->print(stream, nullptr);
  }
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (target->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return Error(internalError("LLVM cannot emit an object for x86-64"));
  passes.run(*ir);
  code.object.assign(bytes.begin(), bytes.end());
  return code;
}

}  // namespace trireme::codegen
