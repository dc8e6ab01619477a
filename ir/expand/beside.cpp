#include "ir/expand/beside.h"

#include <algorithm>

namespace trireme::expand {
namespace {

using graph::OpKind;
using program::InstructionKind;

bool holds(const std::vector<ValueId>& values, ValueId value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

class Mover {
 public:
  explicit Mover(LoweredPass pass) : pass_(std::move(pass)) {}

  LoweredPass run() {
    for (size_t i = 0; i < pass_.items.size(); ++i)
      if (gathersForWeight(i)) i = moved(i, i - 1);
    for (size_t i = 0; i < pass_.items.size(); ++i)
      if (const size_t start = reductionStart(i); start < i) i = moved(i, start);
    return std::move(pass_);
  }

 private:
  const Item& item(size_t i) const { return pass_.items[i]; }
  bool isOp(size_t i) const { return !item(i).isCollective; }
  bool isOp(size_t i, OpKind kind) const {
    return i < pass_.items.size() && isOp(i) && item(i).kind == kind;
  }

  // The item before `end` that writes the value; -1: it is from before the pass.
  int64_t producer(ValueId value, size_t end) const {
    for (size_t i = end; i-- > 0;)
      if (holds(item(i).outputs, value)) return static_cast<int64_t>(i);
    return -1;
  }

  // (B2)
  bool gathersForWeight(size_t i) const {
    return i >= 2 && item(i).isCollective && item(i).collective == InstructionKind::kAllGather &&
           isOp(i - 1, OpKind::kMatmulGradInput) && isOp(i + 1, OpKind::kMatmulGradWeight) &&
           producer(item(i).inputs[0], i) < 0;
  }

  // (B1); i if it stays.
  size_t reductionStart(size_t i) const {
    const Item& reduction = item(i);
    const bool reduces = reduction.isCollective && reduction.overlap == Overlap::kNone &&
                         reduction.collective != InstructionKind::kAllGather;
    if (!reduces) return i;
    const auto isRead = [&](const Item& it) {
      return !it.isCollective && holds(it.inputs, reduction.outputs[0]);
    };
    const int64_t made = producer(reduction.inputs[0], i);
    TRIREME_CHECK(made >= 0);
    auto start = static_cast<size_t>(made) + 1;
    while (start < i && item(start).overlap == Overlap::kJoin) ++start;
    const auto begin = pass_.items.begin();
    const auto at = begin + static_cast<int64_t>(i);
    const bool isBesideOps = std::any_of(begin + static_cast<int64_t>(start), at,
                                         [](const Item& it) { return !it.isCollective; });
    return isBesideOps && std::any_of(at, pass_.items.end(), isRead) ? start : i;
  }

  // Starts the collective at `from` at `to`. Returns where its join is then.
  size_t moved(size_t from, size_t to) {
    Item start = item(from);
    start.overlap = Overlap::kStart;
    pass_.items[from].overlap = Overlap::kJoin;
    pass_.items.insert(pass_.items.begin() + static_cast<int64_t>(to), std::move(start));
    return from + 1;
  }

  LoweredPass pass_;
};

}  // namespace

LoweredPass runBeside(LoweredPass pass) { return Mover(std::move(pass)).run(); }

}  // namespace trireme::expand
