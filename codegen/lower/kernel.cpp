#include "codegen/lower/kernel.h"

#include <mlir/Dialect/LLVMIR/NVVMDialect.h>
#include <mlir/Dialect/SCF/IR/SCF.h>

#include <cstddef>

#include "ir/program/bundle.h"

namespace trireme::codegen {

using namespace mlir;
using program::KernelContext;

Type elementOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

Kernel::Kernel(VectorEmitter& e, func::FuncOp source, ValueRange arguments)
    : e(e), source_(source), arguments_(arguments), context_(arguments[0]) {
  const Type pointer = context_.getType();
  const Value operands =
      e.inWarps() ? e.address(context_, e.integer(sizeof(KernelContext)), e.b.getI8Type())
                  : arguments[1];
  int64_t next = 0;
  const auto nextPointer = [&]() -> Value {
    return e.b.create<LLVM::LoadOp>(pointer, e.address(operands, e.integer(next++), pointer));
  };
  for (Value argument : source.getArguments()) pointers_[argument] = nextPointer();
  for (Value result : source.getBody().front().getTerminator()->getOperands()) {
    resultPointers_.push_back(nextPointer());
    pointers_[result] = resultPointers_.back();
  }
  const bool isDouble = elementOf(firstOp()->getOperand(0)).isF64();
  mathType_ = isDouble ? Type(e.b.getF64Type()) : Type(e.b.getF32Type());
}

template <typename Register>
Value Kernel::readRegister() {
  return e.b.create<arith::ExtUIOp>(e.b.getI64Type(), e.b.create<Register>(e.b.getI32Type()));
}

void Kernel::forEach(int64_t extent, const std::function<void(Value)>& body) {
  if (!e.inWarps()) return emitLoop(e, arguments_[2], arguments_[3], e.integer(1), body);
  const Value size = readRegister<NVVM::BlockDimXOp>();
  const Value block = readRegister<NVVM::BlockIdXOp>();
  const Value thread = readRegister<NVVM::ThreadIdXOp>();
  const Value threads = e.mulInt(size, readRegister<NVVM::GridDimXOp>());
  emitLoop(e, warpsOf(e.addInt(e.mulInt(block, size), thread)), e.integer(extent), warpsOf(threads),
           body);
}

void Kernel::forEachBlock(int64_t extent, const std::function<void(Value)>& body) {
  emitLoop(e, readRegister<NVVM::BlockIdXOp>(), e.integer(extent), readRegister<NVVM::GridDimXOp>(),
           body);
}

Value Kernel::warpInBlock() { return warpsOf(readRegister<NVVM::ThreadIdXOp>()); }
Value Kernel::warpsInBlock() { return warpsOf(readRegister<NVVM::BlockDimXOp>()); }

Value Kernel::warpsOf(Value threads) {
  return e.b.create<arith::DivUIOp>(threads, e.integer(kLanes));
}

void Kernel::onFirstWarp(const std::function<void()>& body) {
  const Value isFirst =
      e.b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, warpInBlock(), e.integer(0));
  OpBuilder::InsertionGuard guard(e.b);
  e.b.setInsertionPointToStart(e.b.create<scf::IfOp>(isFirst).thenBlock());
  body();
}

void Kernel::forEachChunk(int64_t extent, int64_t most,
                          const std::function<void(Value, Value)>& body) {
  if (e.inWarps()) return forEach(extent, [&](Value i) { body(i, e.addInt(i, e.integer(1))); });
  const Value end = arguments_[3];
  emitLoop(e, arguments_[2], end, e.integer(most),
           [&](Value begin) { body(begin, e.minInt(e.addInt(begin, e.integer(most)), end)); });
}

bool Kernel::isResult(Value value) {
  return llvm::is_contained(source_.getBody().front().getTerminator()->getOperands(), value);
}

Value Kernel::loadContext(Type type, int64_t byteOffset) {
  const Value at = e.address(context_, e.integer(byteOffset), e.b.getI8Type());
  return e.b.create<LLVM::LoadOp>(type, at);
}

Value Kernel::firstSample() {
  return loadContext(e.b.getI64Type(), offsetof(KernelContext, firstSample));
}

Value Kernel::tpIndex() { return loadContext(e.b.getI64Type(), offsetof(KernelContext, tpIndex)); }

std::pair<Value, Value> Kernel::rngKey(RngStream stream) {
  const int64_t key = offsetof(KernelContext, keys) + static_cast<int64_t>(stream) * sizeof(RngKey);
  return {loadContext(e.b.getI32Type(), key + offsetof(RngKey, low)),
          loadContext(e.b.getI32Type(), key + offsetof(RngKey, high))};
}

}  // namespace trireme::codegen
