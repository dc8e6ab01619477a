// Kernels that work token by token: chains of elementwise ops around at most one norm. Internal to
// codegen/lower.
//
// A chain is one loop over the columns of a row:
//   for each row: for each site (kLanes columns, or a pair of them): load, compute the ops, store
// With a norm there is a loop per reduction, so that the row is read again from the cache:
//   layer_norm       ops before it, sum x | sum (x - mean)^2 | y, ops behind it
//   rms_norm         ops before it, sum x^2 | y, ops behind it
//   *_norm_grad      ops before it, sums of g and g xhat | dx, ops behind it
// Everything at a site is loaded before its results are stored, so results may lie over operands.
// On a GPU so are some sites together.
#pragma once
#include <llvm/ADT/DenseMap.h>

#include <array>
#include <map>

#include "codegen/fuse/iteration.h"
#include "codegen/lower/kernel.h"
#include "codegen/lower/philox.h"

namespace trireme::codegen {

using Parts = llvm::SmallVector<mlir::Value, 2>;

// Columns of a row that are in registers at once.
struct Site {
  Parts columns;          // first column of each vector: two if the kernel visits pairs
  mlir::Value mask;       // null: all lanes
  mlir::Value pairIndex;  // kHeads: index within the half head
  bool rotates = false;   // kHeads: a query or key head
};

class RowKernel {
 public:
  explicit RowKernel(Kernel& kernel);
  Extent emit();

 private:
  using Value = mlir::Value;
  using Operation = mlir::Operation;
  using SiteBody = std::function<void(const Site&)>;
  using SumBody = std::function<llvm::SmallVector<Value>(const Site&)>;

  // The loops of one row.
  void emitRow();
  void forEachSite(const SiteBody& body);
  void forEachHead(const SiteBody& body);
  // Sums over the row of `count` quantities of math type, in f64. Requires kNone.
  llvm::SmallVector<Value> sumOverRow(size_t count, const SumBody& body);
  // Emits `body`, which is without loops and may be several sites; on a GPU what they load comes
  // before all of it and what they store behind, so that their loads are under way together.
  void loadsBeforeStores(const std::function<void()>& body);
  // Visits [0, width) by kLanes; `carried` as for emitLoop. Without loops if it is a few sites of a
  // GPU.
  std::vector<Value> visit(
      int64_t width, std::vector<Value> carried,
      const std::function<std::vector<Value>(Value, Value mask, mlir::ValueRange)>& body);

  // Elementwise ops.
  void evaluate(Operation* op, const Site& site);
  void evaluateAll(llvm::ArrayRef<Operation*> ops, const Site& site);
  Value dropout(Operation* op, Value x, const Parts& columns, size_t part);
  Parts swiGlu(Operation* op, const Site& site);
  Parts swiGluGrad(Operation* op, const Site& site);
  Parts rotary(Operation* op, const Site& site);
  Value gelu(Value u);
  Value geluGrad(Value u, Value dz);

  // Norms.
  void emitNorm();
  void emitLayerNorm(Operation* op);
  void emitRmsNorm(Operation* op);
  void emitNormGrad(Operation* op);
  Value meanOverRow(Value sum);
  Value reciprocalRoot(Value meanSquare, double epsilon);
  void storeStatistic(Operation* op, unsigned result, Value f64);
  Value statistic(Value tensor);  // of this row, as a vector of math type

  // Access.
  const Parts& read(Value tensor, const Site& site);
  Value load(Value tensor, Value index, Value mask);  // of math type
  void write(Value result, Parts parts, const Site& site);
  Parts columnsOf(Value tensor, const Site& site) const;
  Value globalPosition(Operation* op);  // of this row's token, i64

  void loadContext();
  Value emitFrequencies(Operation* op);  // pointer to the f64 table
  void emitRotaryTable(Operation* op);

  Kernel& k_;
  VectorEmitter& e_;
  Iteration it_;
  std::vector<Operation*> before_, after_;  // of the norm; all ops are `before_` without one
  Operation* norm_ = nullptr;
  Value row_, sequence_, batch_;            // index of the row, its s and its b
  llvm::DenseMap<Value, Parts> registers_;  // values at the current site
  // On a GPU, of the site among kSitesOfWords that are visited together, else -1; and their random
  // words, by op and part.
  int64_t siteOfGroup_ = -1;
  std::map<std::pair<Operation*, size_t>, std::array<Value, kSitesOfWords>> wordsOfGroup_;
  bool isGathering_ = false;  // these:
  std::vector<Operation*> loads_;
  std::vector<std::function<void()>> stores_;
  Value firstSample_, tpIndex_;
  llvm::DenseMap<Operation*, std::pair<Value, Value>> keys_;
  Value cosines_, sines_;  // stack arrays of the row's rotation
  Value frequencies_;
};

}  // namespace trireme::codegen
