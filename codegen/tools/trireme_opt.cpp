// trireme-opt: runs the passes of codegen on a text file. For tests and for looking at one pass.
#include <mlir/Tools/mlir-opt/MlirOptMain.h>
#include <mlir/Transforms/Passes.h>

#include "codegen/passes.h"

int main(int argc, char** argv) {
  mlir::DialectRegistry registry;
  registry.insert<trireme::dialect::TriremeDialect, mlir::func::FuncDialect,
                  mlir::arith::ArithDialect, mlir::scf::SCFDialect, mlir::vector::VectorDialect,
                  mlir::LLVM::LLVMDialect, mlir::NVVM::NVVMDialect>();
  trireme::codegen::registerCodegenPasses();
  mlir::registerCanonicalizer();
  mlir::registerCSE();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Trireme's optimiser driver\n", registry));
}
