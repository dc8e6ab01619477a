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

using testing::ThreadBlock;

constexpr int kNumBlocks = 2, kNumWarps = 3;

// What a GPU has instructions for becomes calls of the functions below.
void callTheWarp(mlir::ModuleOp module) {
  mlir::OpBuilder builder(module.getContext());
  const mlir::Type i32 = builder.getI32Type();
  builder.setInsertionPointToStart(module.getBody());
  const auto declare = [&](const char* name, mlir::TypeRange inputs, mlir::TypeRange results) {
    auto function = builder.create<mlir::func::FuncOp>(builder.getUnknownLoc(), name,
                                                       builder.getFunctionType(inputs, results));
    function.setPrivate();
  };
  for (const char* index : {"trireme_test_lane", "trireme_test_thread", "trireme_test_block"})
    declare(index, {}, i32);
  declare("trireme_test_exchange", {i32, i32}, i32);
  declare("trireme_test_wait", {}, {});
  module.walk([&](mlir::Operation* op) {
    builder.setInsertionPoint(op);
    const auto call = [&](const char* name, mlir::ValueRange operands) {
      auto made =
          builder.create<mlir::func::CallOp>(op->getLoc(), name, op->getResultTypes(), operands);
      op->replaceAllUsesWith(made.getResults());
      op->erase();
    };
    const auto number = [&](int32_t value) {
      op->getResult(0).replaceAllUsesWith(
          builder.create<mlir::arith::ConstantOp>(op->getLoc(), builder.getI32IntegerAttr(value)));
      op->erase();
    };
    if (llvm::isa<mlir::NVVM::LaneIdOp>(op))
      call("trireme_test_lane", {});
    else if (llvm::isa<mlir::NVVM::ThreadIdXOp>(op))
      call("trireme_test_thread", {});
    else if (llvm::isa<mlir::NVVM::BlockIdXOp>(op))
      call("trireme_test_block", {});
    else if (llvm::isa<mlir::NVVM::Barrier0Op>(op))
      call("trireme_test_wait", {});
    else if (auto shuffle = llvm::dyn_cast<mlir::NVVM::ShflOp>(op))
      call("trireme_test_exchange", {shuffle.getVal(), shuffle.getOffset()});
    else if (llvm::isa<mlir::NVVM::BlockDimXOp>(op))
      number(kNumWarps * ThreadBlock::kLanes);
    else if (llvm::isa<mlir::NVVM::GridDimXOp>(op))
      number(kNumBlocks);
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

extern "C" int32_t trireme_test_lane() { return ThreadBlock::current().lane(); }
extern "C" int32_t trireme_test_thread() { return ThreadBlock::current().thread(); }
extern "C" int32_t trireme_test_block() { return ThreadBlock::current().index(); }
extern "C" void trireme_test_wait() { ThreadBlock::current().wait(); }
extern "C" int32_t trireme_test_exchange(int32_t value, int32_t distance) {
  ThreadBlock& block = ThreadBlock::current();
  return block.gather(value)[static_cast<size_t>(block.lane() ^ distance)];
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
    ThreadBlock threads(kNumWarps);
    for (int i = 0; i < kNumBlocks; ++i) {
      threads.run([&] { kernel(argument.data()); }, i, kNumBlocks);
      EXPECT_TRUE(threads.converged()) << call.symbol;
    }
  }
}

}  // namespace trireme::codegen
