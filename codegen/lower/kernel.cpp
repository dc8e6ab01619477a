#include "codegen/lower/kernel.h"

#include <cstddef>

#include "ir/program/bundle.h"

namespace trireme::codegen {

using namespace mlir;
using program::KernelContext;

Type elementOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

Kernel::Kernel(VectorEmitter& e, func::FuncOp source, ValueRange arguments)
    : e(e), source_(source), arguments_(arguments) {
  const Type pointer = arguments[1].getType();
  int64_t next = 0;
  const auto nextPointer = [&]() -> Value {
    return e.b.create<LLVM::LoadOp>(pointer, e.address(arguments_[1], e.integer(next++), pointer));
  };
  for (Value argument : source.getArguments()) pointers_[argument] = nextPointer();
  for (Value result : source.getBody().front().getTerminator()->getOperands()) {
    resultPointers_.push_back(nextPointer());
    pointers_[result] = resultPointers_.back();
  }
  const bool isDouble = elementOf(firstOp()->getOperand(0)).isF64();
  mathType_ = isDouble ? Type(e.b.getF64Type()) : Type(e.b.getF32Type());
}

bool Kernel::isResult(Value value) {
  return llvm::is_contained(source_.getBody().front().getTerminator()->getOperands(), value);
}

Value Kernel::loadContext(Type type, int64_t byteOffset) {
  const Value at = e.address(arguments_[0], e.integer(byteOffset), e.b.getI8Type());
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
