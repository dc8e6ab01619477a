#include "tests/codegen/warp_kernels.h"

#include <dlfcn.h>
#include <mlir/IR/Verifier.h>
#include <mlir/Pass/PassManager.h>

#include <cstring>

#include "codegen/build/build.h"
#include "codegen/emit/emit.h"
#include "codegen/passes.h"
#include "tests/support/shared_object.h"
#include "tests/support/warp.h"

namespace trireme::codegen {
namespace {

using testing::Warp;

// What a GPU has instructions for becomes calls of the two functions below.
void callTheWarp(mlir::ModuleOp module) {
  mlir::OpBuilder builder(module.getContext());
  const mlir::Type i32 = builder.getI32Type();
  builder.setInsertionPointToStart(module.getBody());
  const auto declare = [&](const char* name, mlir::TypeRange inputs) {
    auto function = builder.create<mlir::func::FuncOp>(builder.getUnknownLoc(), name,
                                                       builder.getFunctionType(inputs, i32));
    function.setPrivate();
  };
  declare("trireme_test_lane", {});
  declare("trireme_test_exchange", {i32, i32});
  module.walk([&](mlir::Operation* op) {
    builder.setInsertionPoint(op);
    const auto call = [&](const char* name, mlir::ValueRange operands) {
      op->replaceAllUsesWith(
          builder.create<mlir::func::CallOp>(op->getLoc(), name, i32, operands).getResults());
      op->erase();
    };
    const auto number = [&](int32_t value) {
      op->getResult(0).replaceAllUsesWith(
          builder.create<mlir::arith::ConstantOp>(op->getLoc(), builder.getI32IntegerAttr(value)));
      op->erase();
    };
    if (llvm::isa<mlir::NVVM::LaneIdOp, mlir::NVVM::ThreadIdXOp>(op))
      call("trireme_test_lane", {});
    else if (auto shuffle = llvm::dyn_cast<mlir::NVVM::ShflOp>(op))
      call("trireme_test_exchange", {shuffle.getVal(), shuffle.getOffset()});
    else if (llvm::isa<mlir::NVVM::BlockIdXOp>(op))
      number(0);
    else if (llvm::isa<mlir::NVVM::BlockDimXOp>(op))
      number(Warp::kThreads);
    else if (llvm::isa<mlir::NVVM::GridDimXOp>(op))
      number(1);
  });
}

std::string compileForWarps(const Segment& segment) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<dialect::TriremeDialect, mlir::func::FuncDialect>();
  auto module = buildModule(&context, {segment});
  mlir::PassManager fuse(&context), lower(&context);
  fuse.addNestedPass<mlir::func::FuncOp>(createSplitNormGradPass());
  fuse.addPass(createFusePass({true}));
  EXPECT_TRUE(mlir::succeeded(fuse.run(*module)));
  for (auto function : llvm::make_early_inc_range(module->getOps<mlir::func::FuncOp>()))
    if (!function->hasAttr(dialect::kKernel)) function.erase();
  lower.addPass(createLowerKernelsPass({true}));
  EXPECT_TRUE(mlir::succeeded(lower.run(*module)));
  callTheWarp(*module);
  EXPECT_TRUE(mlir::succeeded(mlir::verify(*module)));
  EXPECT_TRUE(mlir::succeeded(convertToLlvm(*module)));
  const auto code = emitObject(*module, {"avx2", "fma"}, false);
  EXPECT_TRUE(code.has_value());
  auto object = linkSharedObject(code->bytes);
  EXPECT_TRUE(object.has_value());
  return *std::move(object);
}

}  // namespace

extern "C" int32_t trireme_test_lane() { return Warp::current().lane(); }
extern "C" int32_t trireme_test_exchange(int32_t value, int32_t distance) {
  return Warp::current().gather(value)[static_cast<size_t>(Warp::current().lane() ^ distance)];
}

WarpKernels::WarpKernels(const Segment& segment)
    : handle_(testing::loadSharedObject(compileForWarps(segment))) {}

WarpKernels::~WarpKernels() {
  if (handle_) dlclose(handle_);
}

void WarpKernels::run(const program::CompiledSegment& calls, const Segment& source,
                      const Memory& memory, const program::KernelContext& context) const {
  const std::vector<void*> operands = memory.pointers();
  for (const program::KernelCall& call : calls.calls) {
    if (call.kind == program::KernelCallKind::kLibrary) {
      runReferenceCall(call.op, source, operands, context);
      continue;
    }
    auto kernel = reinterpret_cast<void (*)(void*)>(dlsym(handle_, call.symbol.c_str()));
    ASSERT_NE(kernel, nullptr) << call.symbol;
    std::vector<char> argument(sizeof(context) + call.operands.size() * sizeof(void*));
    std::memcpy(argument.data(), &context, sizeof(context));
    for (size_t i = 0; i < call.operands.size(); ++i)
      std::memcpy(argument.data() + sizeof(context) + i * sizeof(void*),
                  &operands[static_cast<size_t>(call.operands[i])], sizeof(void*));
    Warp warp;
    warp.run([&] { kernel(argument.data()); });
    EXPECT_TRUE(warp.converged()) << call.symbol;
  }
}

}  // namespace trireme::codegen
