// Sums over tokens. The iteration space is blocks of kLanes columns, so that every column is summed
// by one thread, over the tokens in order: the result does not depend on the split.
//
// Sums are in f64 and live in an array on the stack, a chunk of columns wide: rows are then read in
// runs of some KiB, which the prefetcher likes, and kRowsAtOnce rows share a pass over the array.
#include <llvm/ADT/TypeSwitch.h>

#include "codegen/fuse/iteration.h"
#include "codegen/lower/kernel.h"
#include "ir/dialect/dialect.h"

namespace trireme::codegen {

using namespace mlir;
using namespace dialect;

namespace {

constexpr int64_t kBlocksPerChunk = 32;
constexpr int64_t kBlocksPerGrain = 4;
constexpr int64_t kRowsAtOnce = 4;

class ColumnKernel {
 public:
  explicit ColumnKernel(Kernel& kernel)
      : k_(kernel), e_(kernel.e), op_(kernel.firstOp()), it_(iterationOf(op_)) {
    for (unsigned i = 0; i < op_->getNumResults(); ++i)
      sums_.push_back(e_.stackArray(e_.b.getF64Type(), k_.chunkSize(kBlocksPerChunk) * kLanes));
  }

  Extent emit() {
    const int64_t blocks = (it_.width + kLanes - 1) / kLanes;
    k_.forEachChunk(blocks, kBlocksPerChunk,
                    [&](Value begin, Value end) { emitChunk(begin, end); });
    return {blocks, kBlocksPerGrain};
  }

 private:
  void emitChunk(Value begin, Value end) {
    const Type f64 = e_.b.getF64Type();
    const auto atOf = [&](Value block) {
      return columnOf(e_.b.create<arith::SubIOp>(block, begin));
    };
    emitLoop(e_, begin, end, 1, [&](Value block) {
      for (Value sum : sums_)
        e_.storeStack(e_.constant(e_.vectorOf(f64), 0.0), sum, atOf(block), f64);
    });
    const auto addRows = [&](Value row, int64_t count) {
      const std::vector<Statistics> statistics = loadStatistics(row, count);
      emitLoop(e_, begin, end, 1,
               [&](Value block) { addBlock(row, count, statistics, block, atOf(block)); });
    };
    const int64_t whole = it_.tokens / kRowsAtOnce * kRowsAtOnce;
    if (whole > 0)
      emitLoop(e_, e_.integer(0), e_.integer(whole), kRowsAtOnce,
               [&](Value row) { addRows(row, kRowsAtOnce); });
    if (it_.tokens > whole) addRows(e_.integer(whole), it_.tokens - whole);
    emitLoop(e_, begin, end, 1, [&](Value block) { addToResults(block, atOf(block)); });
  }

  struct Statistics {
    Value mean, rstd;  // of one row, as vectors; null where the op has none
  };

  std::vector<Statistics> loadStatistics(Value row, int64_t count) {
    std::vector<Statistics> rows(count);
    const auto load = [&](Value tensor, int64_t i) {
      return e_.splat(e_.loadScalar(k_.pointerTo(tensor), e_.addInt(row, e_.integer(i)),
                                    elementOf(tensor), k_.mathType()));
    };
    for (int64_t i = 0; i < count; ++i) {
      if (auto grad = dyn_cast<LayerNormGradWeightOp>(op_))
        rows[i] = {load(grad.getMean(), i), load(grad.getRstd(), i)};
      if (auto grad = dyn_cast<RmsNormGradWeightOp>(op_)) rows[i] = {{}, load(grad.getRstd(), i)};
    }
    return rows;
  }

  // The terms of the sums at one row and block.
  SmallVector<Value> termsAt(Value index, const Statistics& row, Value mask) {
    const auto load = [&](Value tensor) {
      return e_.load(k_.pointerTo(tensor), index, elementOf(tensor), k_.mathType(), mask);
    };
    return llvm::TypeSwitch<Operation*, SmallVector<Value>>(op_)
        .Case<BiasGradOp>([&](BiasGradOp op) { return SmallVector<Value>{load(op.getDy())}; })
        .Case<LayerNormGradWeightOp>([&](LayerNormGradWeightOp op) {
          const Value dy = load(op.getDy());
          const Value xhat = e_.mul(e_.sub(load(op.getX()), row.mean), row.rstd);
          return SmallVector<Value>{e_.mul(dy, xhat), dy};
        })
        .Case<RmsNormGradWeightOp>([&](RmsNormGradWeightOp op) {
          return SmallVector<Value>{e_.mul(load(op.getDy()), e_.mul(load(op.getX()), row.rstd))};
        });
  }

  void addBlock(Value row, int64_t count, const std::vector<Statistics>& statistics, Value block,
                Value at) {
    const Type f64 = e_.b.getF64Type();
    const Value column = columnOf(block), mask = maskOf(column);
    SmallVector<Value> sums;
    for (Value sum : sums_) sums.push_back(e_.loadStack(sum, at, f64));
    for (int64_t i = 0; i < count; ++i) {
      const Value first = e_.mulInt(e_.addInt(row, e_.integer(i)), e_.integer(it_.width));
      const auto terms = termsAt(e_.addInt(first, column), statistics[i], mask);
      for (auto [sum, term] : llvm::zip(sums, terms)) sum = e_.add(sum, e_.toFloatType(term, f64));
    }
    for (auto [sum, array] : llvm::zip(sums, sums_)) e_.storeStack(sum, array, at, f64);
  }

  void addToResults(Value block, Value at) {
    const Type f64 = e_.b.getF64Type();
    const Value column = columnOf(block), mask = maskOf(column);
    const unsigned firstOld = op_->getNumOperands() - op_->getNumResults();
    for (unsigned i = 0; i < op_->getNumResults(); ++i) {
      if (!k_.isResult(op_->getResult(i))) continue;
      const Value old = op_->getOperand(firstOld + i);
      const Value before = e_.load(k_.pointerTo(old), column, elementOf(old), f64, mask);
      const Value sum = e_.add(before, e_.loadStack(sums_[i], at, f64));
      e_.store(sum, k_.pointerTo(op_->getResult(i)), column, elementOf(old), mask);
    }
  }

  Value columnOf(Value block) { return e_.mulInt(block, e_.integer(kLanes)); }

  // Of the columns from `column` on that exist; null if every block is whole.
  Value maskOf(Value column) {
    if (it_.width % kLanes == 0) return {};
    const Value columns = e_.addInt(e_.iota(), e_.splat(column));
    return e_.b.create<arith::CmpIOp>(arith::CmpIPredicate::slt, columns,
                                      e_.constantInt(columns.getType(), it_.width));
  }

  Kernel& k_;
  VectorEmitter& e_;
  Operation* op_;
  Iteration it_;
  SmallVector<Value> sums_;  // one stack array per result
};

}  // namespace

Extent emitColumnKernel(Kernel& kernel) { return ColumnKernel(kernel).emit(); }

Extent emitPositionKernel(Kernel& kernel) {
  VectorEmitter& e = kernel.e;
  auto op = cast<PositionGradOp>(kernel.firstOp());
  const Iteration it = iterationOf(op);
  const Type f64 = e.b.getF64Type(), element = elementOf(op.getDy());
  const int64_t localSequence = it.tokens / it.batch;
  const Value first =
      op.getSequenceSharded() ? e.mulInt(kernel.tpIndex(), e.integer(localSequence)) : e.integer(0);
  const auto addColumns = [&](Value s, Value column, Value mask) {
    const Value zero = e.constant(e.vectorOf(f64), 0.0);
    const Value sum =
        emitLoop(e, e.integer(0), e.integer(it.batch), 1, zero,
                 [&](Value b, ValueRange carried) -> std::vector<Value> {
                   const Value token = e.addInt(e.mulInt(s, e.integer(it.batch)), b);
                   const Value index = e.addInt(e.mulInt(token, e.integer(it.width)), column);
                   return {e.add(carried[0],
                                 e.load(kernel.pointerTo(op.getDy()), index, element, f64, mask))};
                 })[0];
    const Value row = e.mulInt(e.addInt(first, s), e.integer(it.width));
    const Value index = e.addInt(row, column);
    const Type state = elementOf(op.getOld());
    const Value old = e.load(kernel.pointerTo(op.getOld()), index, state, f64, mask);
    e.store(e.add(old, sum), kernel.resultPointer(0), index, state, mask);
  };
  const int64_t whole = it.width / kLanes * kLanes;
  kernel.forEach(localSequence, [&](Value s) {
    emitLoop(e, e.integer(0), e.integer(whole), kLanes,
             [&](Value column) { addColumns(s, column, Value()); });
    if (it.width > whole) addColumns(s, e.integer(whole), e.firstLanes(it.width - whole));
  });
  return {localSequence, 1};
}

}  // namespace trireme::codegen
