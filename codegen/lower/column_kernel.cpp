// Sums over tokens, in the order of program::sumRangeTokens(). The iteration space is blocks of
// kLanes columns: a column is summed by one thread of a host, over the ranges in order, or by the
// warps of one thread block of a GPU, each of which takes ranges in turn. They leave the ranges'
// sums in shared memory, where the first warp adds them up in order. So the result does not depend
// on the split, nor on the number of warps.
//
// Sums are in f64 and live in an array on the stack, a chunk of columns wide: rows are then read in
// runs of some KiB, which the prefetcher likes, and several rows share a pass over the array.
#include <llvm/ADT/TypeSwitch.h>

#include "codegen/fuse/iteration.h"
#include "codegen/lower/kernel.h"
#include "ir/dialect/dialect.h"
#include "ir/program/op.h"

namespace trireme::codegen {

using namespace mlir;
using namespace dialect;

namespace {

constexpr int64_t kBlocksPerChunk = 32;
constexpr int64_t kBlocksPerGrain = 4;
// Rows whose loads are under way at once.
constexpr int64_t kRowsAtOnce = 4, kRowsAtOnceInWarps = 8;
static_assert(program::kSumRangeStep % kRowsAtOnce == 0 &&
              program::kSumRangeStep % kRowsAtOnceInWarps == 0);

class ColumnKernel {
 public:
  explicit ColumnKernel(Kernel& kernel)
      : k_(kernel),
        e_(kernel.e),
        op_(kernel.firstOp()),
        it_(iterationOf(op_)),
        rangeRows_(program::sumRangeTokens(it_.tokens)),
        numRanges_((it_.tokens + rangeRows_ - 1) / rangeRows_),
        numSums_(op_->getNumResults()) {
    sums_ = makeArrays();
  }

  Extent emit() {
    const int64_t blocks = (it_.width + kLanes - 1) / kLanes;
    if (e_.inWarps()) {
      const std::string name = op_->getParentOfType<func::FuncOp>().getName().str() + "_shared";
      const Value shared = e_.sharedArray(name, f64(), numSums_ * numRanges_ * kLanes);
      k_.forEachBlock(blocks, [&](Value block) { emitBlock(block, shared); });
    } else {
      totals_ = makeArrays();
      k_.forEachChunk(blocks, kBlocksPerChunk,
                      [&](Value begin, Value end) { emitChunk(begin, end); });
    }
    return {blocks, kBlocksPerGrain, e_.inWarps() ? numRanges_ : 1};
  }

 private:
  Type f64() { return e_.b.getF64Type(); }

  // One per sum.
  SmallVector<Value> makeArrays() {
    SmallVector<Value> arrays;
    for (int64_t i = 0; i < numSums_; ++i)
      arrays.push_back(e_.stackArray(f64(), k_.chunkSize(kBlocksPerChunk) * kLanes));
    return arrays;
  }

  void emitChunk(Value begin, Value end) {
    zero(totals_, begin, end);
    emitLoop(e_, e_.integer(0), e_.integer(it_.tokens), rangeRows_, [&](Value first) {
      sumRange(begin, end, first);
      emitLoop(e_, begin, end, 1, [&](Value block) {
        const Value at = offsetOf(block, begin);
        for (auto [sum, total] : llvm::zip(sums_, totals_))
          e_.storeStack(e_.add(e_.loadStack(total, at, f64()), e_.loadStack(sum, at, f64())), total,
                        at, f64());
      });
    });
    emitLoop(e_, begin, end, 1, [&](Value block) {
      SmallVector<Value> totals;
      for (Value total : totals_)
        totals.push_back(e_.loadStack(total, offsetOf(block, begin), f64()));
      addToResults(block, totals);
    });
  }

  void emitBlock(Value block, Value shared) {
    const Value next = e_.addInt(block, e_.integer(1));
    const auto at = [&](int64_t sum, Value range) {
      return columnOf(e_.addInt(e_.integer(sum * numRanges_), range));
    };
    emitLoop(e_, k_.warpInBlock(), e_.integer(numRanges_), k_.warpsInBlock(), [&](Value range) {
      sumRange(block, next, e_.mulInt(range, e_.integer(rangeRows_)));
      for (int64_t i = 0; i < numSums_; ++i)
        e_.storeRounded(e_.loadStack(sums_[i], e_.integer(0), f64()), shared, at(i, range), f64(),
                        Value());
    });
    e_.barrier();
    k_.onFirstWarp([&] {
      const std::vector<Value> zeros(numSums_, e_.constant(f64(), 0.0));
      const auto totals =
          emitLoop(e_, e_.integer(0), e_.integer(numRanges_), 1, zeros,
                   [&](Value range, ValueRange carried) {
                     std::vector<Value> sums;
                     for (int64_t i = 0; i < numSums_; ++i)
                       sums.push_back(e_.add(carried[i],
                                             e_.load(shared, at(i, range), f64(), f64(), Value())));
                     return sums;
                   });
      addToResults(block, totals);
    });
    e_.barrier();  // The next block's sums take the place of these.
  }

  void zero(ArrayRef<Value> arrays, Value begin, Value end) {
    emitLoop(e_, begin, end, 1, [&](Value block) {
      for (Value array : arrays)
        e_.storeStack(e_.constant(e_.vectorOf(f64()), 0.0), array, offsetOf(block, begin), f64());
    });
  }

  // sums_ become those of the range of rows from `first`, for the blocks [begin, end).
  void sumRange(Value begin, Value end, Value first) {
    zero(sums_, begin, end);
    const auto addRows = [&](Value row, int64_t count) {
      const std::vector<Statistics> statistics = loadStatistics(row, count);
      emitLoop(e_, begin, end, 1, [&](Value block) {
        addBlock(row, count, statistics, block, offsetOf(block, begin));
      });
    };
    const int64_t step = e_.inWarps() ? kRowsAtOnceInWarps : kRowsAtOnce;
    const Value whole = e_.integer(it_.tokens / step * step);
    const Value last = e_.addInt(first, e_.integer(rangeRows_));
    emitLoop(e_, first, e_.minInt(last, whole), step, [&](Value row) { addRows(row, step); });
    // Rows that are left over are in the last range.
    if (it_.tokens % step > 0)
      emitLoop(e_, whole, e_.minInt(last, e_.integer(it_.tokens)), 1,
               [&](Value row) { addRows(row, 1); });
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
    const Value column = columnOf(block), mask = maskOf(column);
    SmallVector<Value> sums;
    for (Value sum : sums_) sums.push_back(e_.loadStack(sum, at, f64()));
    for (int64_t i = 0; i < count; ++i) {
      const Value first = e_.mulInt(e_.addInt(row, e_.integer(i)), e_.integer(it_.width));
      const auto terms = termsAt(e_.addInt(first, column), statistics[i], mask);
      for (auto [sum, term] : llvm::zip(sums, terms))
        sum = e_.add(sum, e_.toFloatType(term, f64()));
    }
    for (auto [sum, array] : llvm::zip(sums, sums_)) e_.storeStack(sum, array, at, f64());
  }

  void addToResults(Value block, ArrayRef<Value> totals) {
    const Value column = columnOf(block), mask = maskOf(column);
    const unsigned firstOld = op_->getNumOperands() - op_->getNumResults();
    for (unsigned i = 0; i < op_->getNumResults(); ++i) {
      if (!k_.isResult(op_->getResult(i))) continue;
      const Value old = op_->getOperand(firstOld + i);
      const Value before = e_.load(k_.pointerTo(old), column, elementOf(old), f64(), mask);
      e_.store(e_.add(before, totals[i]), k_.pointerTo(op_->getResult(i)), column, elementOf(old),
               mask);
    }
  }

  // Where the sums of `block` are in the arrays of the blocks from `begin`.
  Value offsetOf(Value block, Value begin) {
    return columnOf(e_.b.create<arith::SubIOp>(block, begin));
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
  int64_t rangeRows_, numRanges_, numSums_;
  SmallVector<Value> sums_, totals_;  // of a range, of a column: one stack array per sum
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
