// Short names for the vector arithmetic that kernels are written in, and their elementary
// functions.
//
// A vector has kLanes lanes whatever the target: the order of a sum, and with it the result, is the
// same with 256 and with 512 bit registers, and on a GPU, where the threads of a warp have a lane
// each. Nothing here is contracted or reassociated; where a product is added without rounding it
// says fma().
#pragma once
#include <mlir/Dialect/Arith/IR/Arith.h>
#include <mlir/Dialect/LLVMIR/LLVMDialect.h>
#include <mlir/Dialect/Vector/IR/VectorOps.h>
#include <mlir/IR/ImplicitLocOpBuilder.h>

#include <functional>

namespace trireme::codegen {

inline constexpr int64_t kLanes = 32;

// Who has the lanes of a vector.
enum class Lanes : uint8_t {
  kOneThread,  // values are MLIR vectors
  kWarp,       // the threads of a warp, one lane each: values are scalars
};

class VectorEmitter {
 public:
  using Value = mlir::Value;
  using Type = mlir::Type;

  VectorEmitter(mlir::ImplicitLocOpBuilder& builder, Lanes lanes) : b(builder), lanes_(lanes) {}
  bool inWarps() const { return lanes_ == Lanes::kWarp; }

  // Scalars of type i64.
  Value integer(int64_t value);
  Value addInt(Value x, Value y) { return b.create<mlir::arith::AddIOp>(x, y); }
  Value mulInt(Value x, Value y) { return b.create<mlir::arith::MulIOp>(x, y); }

  Value minInt(Value x, Value y) { return b.create<mlir::arith::MinSIOp>(x, y); }

  // A constant of a scalar or vector type, float or integer.
  Value constant(Type type, double value);
  Value constantInt(Type type, uint64_t value);
  // A vector of i64: 0, 1, 2... A warp has vectors of kLanes lanes only.
  Value iota(int64_t lanes = kLanes);
  Value splat(Value scalar, int64_t lanes = kLanes);

  // Scalars or vectors of floats.
  Value add(Value x, Value y) { return b.create<mlir::arith::AddFOp>(x, y); }
  Value sub(Value x, Value y) { return b.create<mlir::arith::SubFOp>(x, y); }
  Value mul(Value x, Value y) { return b.create<mlir::arith::MulFOp>(x, y); }
  Value div(Value x, Value y) { return b.create<mlir::arith::DivFOp>(x, y); }
  Value mul(Value x, double y) { return mul(x, constant(x.getType(), y)); }
  Value add(Value x, double y) { return add(x, constant(x.getType(), y)); }
  Value fma(Value x, Value y, Value z) { return b.create<mlir::LLVM::FMAOp>(x.getType(), x, y, z); }
  Value sqrt(Value x) { return b.create<mlir::LLVM::SqrtOp>(x.getType(), x); }
  Value select(Value condition, Value x, Value y) {
    return b.create<mlir::arith::SelectOp>(condition, x, y);
  }
  Value exp(Value x);  // Within 2 ulp; clamped to the range of normal numbers; NaN stays NaN.
  Value sigmoid(Value x) { return sigmoidOfMinus(b.create<mlir::arith::NegFOp>(x)); }
  Value sigmoidOfMinus(Value x);  // 1 / (1 + exp(x))
  // Both within 2 ulp of 1 for f64 |x| < 2^30.
  std::pair<Value, Value> sinCos(Value x);
  // Polynomial c[0] + c[1] x + ..., by Horner's rule with fma.
  Value polynomial(Value x, llvm::ArrayRef<double> c);

  // Between floats, scalar or vector; no-op if equal.
  Value toFloatType(Value x, Type element);
  // Rounds an f32 to what bf16 or f16 memory can hold, and stays f32; no-op for other types.
  Value roundTo(Value x, Type element);

  // In warps: the i32 of the lane whose number differs in the bits of `distance`.
  Value fromLane(Value i32, int64_t distance);
  // Sum of all lanes, in a fixed tree. f64. All threads of a warp have it.
  Value sumLanes(Value vector);

  // Access to memory of element type `element` (f64, f32, bf16, f16) at `base[index]`; lanes
  // outside of `mask` (may be null: all lanes) are neither read nor written. In registers values
  // are of `type`.
  Value load(Value base, Value index, Type element, Type type, Value mask);
  // On hosts, for a loop that reads a vector at every index, of more memory than caches hold. A
  // processor fetches ahead by itself, but not over the border of a page of 4 KiB: the gradient of
  // GELU takes 40 % less time so.
  void fetchAhead(Value base, Value index, Type element);
  // Stores a value that roundTo() has rounded to `element`.
  void storeRounded(Value vector, Value base, Value index, Type element, Value mask);
  void store(Value vector, Value base, Value index, Type element, Value mask) {
    storeRounded(roundTo(vector, element), base, index, element, mask);
  }
  Value loadScalar(Value base, Value index, Type element, Type type);
  void storeScalar(Value scalar, Value base, Value index, Type element);
  Value address(Value base, Value index, Type element);

  Type vectorOf(Type element, int64_t lanes = kLanes) {
    return inWarps() ? element : mlir::VectorType::get({lanes}, element);
  }
  // A mask of the first `count` lanes.
  Value firstLanes(int64_t count);

  // An array on the stack of the function that is read and written by vectors, at multiples of
  // kLanes. A thread of a warp keeps its own lane of each.
  Value stackArray(Type element, int64_t count);
  Value loadStack(Value array, Value index, Type element);
  void storeStack(Value vector, Value array, Value index, Type element);

  // In warps only. An array that the threads of a block share, for the accesses above, as a global
  // of that name; and a wait until all of them are here and see what the others have written.
  Value sharedArray(llvm::StringRef name, Type element, int64_t count);
  void barrier();

  mlir::ImplicitLocOpBuilder& b;

 private:
  Value laneAddress(Value base, Value index, Type element);
  Value wideFromLane(Value f64, int64_t distance);
  Type rawType(Type element);
  Value widen(Value raw, Type element, Type type);
  Value narrow(Value rounded, Type element);

  Lanes lanes_;
};

// for (i = begin; i < end; i += step) body(i). `carried`: loop-carried values; body returns the new
// ones.
std::vector<mlir::Value> emitLoop(
    VectorEmitter& e, mlir::Value begin, mlir::Value end, int64_t step,
    llvm::ArrayRef<mlir::Value> carried,
    const std::function<std::vector<mlir::Value>(mlir::Value, mlir::ValueRange)>& body);
void emitLoop(VectorEmitter& e, mlir::Value begin, mlir::Value end, int64_t step,
              const std::function<void(mlir::Value)>& body);
void emitLoop(VectorEmitter& e, mlir::Value begin, mlir::Value end, mlir::Value step,
              const std::function<void(mlir::Value)>& body);

}  // namespace trireme::codegen
