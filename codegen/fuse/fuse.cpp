#include <llvm/ADT/SetVector.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/Support/raw_ostream.h>
#include <mlir/IR/IRMapping.h>

#include <algorithm>

#include "codegen/fuse/iteration.h"
#include "codegen/passes.h"

namespace trireme::codegen {

#define GEN_PASS_DEF_FUSEPASS
#include "codegen/passes.h.inc"

namespace {

using mlir::Operation;
using mlir::Value;

// A kernel in the making. It runs where its first op stands.
struct Group {
  std::vector<Operation*> ops;
  Iteration iteration;

  bool contains(Operation* op) const { return llvm::is_contained(ops, op); }
};

// (C2)
bool columnsLineUp(const Iteration& a, const Iteration& b) {
  if (a.tokens != b.tokens || a.batch != b.batch) return false;
  const auto fitsHalves = [](const Iteration& plain, const Iteration& halves) {
    return halves.width == plain.width || halves.width == 2 * plain.width;
  };
  if (a.pairing == Pairing::kHalves && b.pairing == Pairing::kNone) return fitsHalves(b, a);
  if (b.pairing == Pairing::kHalves && a.pairing == Pairing::kNone) return fitsHalves(a, b);
  return a.width == b.width;
}

// (C3)
bool sharesValue(const Group& group, Operation* op) {
  return llvm::any_of(op->getOperands(), [&](Value value) {
    return llvm::any_of(group.ops, [&](Operation* member) {
      return value.getDefiningOp() == member || llvm::is_contained(member->getOperands(), value);
    });
  });
}

// (C4)
bool isDemanding(const Iteration& it) { return it.wholeRows || it.pairing != Pairing::kNone; }

// A return reads nothing: who reads the value behind it is not known here.
bool isLastReader(Operation* op, Value value) {
  return llvm::none_of(value.getUsers(), [&](Operation* user) {
    return op->isBeforeInBlock(user) && !user->hasTrait<mlir::OpTrait::IsTerminator>();
  });
}

// (C5)
bool canPass(Operation* op, Operation* passed) {
  const auto touches = [&](int32_t place) {
    const auto isThere = [&](Value value) { return dialect::placeOf(value) == place; };
    return llvm::any_of(passed->getOperands(), isThere) ||
           llvm::any_of(passed->getResults(), isThere);
  };
  for (Value value : op->getOperands()) {
    if (value.getDefiningOp() == passed) return false;
    if (llvm::is_contained(passed->getOperands(), value) && isLastReader(op, value)) return false;
  }
  for (Value result : op->getResults())
    if (const auto place = dialect::placeOf(result); place && touches(*place)) return false;
  return true;
}

bool canJoin(const Group& group, Operation* op, const Iteration& it) {
  if (it.space != Space::kTokens || group.iteration.space != Space::kTokens) return false;
  if (!columnsLineUp(group.iteration, it) || !sharesValue(group, op)) return false;  // (C2), (C3)
  if (isDemanding(group.iteration) && isDemanding(it)) return false;                 // (C4)
  for (Operation* passed = group.ops.front(); passed != op; passed = passed->getNextNode())
    if (!group.contains(passed) && !canPass(op, passed)) return false;  // (C5)
  return true;
}

void join(Group& group, Operation* op, const Iteration& it) {
  group.ops.push_back(op);
  group.iteration.width = std::max(group.iteration.width, it.width);
  group.iteration.wholeRows |= it.wholeRows;
  if (it.pairing != Pairing::kNone) group.iteration.pairing = it.pairing;
}

std::vector<Group> groupsOf(mlir::func::FuncOp func, bool fuse) {
  std::vector<Group> groups;
  size_t firstOpen = 0;  // Groups before this one lie behind a library op. (C1)
  for (Operation& op : func.getBody().front().without_terminator()) {
    const Iteration it = iterationOf(&op);
    if (it.space == Space::kLibrary) {
      firstOpen = groups.size();
      continue;
    }
    auto found = groups.end();
    for (auto group = groups.begin() + firstOpen; fuse && group != groups.end(); ++group)
      if (canJoin(*group, &op, it)) found = group;  // The latest one that fits.
    if (found != groups.end())
      join(*found, &op, it);
    else
      groups.push_back({{&op}, it});
  }
  return groups;
}

// Whether the kernel must store `value`: it is read outside, or once more after a row was reduced.
bool mustBeStored(const Group& group, Value value) {
  const auto wholeRows =
      llvm::find_if(group.ops, [](Operation* op) { return iterationOf(op).wholeRows; });
  const auto maker = llvm::find(group.ops, value.getDefiningOp());
  return llvm::any_of(value.getUsers(), [&](Operation* user) {
    const auto reader = llvm::find(group.ops, user);
    return reader == group.ops.end() || (maker < wholeRows && reader >= wholeRows);
  });
}

template <typename Product>
bool isAloneOn(Value value) {
  const mlir::Type type = llvm::cast<mlir::RankedTensorType>(value.getType()).getElementType();
  return value.getDefiningOp<Product>() && value.hasOneUse() &&
         (type.isBF16() || type.isF16() || type.isF32());
}

// (C6)
bool isEpilogue(const Group& group) {
  Operation* first = group.ops.front();
  if (group.ops.size() == 1 && llvm::isa<dialect::GeluGradOp>(first))
    return isAloneOn<dialect::MatmulGradInputOp>(first->getOperand(1));
  if (!llvm::isa<dialect::BiasAddOp>(first) || !isAloneOn<dialect::MatmulOp>(first->getOperand(0)))
    return false;
  if (group.ops.size() == 1) return true;
  return group.ops.size() == 2 && llvm::isa<dialect::GeluOp>(group.ops[1]);
}

class Outliner {
 public:
  explicit Outliner(mlir::ModuleOp module) : module_(module) {}

  void outline(const Group& group) {
    llvm::SetVector<Value> inputs;
    std::vector<Value> outputs;
    for (Operation* op : group.ops) {
      for (Value value : op->getOperands())
        if (!group.contains(value.getDefiningOp())) inputs.insert(value);
      for (Value value : op->getResults())
        if (mustBeStored(group, value)) outputs.push_back(value);
    }
    if (outputs.empty()) return eraseAll(group);  // Nobody reads what it makes.
    const mlir::func::FuncOp kernel = unique(makeKernel(group, inputs.getArrayRef(), outputs));
    mlir::OpBuilder builder(group.ops.front());
    auto call = builder.create<mlir::func::CallOp>(group.ops.front()->getLoc(), kernel,
                                                   inputs.getArrayRef());
    std::vector<int32_t> places;
    for (auto [value, result] : llvm::zip(outputs, call.getResults())) {
      if (const auto place = dialect::placeOf(value)) places.push_back(*place);
      value.replaceAllUsesWith(result);
    }
    if (places.size() == outputs.size())
      call->setAttr(dialect::kPlaces, builder.getDenseI32ArrayAttr(places));
    eraseAll(group);
  }

 private:
  static void eraseAll(const Group& group) {
    for (Operation* op : llvm::reverse(group.ops)) op->erase();
  }

  mlir::func::FuncOp makeKernel(const Group& group, llvm::ArrayRef<Value> inputs,
                                llvm::ArrayRef<Value> outputs) {
    mlir::OpBuilder builder = mlir::OpBuilder::atBlockEnd(module_.getBody());
    const auto typesOf = [](llvm::ArrayRef<Value> values) {
      return llvm::to_vector(llvm::map_range(values, [](Value v) { return v.getType(); }));
    };
    auto kernel = builder.create<mlir::func::FuncOp>(
        builder.getUnknownLoc(), "kernel",
        builder.getFunctionType(typesOf(inputs), typesOf(outputs)));
    kernel->setAttr(dialect::kKernel, builder.getUnitAttr());
    builder.setInsertionPointToEnd(kernel.addEntryBlock());
    mlir::IRMapping mapping;
    mapping.map(inputs, kernel.getArguments());
    std::string name;
    for (Operation* op : group.ops) {
      Operation* clone = builder.clone(*op, mapping);
      clone->removeAttr(dialect::kPlaces);
      clone->setLoc(builder.getUnknownLoc());
      name += (name.empty() ? "" : "_") + op->getName().stripDialect().str();
    }
    std::vector<Value> results;
    for (Value value : outputs) results.push_back(mapping.lookup(value));
    builder.create<mlir::func::ReturnOp>(builder.getUnknownLoc(), results);
    names_[kernel] = name.size() > 60 ? name.substr(0, 60) : name;
    return kernel;
  }

  // `kernel` under a name of its own, or the equal kernel that exists already.
  mlir::func::FuncOp unique(mlir::func::FuncOp kernel) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    kernel->print(stream);
    auto [entry, isNew] = kernels_.try_emplace(text, kernel);
    if (isNew)
      kernel.setName(names_[kernel] + "_" + std::to_string(kernels_.size() - 1));
    else
      kernel.erase();
    return entry->second;
  }

  mlir::ModuleOp module_;
  llvm::StringMap<mlir::func::FuncOp> kernels_;  // By their text.
  llvm::DenseMap<Operation*, std::string> names_;
};

struct Fuse : public impl::FusePassBase<Fuse> {
  using FusePassBase::FusePassBase;

  void runOnOperation() override {
    Outliner outliner(getOperation());
    const auto funcs = llvm::to_vector(getOperation().getOps<mlir::func::FuncOp>());
    for (mlir::func::FuncOp func : funcs)
      if (!func.isExternal() && !func->hasAttr(dialect::kKernel))
        for (const Group& group : groupsOf(func, fuse))
          if (!epilogues || !isEpilogue(group)) outliner.outline(group);
  }
};

}  // namespace
}  // namespace trireme::codegen
