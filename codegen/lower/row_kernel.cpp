#include "codegen/lower/row_kernel.h"

#include <algorithm>

#include "ir/dialect/dialect.h"

namespace trireme::codegen {

using namespace mlir;
using namespace dialect;

namespace {
constexpr int64_t kElementsPerGrain =
    16384;  // A few microseconds: well above the cost of a hand-over.
// On a GPU a lane has one element of a site, so that a site is 64 or 128 bytes of each operand. To
// fill its memory (an H200: 4.8 TB/s for some 0.7 us are 25 KB for each of 132 multiprocessors) a
// warp has several under way.
constexpr int64_t kSitesAtOnceInWarps = kSitesOfWords;
}  // namespace

Extent emitRowKernel(Kernel& kernel) { return RowKernel(kernel).emit(); }

RowKernel::RowKernel(Kernel& kernel) : k_(kernel), e_(kernel.e) {
  for (Operation& op : kernel.ops()) {
    const Iteration it = iterationOf(&op);
    if (it.tokens > 0 && it_.tokens == 0) it_ = it;
    it_.width = std::max(it_.width, it.width);
    if (it.pairing != Pairing::kNone) it_.pairing = it.pairing;
    if (it.wholeRows)
      norm_ = &op;
    else
      (norm_ ? after_ : before_).push_back(&op);
  }
}

Extent RowKernel::emit() {
  loadContext();
  k_.forEach(it_.tokens, [&](Value row) {
    row_ = row;
    const Value batch = e_.integer(it_.batch);
    sequence_ = e_.b.create<arith::DivUIOp>(row, batch);
    batch_ = e_.b.create<arith::RemUIOp>(row, batch);
    emitRow();
  });
  return {it_.tokens, std::max<int64_t>(1, kElementsPerGrain / it_.width)};
}

// Loads from the context stand before the loops: behind a store they could not be moved out.
void RowKernel::loadContext() {
  firstSample_ = k_.firstSample();
  tpIndex_ = k_.tpIndex();
  for (Operation& op : k_.ops()) {
    if (isa<DropoutOp>(op)) keys_[&op] = k_.rngKey(attributesOf(&op).stream);
    if (!isa<RotaryOp, RotaryGradOp>(op)) continue;
    const int64_t half = attributesOf(&op).headSize / 2;
    cosines_ = e_.stackArray(k_.mathType(), half);
    sines_ = e_.stackArray(k_.mathType(), half);
    frequencies_ = emitFrequencies(&op);
  }
}

void RowKernel::emitRow() {
  for (Operation* op : before_)
    if (isa<RotaryOp, RotaryGradOp>(op)) emitRotaryTable(op);
  if (norm_) return emitNorm();
  forEachSite([&](const Site& site) { evaluateAll(before_, site); });
}

// Loads come first, with what their addresses are made of and what widens their values, for LLVM
// makes one instruction of both: a division is a branch on a GPU, and ptxas moves no load across
// one.
void RowKernel::loadsBeforeStores(const std::function<void()>& body) {
  if (!e_.inWarps() || isGathering_) return body();
  isGathering_ = true;
  Operation* first = e_.integer(0).getDefiningOp();
  body();
  isGathering_ = false;
  const std::function<void(Operation*)> hoist = [&](Operation* op) {
    if (op == nullptr || op->getBlock() != first->getBlock() || op->isBeforeInBlock(first)) return;
    for (Value operand : op->getOperands()) hoist(operand.getDefiningOp());
    op->moveBefore(first);
  };
  for (Operation* load : loads_) hoist(load);
  for (const auto& store : stores_) store();
  loads_.clear();
  stores_.clear();
}

std::vector<Value> RowKernel::visit(
    int64_t width, std::vector<Value> carried,
    const std::function<std::vector<Value>(Value, Value, ValueRange)>& body) {
  const int64_t sites = width / kLanes, whole = sites * kLanes;
  const int64_t atOnce = e_.inWarps() ? kSitesAtOnceInWarps : 1;
  const auto visitSites = [&](Value first, int64_t count, ValueRange values) {
    std::vector<Value> next(values.begin(), values.end());
    for (int64_t i = 0; i < count; ++i) {
      siteOfGroup_ = e_.inWarps() && count == kSitesOfWords ? i : -1;
      next = body(i == 0 ? first : e_.addInt(first, e_.integer(i * kLanes)), Value(), next);
    }
    siteOfGroup_ = -1;
    return next;
  };
  int64_t inLoop = e_.inWarps() && sites <= atOnce ? 0 : sites / atOnce * atOnce;
  if (inLoop > 0)
    carried = emitLoop(e_, e_.integer(0), e_.integer(inLoop * kLanes), atOnce * kLanes, carried,
                       [&](Value first, ValueRange values) {
                         std::vector<Value> next;
                         loadsBeforeStores([&] { next = visitSites(first, atOnce, values); });
                         return next;
                       });
  loadsBeforeStores([&] {
    carried = visitSites(e_.integer(inLoop * kLanes), sites - inLoop, carried);
    if (width > whole) carried = body(e_.integer(whole), e_.firstLanes(width - whole), carried);
  });
  return carried;
}

void RowKernel::forEachSite(const SiteBody& body) {
  if (it_.pairing == Pairing::kHeads) return forEachHead(body);
  const bool halves = it_.pairing == Pairing::kHalves;
  const int64_t width = halves ? it_.width / 2 : it_.width;
  visit(width, {}, [&](Value column, Value mask, ValueRange) {
    Site site;
    site.columns.push_back(column);
    if (halves) site.columns.push_back(e_.addInt(column, e_.integer(width)));
    site.mask = mask;
    registers_.clear();
    body(site);
    return std::vector<Value>{};
  });
}

void RowKernel::forEachHead(const SiteBody& body) {
  const auto rotary =
      llvm::find_if(before_, [](Operation* op) { return isa<RotaryOp, RotaryGradOp>(op); });
  const program::OpAttributes a = attributesOf(*rotary);
  const int64_t half = a.headSize / 2, group = (a.headsPerGroup + 2) * a.headSize;
  const auto visitHead = [&](Value head, bool rotates) {
    visit(half, {}, [&](Value i, Value mask, ValueRange) {
      Site site;
      site.columns = {e_.addInt(head, i), e_.addInt(e_.addInt(head, i), e_.integer(half))};
      site.mask = mask;
      site.pairIndex = i;
      site.rotates = rotates;
      registers_.clear();
      body(site);
      return std::vector<Value>{};
    });
  };
  const int64_t rotating = a.headsPerGroup + 1, sitesPerHead = (half + kLanes - 1) / kLanes;
  const int64_t atOnce =
      e_.inWarps() ? std::max<int64_t>(kSitesAtOnceInWarps / sitesPerHead, 1) : 1;
  // So many that rotate, and the value's behind them.
  const auto visitHeads = [&](Value first, int64_t count, bool withValue) {
    const auto visitAll = [&] {
      for (int64_t i = 0; i < count + (withValue ? 1 : 0); ++i)
        visitHead(e_.addInt(first, e_.integer(i * a.headSize)), i < count);
    };
    if (atOnce > 1)
      loadsBeforeStores(visitAll);
    else
      visitAll();  // there may be loops within
  };
  emitLoop(e_, e_.integer(0), e_.integer(it_.width), group, [&](Value first) {
    const Value rest = e_.addInt(first, e_.integer(rotating / atOnce * atOnce * a.headSize));
    if (rotating >= atOnce)
      emitLoop(e_, first, rest, atOnce * a.headSize,
               [&](Value head) { visitHeads(head, atOnce, false); });
    visitHeads(rest, rotating % atOnce, true);
  });
}

SmallVector<Value> RowKernel::sumOverRow(size_t count, const SumBody& body) {
  const Value zero = e_.constant(e_.vectorOf(e_.b.getF64Type()), 0.0);
  const std::vector<Value> sums = visit(it_.width, std::vector<Value>(count, zero),
                                        [&](Value column, Value mask, ValueRange carried) {
                                          Site site;
                                          site.columns.push_back(column);
                                          site.mask = mask;
                                          registers_.clear();
                                          std::vector<Value> next;
                                          for (auto [sum, term] : llvm::zip(carried, body(site))) {
                                            Value wide = e_.toFloatType(term, e_.b.getF64Type());
                                            if (mask) wide = e_.select(mask, wide, zero);
                                            next.push_back(e_.add(sum, wide));
                                          }
                                          return next;
                                        });
  SmallVector<Value> totals;
  for (Value sum : sums) totals.push_back(e_.sumLanes(sum));
  return totals;
}

Parts RowKernel::columnsOf(Value tensor, const Site& site) const {
  if (it_.pairing == Pairing::kHalves && widthOf(tensor.getType()) != it_.width)
    return {site.columns[0]};
  return site.columns;
}

const Parts& RowKernel::read(Value tensor, const Site& site) {
  if (auto found = registers_.find(tensor); found != registers_.end()) return found->second;
  Parts parts;
  const Value row = e_.mulInt(row_, e_.integer(widthOf(tensor.getType())));
  for (Value column : columnsOf(tensor, site)) {
    const Value index = e_.addInt(row, column);
    if (!e_.inWarps()) e_.fetchAhead(k_.pointerTo(tensor), index, elementOf(tensor));
    parts.push_back(load(tensor, index, site.mask));
  }
  return registers_[tensor] = parts;
}

Value RowKernel::load(Value tensor, Value index, Value mask) {
  const Value loaded = e_.load(k_.pointerTo(tensor), index, elementOf(tensor), k_.mathType(), mask);
  if (isGathering_ && !mask) loads_.push_back(loaded.getDefiningOp());
  return loaded;
}

// The value is rounded to its type even if it stays in registers: fusion must not change results.
void RowKernel::write(Value result, Parts parts, const Site& site) {
  for (Value& part : parts) part = e_.roundTo(part, elementOf(result));
  registers_[result] = parts;
  if (!k_.isResult(result)) return;
  const Value row = e_.mulInt(row_, e_.integer(widthOf(result.getType())));
  for (auto [part, column] : llvm::zip(parts, columnsOf(result, site))) {
    const auto store = [this, part, result, index = e_.addInt(row, column), mask = site.mask] {
      e_.storeRounded(part, k_.pointerTo(result), index, elementOf(result), mask);
    };
    if (isGathering_)
      stores_.push_back(store);
    else
      store();
  }
}

Value RowKernel::globalPosition(Operation* op) {
  if (!attributesOf(op).sequenceSharded) return sequence_;
  const Value first = e_.mulInt(tpIndex_, e_.integer(it_.tokens / it_.batch));
  return e_.addInt(first, sequence_);
}

}  // namespace trireme::codegen
