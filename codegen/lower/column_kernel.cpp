// Sums over tokens, in the order of program::sumRangeTokens(). The iteration space is blocks of
// columns: kLanes of them are summed by one thread of a host, over the ranges in order, and fewer
// by the warps of one thread block of a GPU, each of which takes some ranges at once in its lanes,
// and more in turn. They leave the ranges' sums in shared memory, where the first warp adds them up
// in order. So the result does not depend on the split, nor on the number of warps.
//
// Sums are in f64 and live in an array on the stack, a chunk of columns wide: rows are then read in
// runs of some KiB, which the prefetcher likes, and several rows share a pass over the array.
#include <llvm/ADT/TypeSwitch.h>
#include <mlir/Dialect/SCF/IR/SCF.h>

#include <array>

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
// Rows whose loads are under way at once; of the next number as soon as fewer are left.
constexpr std::array<int64_t, 2> kRowsAtOnce = {4, 1};
// On a GPU there are kSumRanges threads for a column. To fill its memory (an H200: 4.8 TB/s for
// some 0.7 us) they have 16 loads under way each, and 32 where there are few columns. A block has
// fewer of these, so that they spread over more multiprocessors, which widen 16 values to f64 in a
// cycle; 16 are a sector of memory in 16 bits.
constexpr int64_t kManyColumns = 1024;
constexpr int64_t kColumnsInWarps = 16, kFewColumnsInWarps = 8;
constexpr std::array<int64_t, 4> kRowsInWarps = {32, 16, 8, 1};

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
    if (e_.inWarps()) {
      columns_ = it_.width < kManyColumns ? kFewColumnsInWarps : kColumnsInWarps;
      part_ = e_.b.create<arith::DivUIOp>(e_.iota(), e_.integer(columns_));
    }
    sums_ = makeArrays();
  }

  Extent emit() {
    const int64_t blocks = (it_.width + columns_ - 1) / columns_;
    if (e_.inWarps()) {
      const std::string name = op_->getParentOfType<func::FuncOp>().getName().str() + "_shared";
      const Value shared = e_.sharedArray(name, f64(), numSums_ * numRanges_ * columns_);
      k_.forEachBlock(blocks, [&](Value block) { emitBlock(block, shared); });
    } else {
      totals_ = makeArrays();
      k_.forEachChunk(blocks, kBlocksPerChunk,
                      [&](Value begin, Value end) { emitChunk(begin, end); });
    }
    return {blocks, kBlocksPerGrain, e_.inWarps() ? numTurns() : 1};
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

  // How often a warp alone would have to take ranges.
  int64_t numTurns() const {
    const int64_t atOnce = kLanes / columns_;
    return (numRanges_ + atOnce - 1) / atOnce;
  }

  void emitBlock(Value block, Value shared) {
    const Value next = e_.addInt(block, e_.integer(1));
    const auto at = [&](int64_t sum, Value range) {
      return columnOf(e_.addInt(e_.integer(sum * numRanges_), range));
    };
    emitLoop(e_, k_.warpInBlock(), e_.integer(numTurns()), k_.warpsInBlock(), [&](Value turn) {
      const Value range = e_.addInt(e_.mulInt(turn, e_.integer(kLanes / columns_)), part_);
      sumRange(block, next, e_.mulInt(range, e_.integer(rangeRows_)));
      const Value isThere = isBelow(range, numRanges_);
      for (int64_t i = 0; i < numSums_; ++i)
        e_.storeRounded(e_.loadStack(sums_[i], e_.integer(0), f64()), shared, at(i, range), f64(),
                        isThere);
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
    const Value last = e_.minInt(e_.addInt(first, e_.integer(rangeRows_)), e_.integer(it_.tokens));
    const Value count = e_.b.create<arith::SubIOp>(last, first);  // below 0: no such range
    Value row = first;
    for (const int64_t step : rowsAtOnce()) {
      const Value rows =
          e_.mulInt(e_.b.create<arith::DivSIOp>(count, e_.integer(step)), e_.integer(step));
      const Value next = e_.addInt(first, rows);
      if (e_.inWarps() && step > 1)
        addRowsAhead(begin, row, next, step);
      else
        emitLoop(e_, row, next, step, [&](Value from) { addRows(begin, end, from, step); });
      if (rangeRows_ % step == 0 && it_.tokens % step == 0) return;
      row = next;
    }
  }

  void addRows(Value begin, Value end, Value row, int64_t count) {
    const std::vector<Statistics> statistics = loadStatistics(row, count);
    emitLoop(e_, begin, end, 1, [&](Value block) {
      add(loadRows(block, row, count), statistics, offsetOf(block, begin));
    });
  }

  // Of a warp's block: the next rows are loaded before those of this turn are added. ptxas, which
  // would rather have few registers and load what it needs next, cannot move them into the turn
  // that adds them.
  void addRowsAhead(Value block, Value row, Value end, int64_t count) {
    const Value some = e_.b.create<arith::CmpIOp>(arith::CmpIPredicate::slt, row, end);
    OpBuilder::InsertionGuard guard(e_.b);
    e_.b.setInsertionPointToStart(e_.b.create<scf::IfOp>(some).thenBlock());
    const auto load = [&](Value from) {
      Rows rows = loadRows(block, from, count);
      for (const Statistics& of : loadStatistics(from, count))
        for (Value value : {of.mean, of.rstd})
          if (value) rows.push_back({value});
      std::vector<Value> all;
      for (const auto& values : rows) all.insert(all.end(), values.begin(), values.end());
      return all;
    };
    const auto addAll = [&](ValueRange all) {
      auto next = all.begin();
      Rows rows(count);
      std::vector<Statistics> statistics(count);
      for (auto& values : rows)
        for (int64_t i = 0; i < numTensors(); ++i) values.push_back(*next++);
      for (Statistics& of : statistics) {
        if (isa<LayerNormGradWeightOp>(op_)) of.mean = *next++;
        if (!isa<BiasGradOp>(op_)) of.rstd = *next++;
      }
      add(rows, statistics, e_.integer(0));
    };
    const std::vector<Value> last = emitLoop(e_, e_.addInt(row, e_.integer(count)), end, count,
                                             load(row), [&](Value from, ValueRange carried) {
                                               const std::vector<Value> ahead = load(from);
                                               addAll(carried);
                                               return ahead;
                                             });
    addAll(last);
  }

  ArrayRef<int64_t> rowsAtOnce() const {
    if (!e_.inWarps()) return kRowsAtOnce;
    const size_t fewer = (columns_ == kColumnsInWarps ? 1 : 0) + (numTensors() > 1 ? 1 : 0);
    return ArrayRef(kRowsInWarps).drop_front(fewer);
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

  // dy, and x where the terms take it, of each row.
  using Rows = std::vector<SmallVector<Value>>;
  int64_t numTensors() const { return isa<BiasGradOp>(op_) ? 1 : 2; }

  Rows loadRows(Value block, Value row, int64_t count) {
    const Value column = columnOf(block), mask = maskOf(column);
    Rows rows(count);
    for (int64_t i = 0; i < count; ++i) {
      const Value first = e_.mulInt(e_.addInt(row, e_.integer(i)), e_.integer(it_.width));
      const auto load = [&](Value tensor) {
        rows[i].push_back(e_.load(k_.pointerTo(tensor), e_.addInt(first, column), elementOf(tensor),
                                  k_.mathType(), mask));
      };
      llvm::TypeSwitch<Operation*>(op_)
          .Case<BiasGradOp>([&](BiasGradOp op) { load(op.getDy()); })
          .Case<LayerNormGradWeightOp, RmsNormGradWeightOp>([&](auto op) {
            load(op.getDy());
            load(op.getX());
          });
    }
    return rows;
  }

  // The terms of the sums.
  SmallVector<Value> termsOf(ArrayRef<Value> values, const Statistics& row) {
    if (isa<BiasGradOp>(op_)) return {values[0]};
    const Value dy = values[0], x = values[1];
    if (isa<RmsNormGradWeightOp>(op_)) return {e_.mul(dy, e_.mul(x, row.rstd))};
    return {e_.mul(dy, e_.mul(e_.sub(x, row.mean), row.rstd)), dy};
  }

  // To the sums at `at` of their arrays.
  void add(const Rows& rows, const std::vector<Statistics>& statistics, Value at) {
    SmallVector<Value> sums;
    for (Value sum : sums_) sums.push_back(e_.loadStack(sum, at, f64()));
    for (size_t i = 0; i < rows.size(); ++i)
      for (auto [sum, term] : llvm::zip(sums, termsOf(rows[i], statistics[i])))
        sum = e_.add(sum, e_.toFloatType(term, f64()));
    for (auto [sum, array] : llvm::zip(sums, sums_)) e_.storeStack(sum, array, at, f64());
  }

  void addToResults(Value block, ArrayRef<Value> totals) {
    const Value column = columnOf(block);
    Value mask = maskOf(column);
    if (e_.inWarps()) {  // the lanes of one range
      const Value isFirst = isBelow(part_, 1);
      mask = mask ? e_.b.create<arith::AndIOp>(mask, isFirst) : isFirst;
    }
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
    if (e_.inWarps()) return e_.integer(0);
    return columnOf(e_.b.create<arith::SubIOp>(block, begin));
  }
  // The first column of `block`; of a lane of a warp its own less its number, since accesses add
  // that.
  Value columnOf(Value block) {
    const Value column = e_.mulInt(block, e_.integer(columns_));
    if (!e_.inWarps()) return column;
    return e_.b.create<arith::SubIOp>(column, e_.mulInt(part_, e_.integer(columns_)));
  }

  // Of the columns from `column` on that exist; null if every block is whole.
  Value maskOf(Value column) {
    if (it_.width % columns_ == 0) return {};
    return isBelow(e_.addInt(e_.iota(), e_.splat(column)), it_.width);
  }
  Value isBelow(Value x, int64_t bound) {
    return e_.b.create<arith::CmpIOp>(arith::CmpIPredicate::slt, x,
                                      e_.constantInt(x.getType(), static_cast<uint64_t>(bound)));
  }

  Kernel& k_;
  VectorEmitter& e_;
  Operation* op_;
  Iteration it_;
  int64_t rangeRows_, numRanges_, numSums_;
  int64_t columns_ = kLanes;          // of a block
  Value part_;                        // in warps: which of the ranges at once is the lane's
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
