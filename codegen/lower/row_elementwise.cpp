// Ops that need no reduction. The formulas are those of ir/program/op.h, written for precision in
// f32.
#include <llvm/ADT/TypeSwitch.h>

#include "codegen/lower/philox.h"
#include "codegen/lower/row_kernel.h"
#include "ir/dialect/dialect.h"

namespace trireme::codegen {

using namespace mlir;
using namespace dialect;

namespace {
// tanh form: 0.5 (1 + tanh(t)) = sigmoid(2 t), which has no cancellation. 2 t = u (a + b u^2); -2 t
// is what exp takes.
constexpr double kGeluLinear = 2 * 0.7978845608028654;
constexpr double kGeluCubic = 2 * 0.7978845608028654 * 0.044715;
}  // namespace

void RowKernel::evaluateAll(ArrayRef<Operation*> ops, const Site& site) {
  for (Operation* op : ops) evaluate(op, site);
}

void RowKernel::evaluate(Operation* op, const Site& site) {
  const Value result = op->getResult(0);
  if (isa<SwiGluOp>(op)) return write(result, swiGlu(op, site), site);
  if (isa<SwiGluGradOp>(op)) return write(result, swiGluGrad(op, site), site);
  if (isa<RotaryOp, RotaryGradOp>(op)) return write(result, rotary(op, site), site);

  const Parts x = read(op->getOperand(0), site);
  const Parts columns = columnsOf(result, site);
  Parts parts;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto second = [&] { return read(op->getOperand(1), site)[i]; };
    parts.push_back(llvm::TypeSwitch<Operation*, Value>(op)
                        .Case<AddOp>([&](auto) { return e_.add(x[i], second()); })
                        .Case<BiasAddOp>([&](BiasAddOp add) {
                          return e_.add(x[i], load(add.getBias(), columns[i], site.mask));
                        })
                        .Case<AddPositionOp>([&](AddPositionOp add) {
                          const Value row = e_.mulInt(globalPosition(op), e_.integer(it_.width));
                          return e_.add(
                              x[i], load(add.getPosition(), e_.addInt(row, columns[i]), site.mask));
                        })
                        .Case<DropoutOp>([&](auto) { return dropout(op, x[i], columns, i); })
                        .Case<GeluOp>([&](auto) { return gelu(x[i]); })
                        .Case<GeluGradOp>([&](auto) { return geluGrad(x[i], second()); }));
  }
  write(result, parts, site);
}

Value RowKernel::dropout(Operation* op, Value x, const Parts& columns, size_t part) {
  const program::OpAttributes a = attributesOf(op);
  const int64_t width = widthOf(op->getResult(0).getType());
  bool aligned = width % 4 == 0;
  if (it_.pairing == Pairing::kHalves) aligned &= it_.width / 2 % 4 == 0;
  for (Operation* other : before_)
    if (isa<RotaryOp, RotaryGradOp>(other)) aligned &= attributesOf(other).headSize / 2 % 4 == 0;
  const Value element = e_.addInt(e_.mulInt(globalPosition(op), e_.integer(width)), columns[part]);
  const Value sample = e_.addInt(firstSample_, batch_);
  const auto [low, high] = keys_[op];
  const auto makeWords = [&]() -> Value {
    if (!aligned || siteOfGroup_ < 0)
      return emitRandomWords(e_, {low, high}, sample, element, aligned);
    auto& ofSites = wordsOfGroup_[{op, part}];
    if (siteOfGroup_ == 0) ofSites = emitRandomWordsOfSites(e_, {low, high}, sample, element);
    return ofSites[static_cast<size_t>(siteOfGroup_)];
  };
  const Value words = makeWords();
  const Value threshold = e_.constantInt(words.getType(), dropoutThreshold(a.probability));
  const Value kept = e_.b.create<arith::CmpIOp>(arith::CmpIPredicate::uge, words, threshold);
  return e_.select(kept, e_.mul(x, 1 / (1 - a.probability)), e_.constant(x.getType(), 0.0));
}

Value RowKernel::gelu(Value u) {
  const Value slope = e_.fma(e_.mul(u, u), e_.constant(u.getType(), -kGeluCubic),
                             e_.constant(u.getType(), -kGeluLinear));
  return e_.mul(u, e_.sigmoidOfMinus(e_.mul(u, slope)));
}

// With s = sigmoid(2 t): s + u s (1 - s) (2 t)'
Value RowKernel::geluGrad(Value u, Value dz) {
  const Type type = u.getType();
  const Value square = e_.mul(u, u);
  const auto slopeOf = [&](double linear, double cubic) {
    return e_.fma(square, e_.constant(type, cubic), e_.constant(type, linear));
  };
  const Value s = e_.sigmoidOfMinus(e_.mul(u, slopeOf(-kGeluLinear, -kGeluCubic)));
  const Value slope = slopeOf(kGeluLinear, 3 * kGeluCubic);
  const Value rest = e_.sub(e_.constant(type, 1.0), s);
  return e_.mul(dz, e_.mul(s, e_.fma(e_.mul(u, slope), rest, e_.constant(type, 1.0))));
}

Parts RowKernel::swiGlu(Operation* op, const Site& site) {
  const Parts u = read(op->getOperand(0), site);
  return {e_.mul(e_.mul(u[0], e_.sigmoid(u[0])), u[1])};
}

// d silu(g) / dg = s (1 + g (1 - s))
Parts RowKernel::swiGluGrad(Operation* op, const Site& site) {
  const Parts u = read(op->getOperand(0), site);
  const Value d = read(op->getOperand(1), site)[0];
  const Value one = e_.constant(d.getType(), 1.0), s = e_.sigmoid(u[0]);
  const Value slope = e_.mul(s, e_.fma(u[0], e_.sub(one, s), one));
  return {e_.mul(e_.mul(d, u[1]), slope), e_.mul(d, e_.mul(u[0], s))};
}

// (low, high) -> (low cos - high sin, high cos + low sin); the gradient has -sin in its table.
Parts RowKernel::rotary(Operation* op, const Site& site) {
  const Parts x = read(op->getOperand(0), site);
  if (!site.rotates) return x;
  const auto tableAt = [&](Value table) {
    return e_.loadStack(table, site.pairIndex, k_.mathType());
  };
  const Value cosine = tableAt(cosines_), sine = tableAt(sines_);
  return {e_.sub(e_.mul(x[0], cosine), e_.mul(x[1], sine)),
          e_.add(e_.mul(x[1], cosine), e_.mul(x[0], sine))};
}

// A constant of the module: the scaled frequency of each pair.
Value RowKernel::emitFrequencies(Operation* op) {
  const program::OpAttributes a = attributesOf(op);
  std::vector<double> values;
  for (int64_t i = 0; i < a.headSize / 2; ++i)
    values.push_back(ropeFrequency(a.ropeTheta, a.ropeScaling, a.headSize, i));
  const Type f64 = e_.b.getF64Type();
  const int64_t count = static_cast<int64_t>(values.size());
  auto func = op->getParentOfType<func::FuncOp>();
  LLVM::GlobalOp table;
  {
    OpBuilder::InsertionGuard guard(e_.b);
    e_.b.setInsertionPoint(func);
    table = e_.b.create<LLVM::GlobalOp>(
        LLVM::LLVMArrayType::get(f64, count), /*isConstant=*/true, LLVM::Linkage::Internal,
        (func.getName() + "_frequencies").str(),
        DenseElementsAttr::get(RankedTensorType::get({count}, f64), ArrayRef<double>(values)),
        /*alignment=*/64);
  }
  return e_.b.create<LLVM::AddressOfOp>(table);
}

// The angles in f64, whatever the kernel computes in: position 10^5 leaves f32 no digit of the
// angle.
void RowKernel::emitRotaryTable(Operation* op) {
  const Type f64 = e_.b.getF64Type();
  const Value position = e_.splat(e_.b.create<arith::UIToFPOp>(f64, globalPosition(op)));
  visit(attributesOf(op).headSize / 2, {}, [&](Value i, Value mask, ValueRange) {
    auto [sine, cosine] = e_.sinCos(e_.mul(position, e_.load(frequencies_, i, f64, f64, mask)));
    if (isa<RotaryGradOp>(op)) sine = e_.b.create<arith::NegFOp>(sine);
    const Type type = k_.mathType();
    e_.storeStack(e_.toFloatType(cosine, type), cosines_, i, type);
    e_.storeStack(e_.toFloatType(sine, type), sines_, i, type);
    return std::vector<Value>{};
  });
}

}  // namespace trireme::codegen
