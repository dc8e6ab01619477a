#include "codegen/lower/vector_emitter.h"

#include <mlir/Dialect/LLVMIR/NVVMDialect.h>
#include <mlir/Dialect/SCF/IR/SCF.h>

#include <array>

#include "ir/base/status.h"

namespace trireme::codegen {

using namespace mlir;

Value VectorEmitter::integer(int64_t value) {
  return b.create<arith::ConstantOp>(b.getI64IntegerAttr(value));
}

static TypedAttr splatAttr(Type type, Attribute element) {
  if (auto vector = dyn_cast<VectorType>(type)) return DenseElementsAttr::get(vector, element);
  return cast<TypedAttr>(element);
}

Value VectorEmitter::constant(Type type, double value) {
  return b.create<arith::ConstantOp>(
      splatAttr(type, b.getFloatAttr(getElementTypeOrSelf(type), value)));
}

Value VectorEmitter::constantInt(Type type, uint64_t value) {
  return b.create<arith::ConstantOp>(
      splatAttr(type, b.getIntegerAttr(getElementTypeOrSelf(type), static_cast<int64_t>(value))));
}

Value VectorEmitter::iota(int64_t lanes) {
  if (inWarps()) {
    const Value lane = b.create<NVVM::LaneIdOp>(b.getI32Type());
    return b.create<arith::ExtUIOp>(b.getI64Type(), lane);
  }
  std::vector<int64_t> values(lanes);
  for (int64_t i = 0; i < lanes; ++i) values[i] = i;
  return b.create<arith::ConstantOp>(DenseElementsAttr::get(
      cast<VectorType>(vectorOf(b.getI64Type(), lanes)), ArrayRef<int64_t>(values)));
}

Value VectorEmitter::splat(Value scalar, int64_t lanes) {
  if (inWarps()) return scalar;
  return b.create<vector::BroadcastOp>(vectorOf(scalar.getType(), lanes), scalar);
}

static Type withElement(Type type, Type element) {
  if (auto vector = dyn_cast<VectorType>(type)) return VectorType::get(vector.getShape(), element);
  return element;
}

Value VectorEmitter::polynomial(Value x, ArrayRef<double> c) {
  Value sum = constant(x.getType(), c.back());
  for (double coefficient : llvm::reverse(c.drop_back()))
    sum = fma(sum, x, constant(x.getType(), coefficient));
  return sum;
}

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. Adding 1.5 * 2^mantissaBits rounds to
// an integer and leaves it in the low bits, which are shifted into an exponent; the bias is added
// with it. A NaN stays one.
Value VectorEmitter::exp(Value x) {
  const Type type = x.getType();
  const bool isDouble = getElementTypeOrSelf(type).isF64();
  const int mantissaBits = isDouble ? 52 : 23;
  const double magic = isDouble ? 6755399441055744.0 + 1023 : 12582912.0 + 127;
  const double low = isDouble ? -707.5 : -86.5, high = isDouble ? 708.5 : 87.9;
  const auto clamp = [&](arith::CmpFPredicate predicate, double limit) {
    const Value bound = constant(type, limit);
    x = select(b.create<arith::CmpFOp>(predicate, bound, x), bound, x);
  };
  clamp(arith::CmpFPredicate::OLT, high);
  clamp(arith::CmpFPredicate::OGT, low);

  const Value shifted = fma(x, constant(type, 1.4426950408889634), constant(type, magic));
  const Value n = sub(shifted, constant(type, magic));
  Value r = fma(n, constant(type, isDouble ? -0.6931471803691238 : -0.693359375), x);
  r = fma(n, constant(type, isDouble ? -1.9082149292705877e-10 : 2.12194440e-4), r);

  Value p;
  if (isDouble) {  // Taylor to degree 13: 0.3466^14 / 14! = 4e-18
    std::array<double, 14> c;
    c[0] = 1;
    for (size_t i = 1; i < c.size(); ++i) c[i] = c[i - 1] / static_cast<double>(i);
    p = polynomial(r, c);
  } else {  // Cephes, expf
    p = polynomial(r, {5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3,
                       1.3981999507e-3, 1.9875691500e-4});
    p = fma(p, mul(r, r), add(r, 1.0));
  }
  const Type bits = withElement(type, b.getIntegerType(isDouble ? 64 : 32));
  const Value exponent = b.create<arith::ShLIOp>(b.create<arith::BitcastOp>(bits, shifted),
                                                 constantInt(bits, mantissaBits));
  return mul(p, b.create<arith::BitcastOp>(type, exponent));
}

Value VectorEmitter::sigmoidOfMinus(Value x) {
  const Value one = constant(x.getType(), 1.0);
  return div(one, add(one, exp(x)));
}

// Cody and Waite reduction by pi / 2 with fma, then the polynomials of fdlibm on [-pi/4, pi/4].
std::pair<Value, Value> VectorEmitter::sinCos(Value x) {
  const Type type = x.getType(), bits = withElement(type, b.getI64Type());
  const double magic = 6755399441055744.0;
  const Value shifted = fma(x, constant(type, 0.6366197723675814), constant(type, magic));
  const Value n = sub(shifted, constant(type, magic));
  Value r = fma(n, constant(type, -1.5707963267948966), x);
  r = fma(n, constant(type, -6.123233995736766e-17), r);
  const Value z = mul(r, r);
  const Value s = polynomial(
      z, {-1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
          2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10});
  const Value sine = fma(mul(s, z), r, r);
  const Value c = polynomial(
      z, {4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
          -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11});
  const Value cosine = fma(mul(c, z), z, fma(z, constant(type, -0.5), constant(type, 1.0)));

  const Value quadrant = b.create<arith::BitcastOp>(bits, shifted);
  const auto bitOf = [&](Value value, uint64_t mask) -> Value {
    const Value masked = b.create<arith::AndIOp>(value, constantInt(bits, mask));
    return b.create<arith::CmpIOp>(arith::CmpIPredicate::ne, masked, constantInt(bits, 0));
  };
  const auto negateIf = [&](Value condition, Value value) {
    return select(condition, b.create<arith::NegFOp>(value), value);
  };
  const Value odd = bitOf(quadrant, 1);
  return {negateIf(bitOf(quadrant, 2), select(odd, cosine, sine)),
          negateIf(bitOf(addInt(quadrant, constantInt(bits, 1)), 2), select(odd, sine, cosine))};
}

static bool isHalf(Type element) { return element.isBF16() || element.isF16(); }

// As it lies in memory: what has 16 bits is loaded and stored as integers, which every target can
// mask.
Type VectorEmitter::rawType(Type element) {
  return isHalf(element) ? Type(b.getI16Type()) : element;
}

Value VectorEmitter::toFloatType(Value x, Type element) {
  const Type from = getElementTypeOrSelf(x.getType());
  if (from == element) return x;
  const Type type = withElement(x.getType(), element);
  if (from.getIntOrFloatBitWidth() < element.getIntOrFloatBitWidth())
    return b.create<arith::ExtFOp>(type, x);
  return b.create<arith::TruncFOp>(type, x);
}

// bf16 is the upper half of an f32, rounded to nearest even; a NaN must not round to infinity. f16
// is rounded by the machine.
Value VectorEmitter::roundTo(Value x, Type element) {
  if (!isHalf(element)) return x;  // f32 and f64 values are of their own type already.
  x = toFloatType(x, b.getF32Type());
  if (element.isF16()) return toFloatType(toFloatType(x, element), b.getF32Type());
  const Type bits = withElement(x.getType(), b.getI32Type());
  const Value raw = b.create<arith::BitcastOp>(bits, x);
  Value odd = b.create<arith::ShRUIOp>(raw, constantInt(bits, 16));
  odd = b.create<arith::AndIOp>(odd, constantInt(bits, 1));
  Value rounded = addInt(addInt(raw, constantInt(bits, 0x7fff)), odd);
  rounded = b.create<arith::AndIOp>(rounded, constantInt(bits, 0xffff0000u));
  const Value isNan = b.create<arith::CmpFOp>(arith::CmpFPredicate::UNO, x, x);
  rounded = select(isNan, constantInt(bits, 0x7fc00000u), rounded);
  return b.create<arith::BitcastOp>(x.getType(), rounded);
}

Value VectorEmitter::fromLane(Value i32, int64_t distance) {
  if (distance == 0) return i32;
  const auto number = [&](int64_t value) {
    return b.create<arith::ConstantOp>(b.getI32IntegerAttr(static_cast<int32_t>(value)));
  };
  return b.create<NVVM::ShflOp>(b.getI32Type(), number(-1), i32, number(distance),
                                number(kLanes - 1), NVVM::ShflKind::bfly, UnitAttr());
}

Value VectorEmitter::wideFromLane(Value f64, int64_t distance) {
  const Type i32 = b.getI32Type(), i64 = b.getI64Type();
  const Value bits = b.create<arith::BitcastOp>(i64, f64);
  const auto exchange = [&](Value half) -> Value {
    return b.create<arith::ExtUIOp>(i64, fromLane(b.create<arith::TruncIOp>(i32, half), distance));
  };
  const Value word = integer(32);
  const Value high = exchange(b.create<arith::ShRUIOp>(bits, word));
  const Value both = b.create<arith::OrIOp>(exchange(bits), b.create<arith::ShLIOp>(high, word));
  return b.create<arith::BitcastOp>(f64.getType(), both);
}

// Lane i adds lane i + half. In a warp lane i + half adds lane i as well, which is the same sum.
Value VectorEmitter::sumLanes(Value vector) {
  if (inWarps()) {
    for (int64_t half = kLanes / 2; half >= 1; half /= 2)
      vector = add(vector, wideFromLane(vector, half));
    return vector;
  }
  for (int64_t half = kLanes / 2; half >= 1; half /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t i = 0; i < half; ++i) {
      low.push_back(i);
      high.push_back(half + i);
    }
    vector = add(b.create<vector::ShuffleOp>(vector, vector, low),
                 b.create<vector::ShuffleOp>(vector, vector, high));
  }
  return b.create<vector::ExtractOp>(vector, ArrayRef<int64_t>{0});
}

Value VectorEmitter::address(Value base, Value index, Type element) {
  return b.create<LLVM::GEPOp>(base.getType(), rawType(element), base, ValueRange{index});
}

Value VectorEmitter::widen(Value raw, Type element, Type type) {
  if (element.isBF16()) {
    const Type bits = withElement(raw.getType(), b.getI32Type());
    Value wide = b.create<arith::ExtUIOp>(bits, raw);
    wide = b.create<arith::ShLIOp>(wide, constantInt(bits, 16));
    raw = b.create<arith::BitcastOp>(withElement(bits, b.getF32Type()), wide);
  } else if (element.isF16()) {
    raw = b.create<arith::BitcastOp>(withElement(raw.getType(), element), raw);
    raw = toFloatType(raw, b.getF32Type());
  }
  return toFloatType(raw, type);
}

// Of a vector of f32 (hosts are little-endian): one instruction where the machine picks halves of
// two registers.
static Value upperHalves(ImplicitLocOpBuilder& b, Value vector) {
  const int64_t lanes = cast<VectorType>(vector.getType()).getNumElements();
  SmallVector<int64_t> upper;
  for (int64_t i = 0; i < lanes; ++i) upper.push_back(2 * i + 1);
  const Type halves = VectorType::get({2 * lanes}, b.getI16Type());
  const Value bits = b.create<vector::BitCastOp>(halves, vector);
  return b.create<vector::ShuffleOp>(bits, bits, upper);
}

Value VectorEmitter::narrow(Value rounded, Type element) {
  if (!isHalf(element)) return toFloatType(rounded, element);
  rounded = toFloatType(rounded, b.getF32Type());
  if (element.isF16()) {
    const Value half = toFloatType(rounded, element);
    return b.create<arith::BitcastOp>(withElement(half.getType(), b.getI16Type()), half);
  }
  if (isa<VectorType>(rounded.getType())) return upperHalves(b, rounded);
  const Type bits = withElement(rounded.getType(), b.getI32Type());
  Value raw = b.create<arith::BitcastOp>(bits, rounded);
  raw = b.create<arith::ShRUIOp>(raw, constantInt(bits, 16));
  return b.create<arith::TruncIOp>(withElement(bits, b.getI16Type()), raw);
}

// Of the vector at `base[index]`, or of this thread's lane of it.
Value VectorEmitter::laneAddress(Value base, Value index, Type element) {
  return address(base, inWarps() ? addInt(index, iota()) : index, element);
}

Value VectorEmitter::load(Value base, Value index, Type element, Type type, Value mask) {
  const unsigned alignment = element.getIntOrFloatBitWidth() / 8;
  const Type raw = vectorOf(rawType(element));
  const Value from = laneAddress(base, index, element);
  Value loaded;
  if (!mask) {
    loaded = b.create<LLVM::LoadOp>(raw, from, alignment);
  } else if (inWarps()) {
    auto branch = b.create<scf::IfOp>(TypeRange{raw}, mask, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    b.create<scf::YieldOp>(ValueRange{b.create<LLVM::LoadOp>(raw, from, alignment)});
    b.setInsertionPointToStart(branch.elseBlock());
    b.create<scf::YieldOp>(ValueRange{b.create<LLVM::ZeroOp>(raw)});
    loaded = branch.getResult(0);
  } else {
    const Value zero = b.create<LLVM::ZeroOp>(raw);
    loaded = b.create<LLVM::MaskedLoadOp>(raw, from, mask, zero, alignment);
  }
  return widen(loaded, element, type);
}

void VectorEmitter::fetchAhead(Value base, Value index, Type element) {
  TRIREME_CHECK(!inWarps());
  constexpr int64_t kPage = 4096, kLine = 64;  // bytes
  const int64_t bytes = element.getIntOrFloatBitWidth() / 8;
  for (int64_t line = 0; line < kLanes * bytes; line += kLine) {
    const Value ahead = addInt(index, integer((kPage + line) / bytes));
    b.create<LLVM::Prefetch>(address(base, ahead, element), /*rw=*/0, /*hint=*/3, /*cache=*/1);
  }
}

void VectorEmitter::storeRounded(Value vector, Value base, Value index, Type element, Value mask) {
  const unsigned alignment = element.getIntOrFloatBitWidth() / 8;
  const Value raw = narrow(vector, element);
  const Value to = laneAddress(base, index, element);
  if (!mask) {
    b.create<LLVM::StoreOp>(raw, to, alignment);
  } else if (inWarps()) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(b.create<scf::IfOp>(mask).thenBlock());
    b.create<LLVM::StoreOp>(raw, to, alignment);
  } else {
    b.create<LLVM::MaskedStoreOp>(raw, to, mask, alignment);
  }
}

Value VectorEmitter::loadScalar(Value base, Value index, Type element, Type type) {
  const Type raw = rawType(element);
  return widen(b.create<LLVM::LoadOp>(raw, address(base, index, element)), element, type);
}

void VectorEmitter::storeScalar(Value scalar, Value base, Value index, Type element) {
  const Value raw = narrow(roundTo(scalar, element), element);
  OpBuilder::InsertionGuard guard(b);
  if (inWarps()) b.setInsertionPointToStart(b.create<scf::IfOp>(firstLanes(1)).thenBlock());
  b.create<LLVM::StoreOp>(raw, address(base, index, element));
}

Value VectorEmitter::firstLanes(int64_t count) {
  if (inWarps()) return b.create<arith::CmpIOp>(arith::CmpIPredicate::slt, iota(), integer(count));
  SmallVector<bool> lanes(kLanes, false);
  std::fill_n(lanes.begin(), count, true);
  return b.create<arith::ConstantOp>(
      DenseElementsAttr::get(cast<VectorType>(vectorOf(b.getI1Type())), lanes));
}

Value VectorEmitter::stackArray(Type element, int64_t count) {
  OpBuilder::InsertionGuard guard(b);
  auto func = b.getInsertionBlock()->getParentOp();
  while (!isa<FunctionOpInterface>(func)) func = func->getParentOp();
  b.setInsertionPointToStart(&func->getRegion(0).front());
  const int64_t vectors = (count + kLanes - 1) / kLanes;
  const Value size = integer(inWarps() ? vectors : vectors * kLanes);
  return b.create<LLVM::AllocaOp>(LLVM::LLVMPointerType::get(b.getContext()), element, size, 64);
}

Value VectorEmitter::loadStack(Value array, Value index, Type element) {
  if (!inWarps()) return load(array, index, element, element, Value());
  return loadScalar(array, b.create<arith::DivUIOp>(index, integer(kLanes)), element, element);
}

void VectorEmitter::storeStack(Value vector, Value array, Value index, Type element) {
  if (!inWarps()) return storeRounded(vector, array, index, element, Value());
  const Value own = b.create<arith::DivUIOp>(index, integer(kLanes));
  b.create<LLVM::StoreOp>(vector, address(array, own, element));
}

Value VectorEmitter::sharedArray(llvm::StringRef name, Type element, int64_t count) {
  TRIREME_CHECK(inWarps());
  constexpr unsigned kSharedMemory = NVVM::NVVMMemorySpace::kSharedMemorySpace;
  auto func = b.getInsertionBlock()->getParentOp();
  while (!isa<FunctionOpInterface>(func)) func = func->getParentOp();
  LLVM::GlobalOp array;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(func);
    array =
        b.create<LLVM::GlobalOp>(LLVM::LLVMArrayType::get(element, static_cast<uint64_t>(count)),
                                 /*isConstant=*/false, LLVM::Linkage::Internal, name, Attribute(),
                                 /*alignment=*/16, kSharedMemory);
  }
  return b.create<LLVM::AddressOfOp>(array);
}

void VectorEmitter::barrier() {
  TRIREME_CHECK(inWarps());
  b.create<NVVM::Barrier0Op>();
}

static std::vector<Value> emitLoop(
    VectorEmitter& e, Value begin, Value end, Value step, ArrayRef<Value> carried,
    const std::function<std::vector<Value>(Value, ValueRange)>& body) {
  auto loop = e.b.create<scf::ForOp>(begin, end, step, carried);
  OpBuilder::InsertionGuard guard(e.b);
  // A loop that carries nothing is created with its terminator.
  if (carried.empty())
    e.b.setInsertionPointToStart(loop.getBody());
  else
    e.b.setInsertionPointToEnd(loop.getBody());
  const std::vector<Value> next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  if (!carried.empty()) e.b.create<scf::YieldOp>(next);
  return {loop.getResults().begin(), loop.getResults().end()};
}

std::vector<Value> emitLoop(VectorEmitter& e, Value begin, Value end, int64_t step,
                            ArrayRef<Value> carried,
                            const std::function<std::vector<Value>(Value, ValueRange)>& body) {
  return emitLoop(e, begin, end, e.integer(step), carried, body);
}

void emitLoop(VectorEmitter& e, Value begin, Value end, Value step,
              const std::function<void(Value)>& body) {
  emitLoop(e, begin, end, step, {}, [&](Value i, ValueRange) {
    body(i);
    return std::vector<Value>{};
  });
}

void emitLoop(VectorEmitter& e, Value begin, Value end, int64_t step,
              const std::function<void(Value)>& body) {
  emitLoop(e, begin, end, e.integer(step), body);
}

}  // namespace trireme::codegen
