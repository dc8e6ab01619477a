// Norms. Sums are in f64: they cost little beside the memory traffic, and need no care.
#include "codegen/lower/row_kernel.h"
#include "ir/dialect/dialect.h"

namespace trireme::codegen {

using namespace mlir;
using namespace dialect;

void RowKernel::emitNorm() {
  if (isa<LayerNormOp>(norm_)) return emitLayerNorm(norm_);
  if (isa<RmsNormOp>(norm_)) return emitRmsNorm(norm_);
  emitNormGrad(norm_);
}

Value RowKernel::meanOverRow(Value sum) {
  return e_.div(sum, e_.constant(sum.getType(), static_cast<double>(it_.width)));
}

Value RowKernel::reciprocalRoot(Value meanSquare, double epsilon) {
  return e_.div(e_.constant(meanSquare.getType(), 1.0), e_.sqrt(e_.add(meanSquare, epsilon)));
}

void RowKernel::storeStatistic(Operation* op, unsigned result, Value f64) {
  const Value tensor = op->getResult(result);
  if (k_.isResult(tensor)) e_.storeScalar(f64, k_.pointerTo(tensor), row_, elementOf(tensor));
}

Value RowKernel::statistic(Value tensor) {
  return e_.splat(e_.loadScalar(k_.pointerTo(tensor), row_, elementOf(tensor), k_.mathType()));
}

void RowKernel::emitLayerNorm(Operation* op) {
  const Value x = op->getOperand(0), gamma = op->getOperand(1), beta = op->getOperand(2);
  const auto sums = sumOverRow(1, [&](const Site& site) -> SmallVector<Value> {
    evaluateAll(before_, site);
    return {read(x, site)[0]};
  });
  const Value exactMean = meanOverRow(sums[0]);
  const Value mean = e_.splat(e_.toFloatType(exactMean, k_.mathType()));
  const auto squares = sumOverRow(1, [&](const Site& site) -> SmallVector<Value> {
    const Value centered = e_.sub(read(x, site)[0], mean);
    return {e_.mul(centered, centered)};
  });
  const Value exactRstd = reciprocalRoot(meanOverRow(squares[0]), attributesOf(op).epsilon);
  const Value rstd = e_.splat(e_.toFloatType(exactRstd, k_.mathType()));
  storeStatistic(op, 1, exactMean);
  storeStatistic(op, 2, exactRstd);
  forEachSite([&](const Site& site) {
    const Value xhat = e_.mul(e_.sub(read(x, site)[0], mean), rstd);
    const Value scaled = e_.mul(xhat, load(gamma, site.columns[0], site.mask));
    const Value y = e_.add(scaled, load(beta, site.columns[0], site.mask));
    write(op->getResult(0), {y}, site);
    evaluateAll(after_, site);
  });
}

void RowKernel::emitRmsNorm(Operation* op) {
  const Value x = op->getOperand(0), gamma = op->getOperand(1);
  const auto squares = sumOverRow(1, [&](const Site& site) -> SmallVector<Value> {
    evaluateAll(before_, site);
    const Value value = read(x, site)[0];
    return {e_.mul(value, value)};
  });
  const Value exactRstd = reciprocalRoot(meanOverRow(squares[0]), attributesOf(op).epsilon);
  const Value rstd = e_.splat(e_.toFloatType(exactRstd, k_.mathType()));
  storeStatistic(op, 1, exactRstd);
  forEachSite([&](const Site& site) {
    const Value xhat = e_.mul(read(x, site)[0], rstd);
    const Value y = e_.mul(xhat, load(gamma, site.columns[0], site.mask));
    write(op->getResult(0), {y}, site);
    evaluateAll(after_, site);
  });
}

// With g = dy gamma:
//   layer norm  dx = rstd (g - mean(g) - xhat mean(g xhat))
//   RMS norm    dx = rstd (g - xhat mean(g xhat))
void RowKernel::emitNormGrad(Operation* op) {
  const bool centered = isa<LayerNormGradInputOp>(op);
  const unsigned numOperands = op->getNumOperands();
  const Value x = op->getOperand(0), gamma = op->getOperand(1);
  const Value dy = op->getOperand(numOperands - 1);
  const Value rstd = statistic(op->getOperand(numOperands - 2));
  const Value mean = centered ? statistic(op->getOperand(2)) : Value();
  const auto gAndXhat = [&](const Site& site) -> std::pair<Value, Value> {
    Value xhat = read(x, site)[0];
    if (centered) xhat = e_.sub(xhat, mean);
    const Value g = e_.mul(read(dy, site)[0], load(gamma, site.columns[0], site.mask));
    return {g, e_.mul(xhat, rstd)};
  };
  const auto sums = sumOverRow(centered ? 2 : 1, [&](const Site& site) -> SmallVector<Value> {
    evaluateAll(before_, site);
    const auto [g, xhat] = gAndXhat(site);
    if (centered) return {e_.mul(g, xhat), g};
    return {e_.mul(g, xhat)};
  });
  const auto meanVector = [&](Value sum) {
    return e_.splat(e_.toFloatType(meanOverRow(sum), k_.mathType()));
  };
  const Value meanGX = meanVector(sums[0]);
  const Value meanG = centered ? meanVector(sums[1]) : Value();
  forEachSite([&](const Site& site) {
    auto [g, xhat] = gAndXhat(site);
    if (centered) g = e_.sub(g, meanG);
    const Value dx = e_.mul(rstd, e_.sub(g, e_.mul(xhat, meanGX)));
    write(op->getResult(0), {dx}, site);
    evaluateAll(after_, site);
  });
}

}  // namespace trireme::codegen
