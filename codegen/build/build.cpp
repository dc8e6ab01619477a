#include "codegen/build/build.h"

#include <mlir/Dialect/Func/IR/FuncOps.h>
#include <mlir/IR/Builders.h>

#include "ir/dialect/dialect.h"
#include "ir/graph/semantics.h"

namespace trireme::codegen {
namespace {

using mlir::Value;
using program::Segment;
using program::SegmentOp;

class SegmentBuilder {
 public:
  SegmentBuilder(mlir::OpBuilder& builder, const Segment& segment, size_t index)
      : builder_(builder), segment_(segment), current_(segment.operands.size()) {
    const mlir::Location loc = mlir::NameLoc::get(builder.getStringAttr(segment.name));
    func_ = builder.create<mlir::func::FuncOp>(loc, "segment_" + std::to_string(index),
                                               builder.getFunctionType({}, {}));
    builder_.setInsertionPointToEnd(func_.addEntryBlock());
  }

  void build() {
    for (const SegmentOp& op : segment_.ops) addOp(op);
    addReturn();
  }

 private:
  mlir::RankedTensorType typeOf(int32_t operand) const {
    return dialect::toTensorType(builder_.getContext(), segment_.operands[operand]);
  }

  Value read(int32_t operand) {
    if (current_[operand]) return current_[operand];
    const unsigned index = func_.getNumArguments();
    func_.insertArgument(index, typeOf(operand),
                         builder_.getDictionaryAttr(builder_.getNamedAttr(
                             dialect::kPlace, builder_.getI32IntegerAttr(operand))),
                         func_.getLoc());
    return current_[operand] = func_.getArgument(index);
  }

  void addOp(const SegmentOp& op) {
    std::vector<Value> inputs;
    std::vector<mlir::Type> outputs;
    for (int32_t operand : op.inputs) inputs.push_back(read(operand));
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      if (graph::accumulates(op.kind, static_cast<int>(i))) inputs.push_back(read(op.outputs[i]));
      outputs.push_back(typeOf(op.outputs[i]));
    }
    mlir::Operation* made =
        dialect::createComputeOp(builder_, func_.getLoc(), op.kind, op.attributes, inputs, outputs);
    made->setAttr(dialect::kPlaces, builder_.getDenseI32ArrayAttr(op.outputs));
    for (size_t i = 0; i < op.outputs.size(); ++i) current_[op.outputs[i]] = made->getResult(i);
  }

  void addReturn() {
    std::vector<Value> results;
    for (size_t operand = 0; operand < current_.size(); ++operand) {
      const Value value = current_[operand];
      if (value && value.getDefiningOp() && !segment_.temporary[operand]) results.push_back(value);
    }
    builder_.create<mlir::func::ReturnOp>(func_.getLoc(), results);
    std::vector<mlir::Type> types;
    for (Value value : results) types.push_back(value.getType());
    func_.setFunctionType(builder_.getFunctionType(func_.getArgumentTypes(), types));
  }

  mlir::OpBuilder& builder_;
  const Segment& segment_;
  mlir::func::FuncOp func_;
  std::vector<Value> current_;  // The latest value of each operand.
};

}  // namespace

mlir::OwningOpRef<mlir::ModuleOp> buildModule(mlir::MLIRContext* context,
                                              const std::vector<Segment>& segments) {
  mlir::OpBuilder builder(context);
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(builder.getUnknownLoc());
  for (size_t i = 0; i < segments.size(); ++i) {
    builder.setInsertionPointToEnd(module->getBody());
    SegmentBuilder(builder, segments[i], i).build();
  }
  return module;
}

}  // namespace trireme::codegen
