// What the kernel families share: the function with the runtime's ABI, and its operands.
#pragma once
#include <mlir/Dialect/Func/IR/FuncOps.h>

#include "codegen/lower/vector_emitter.h"
#include "ir/base/rng.h"

namespace trireme::codegen {

// A kernel on tensors while its loops are emitted into a function of GeneratedKernel's ABI.
class Kernel {
 public:
  // `source`: the function on tensors. `e` points to the end of the entry block of the new
  // function, whose arguments are `arguments`. A warp's function has one argument, a pointer to
  // program::KernelContext and behind it the pointers of the operands.
  Kernel(VectorEmitter& e, mlir::func::FuncOp source, mlir::ValueRange arguments);

  mlir::Operation* firstOp() { return &source_.getBody().front().front(); }
  auto ops() { return source_.getBody().front().without_terminator(); }

  // What this call does of the iteration space [0, extent): on a host the range of its arguments;
  // in a warp every n-th, of n warps.
  void forEach(int64_t extent, const std::function<void(mlir::Value)>& body);
  // The same in chunks [begin, end) of at most chunkSize(most), which is 1 in a warp.
  int64_t chunkSize(int64_t most) const { return e.inWarps() ? 1 : most; }
  void forEachChunk(int64_t extent, int64_t most,
                    const std::function<void(mlir::Value, mlir::Value)>& body);

  // In warps only. The same for thread blocks, whose warps all come to `body`.
  void forEachBlock(int64_t extent, const std::function<void(mlir::Value)>& body);
  mlir::Value warpInBlock();
  mlir::Value warpsInBlock();
  void onFirstWarp(const std::function<void()>& body);

  // f64 if the kernel computes on f64, else f32.
  mlir::Type mathType() const { return mathType_; }
  // The pointer of a value in memory: an argument or a result of the kernel; null for others.
  mlir::Value pointerTo(mlir::Value value) const { return pointers_.lookup(value); }
  bool isResult(mlir::Value value);
  // Pointer of the i-th result.
  mlir::Value resultPointer(unsigned i) const { return resultPointers_[i]; }

  // Members of program::KernelContext; i64 but for the words of a key, which are i32.
  mlir::Value firstSample();
  mlir::Value tpIndex();
  std::pair<mlir::Value, mlir::Value> rngKey(RngStream stream);

  VectorEmitter& e;

 private:
  mlir::Value loadContext(mlir::Type type, int64_t byteOffset);
  // One of NVVM's special registers, as i64.
  template <typename Register>
  mlir::Value readRegister();
  mlir::Value warpsOf(mlir::Value threads);

  mlir::func::FuncOp source_;
  mlir::ValueRange arguments_;
  mlir::Value context_;
  mlir::Type mathType_;
  llvm::DenseMap<mlir::Value, mlir::Value> pointers_;
  std::vector<mlir::Value> resultPointers_;
};

// How the runtime may split a kernel: see program::KernelCall. `warps`: of a GPU.
struct Extent {
  int64_t extent = 0;
  int64_t grain = 1;
  int64_t warps = 1;
};

// Each emits the loops of one family into the function that `kernel` stands for.
Extent emitRowKernel(Kernel& kernel);
Extent emitColumnKernel(Kernel& kernel);    // one column sum
Extent emitPositionKernel(Kernel& kernel);  // position_grad

mlir::Type elementOf(mlir::Value tensor);

}  // namespace trireme::codegen
