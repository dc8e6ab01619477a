#include "ir/dialect/dialect.h"

#include <llvm/ADT/TypeSwitch.h>
#include <mlir/IR/Builders.h>
#include <mlir/IR/BuiltinOps.h>
#include <mlir/IR/DialectImplementation.h>
#include <mlir/Interfaces/FunctionInterfaces.h>

#include "ir/dialect/assembly.h"
#include "ir/dialect/trireme_dialect.cpp.inc"
#include "ir/dialect/trireme_enums.cpp.inc"
#include "ir/graph/semantics.h"

#define GET_ATTRDEF_CLASSES
#include "ir/dialect/trireme_attrs.cpp.inc"

#define GET_OP_CLASSES
#include "ir/dialect/trireme_ops.cpp.inc"

namespace trireme::dialect {

using mlir::Attribute;
using mlir::Operation;
using mlir::StringRef;
using program::OpAttributes;
using program::OperandType;
using program::OpKind;

void TriremeDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "ir/dialect/trireme_ops.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ir/dialect/trireme_attrs.cpp.inc"
      >();
  addInterfaces<AliasInterface>();
}

mlir::LogicalResult TriremeDialect::verifyOperationAttribute(Operation* op,
                                                             mlir::NamedAttribute attribute) {
  if (attribute.getName() == kNames) {
    const auto names = llvm::dyn_cast<mlir::ArrayAttr>(attribute.getValue());
    if (!names || names.size() != op->getNumResults() ||  // (D4)
        !llvm::all_of(names, [](Attribute name) { return llvm::isa<mlir::StringAttr>(name); }))
      return op->emitOpError("(D4) trireme.names must have one name per result");
    return mlir::success();
  }
  if (attribute.getName() != kPlaces) return mlir::success();
  const auto places = llvm::dyn_cast<mlir::DenseI32ArrayAttr>(attribute.getValue());
  if (!places || places.size() != op->getNumResults() ||  // (D3)
      llvm::any_of(places.asArrayRef(), [](int32_t place) { return place < 0; }))
    return op->emitOpError("(D3) trireme.places must have one entry per result, each at least 0");
  return mlir::success();
}

namespace {

// The state type of an op is that of its statistics or of what it accumulates.
DType stateTypeOf(OpKind kind, Operation* op) {
  switch (kind) {
    case OpKind::kTokenLoss:
      return fromTensorType(op->getOperand(0).getType()).dtype;
    case OpKind::kLossGrad:
      return fromTensorType(op->getOperand(1).getType()).dtype;
    case OpKind::kAttentionGrad:
      return fromTensorType(op->getOperand(2).getType()).dtype;
    default:
      return fromTensorType(op->getResults().back().getType()).dtype;
  }
}

// Calls `visit` with the name of each attribute and the field that it stands for.
template <typename Attributes, typename Visitor>
void visitFields(Attributes& a, Visitor visit) {
  visit("epsilon", a.epsilon);
  visit("probability", a.probability);
  visit("stream", a.stream);
  visit("head_size", a.headSize);
  visit("heads_per_group", a.headsPerGroup);
  visit("rope_theta", a.ropeTheta);
  visit("rope_scaling", a.ropeScaling);
  visit("logical_vocab", a.logicalVocab);
  visit("scale", a.scale);
  visit("sequence_sharded", a.sequenceSharded);
  visit("width_sharded", a.widthSharded);
  visit("tf32", a.tf32);
}

RopeScaling fromAttribute(RopeScalingAttr attribute) {
  const auto number = [](mlir::FloatAttr value) { return value ? value.getValueAsDouble() : 0; };
  return {static_cast<RopeScalingKind>(attribute.getKind()), number(attribute.getFactor()),
          number(attribute.getLowFreqFactor()), number(attribute.getHighFreqFactor()),
          attribute.getOriginalMaxPositionEmbeddings()};
}

struct ToAttribute {
  mlir::Builder& builder;
  Attribute operator()(double value) const { return builder.getF64FloatAttr(value); }
  Attribute operator()(int64_t value) const { return builder.getI64IntegerAttr(value); }
  Attribute operator()(bool value) const { return value ? builder.getUnitAttr() : nullptr; }
  Attribute operator()(RngStream value) const {
    return StreamNameAttr::get(builder.getContext(), static_cast<StreamName>(value));
  }
  Attribute operator()(const RopeScaling& value) const {
    if (value.kind == RopeScalingKind::kNone) return nullptr;
    const bool isLlama3 = value.kind == RopeScalingKind::kLlama3;
    const auto number = [&](double x) { return builder.getF64FloatAttr(x); };
    return RopeScalingAttr::get(
        builder.getContext(), static_cast<RopeScalingName>(value.kind), number(value.factor),
        isLlama3 ? number(value.lowFreqFactor) : mlir::FloatAttr(),
        isLlama3 ? number(value.highFreqFactor) : mlir::FloatAttr(), value.originalSequence);
  }
};

struct FromAttribute {
  Attribute attribute;
  void operator()(double& field) const {
    field = llvm::cast<mlir::FloatAttr>(attribute).getValueAsDouble();
  }
  void operator()(int64_t& field) const {
    field = llvm::cast<mlir::IntegerAttr>(attribute).getInt();
  }
  void operator()(bool& field) const { field = true; }
  void operator()(RngStream& field) const {
    field = static_cast<RngStream>(llvm::cast<StreamNameAttr>(attribute).getValue());
  }
  void operator()(RopeScaling& field) const {
    field = fromAttribute(llvm::cast<RopeScalingAttr>(attribute));
  }
};

}  // namespace

mlir::LogicalResult RopeScalingAttr::verify(
    llvm::function_ref<mlir::InFlightDiagnostic()> emitError, RopeScalingName kind,
    mlir::FloatAttr factor, mlir::FloatAttr low, mlir::FloatAttr high, int64_t original) {
  for (const mlir::FloatAttr number : {factor, low, high})
    if (number && !number.getType().isF64()) return emitError() << "factors must be f64";
  const auto value = [](mlir::FloatAttr number) { return number ? number.getValueAsDouble() : 0; };
  const auto problem = findProblem(RopeScaling{static_cast<RopeScalingKind>(kind), value(factor),
                                               value(low), value(high), original});
  if (problem) return emitError() << llvm::StringRef(problem->key) << " " << problem->message;
  return mlir::success();
}

OpKind kindOf(Operation* op) {
  const std::optional<OpKind> kind = program::parseOpKind(op->getName().stripDialect());
  TRIREME_CHECK(kind.has_value());
  return *kind;
}

OpAttributes attributesOf(Operation* op) {
  OpAttributes attributes;
  visitFields(attributes, [&](StringRef name, auto& field) {
    if (Attribute attribute = op->getAttr(name)) FromAttribute{attribute}(field);
  });
  return attributes;
}

int numOutputs(OpKind kind) {
  switch (kind) {
    case OpKind::kLayerNorm:
    case OpKind::kLayerNormGrad:
      return 3;
    case OpKind::kRmsNorm:
    case OpKind::kRmsNormGrad:
    case OpKind::kAttention:
      return 2;
    default:
      return 1;
  }
}

int numAccumulators(OpKind kind) {
  int count = 0;
  for (int i = 0; i < numOutputs(kind); ++i) count += graph::accumulates(kind, i);
  return count;
}

Operation* createComputeOp(mlir::OpBuilder& builder, mlir::Location loc, OpKind kind,
                           const OpAttributes& attributes, mlir::ValueRange inputs,
                           mlir::TypeRange outputs) {
  const std::string_view mnemonic = program::opName(kind);
  mlir::OperationState state(loc, ("trireme." + StringRef(mnemonic.data(), mnemonic.size())).str());
  state.addOperands(inputs);
  state.addTypes(outputs);
  const auto names = state.name.getAttributeNames();
  visitFields(attributes, [&](StringRef name, const auto& field) {
    if (!llvm::any_of(names, [&](mlir::StringAttr known) { return known.getValue() == name; }))
      return;
    if (Attribute attribute = ToAttribute{builder}(field)) state.addAttribute(name, attribute);
  });
  return builder.create(state);
}

std::optional<int32_t> placeOf(mlir::Value value) {
  if (auto argument = llvm::dyn_cast<mlir::BlockArgument>(value)) {
    auto func = llvm::cast<mlir::FunctionOpInterface>(argument.getOwner()->getParentOp());
    auto place = func.getArgAttrOfType<mlir::IntegerAttr>(argument.getArgNumber(), kPlace);
    return place ? std::optional<int32_t>(place.getInt()) : std::nullopt;
  }
  auto result = llvm::cast<mlir::OpResult>(value);
  auto places = result.getOwner()->getAttrOfType<mlir::DenseI32ArrayAttr>(kPlaces);
  return places ? std::optional<int32_t>(places[result.getResultNumber()]) : std::nullopt;
}

mlir::RankedTensorType toTensorType(mlir::MLIRContext* context, const OperandType& type,
                                    const graph::Labels& labels) {
  mlir::Builder builder(context);
  const auto element = [&]() -> mlir::Type {
    switch (type.dtype) {
      case DType::kF64:
        return builder.getF64Type();
      case DType::kF32:
        return builder.getF32Type();
      case DType::kBf16:
        return builder.getBF16Type();
      case DType::kF16:
        return builder.getF16Type();
      case DType::kI32:
        return builder.getI32Type();
    }
    return {};
  };
  return mlir::RankedTensorType::get(type.dims, element(),
                                     labels.empty() ? Attribute() : DimsAttr::get(context, labels));
}

graph::Labels labelsOf(mlir::Type type) {
  const auto dims =
      llvm::dyn_cast_or_null<DimsAttr>(llvm::cast<mlir::RankedTensorType>(type).getEncoding());
  return dims ? dims.getLabels().vec() : graph::Labels();
}

OperandType fromTensorType(mlir::Type type) {
  const auto tensor = llvm::cast<mlir::RankedTensorType>(type);
  const mlir::Type element = tensor.getElementType();
  const DType dtype = element.isF64()    ? DType::kF64
                      : element.isF32()  ? DType::kF32
                      : element.isBF16() ? DType::kBf16
                      : element.isF16()  ? DType::kF16
                                         : DType::kI32;
  return {dtype, std::vector<int64_t>(tensor.getShape().begin(), tensor.getShape().end())};
}

namespace {

// The labels of an op's results; empty ones if its operands have none.
Result<std::vector<graph::Labels>> labelsOfResults(Operation* op, size_t numInputs) {
  std::vector<graph::Labels> labels;
  bool labelled = false;
  for (size_t i = 0; i < numInputs; ++i) {
    labels.push_back(labelsOf(op->getOperand(i).getType()));
    labelled = labelled || !labels.back().empty();
  }
  if (labelled) return graph::inferLabels(kindOf(op), labels);
  return std::vector<graph::Labels>(op->getNumResults());
}

}  // namespace

mlir::LogicalResult verifyComputeOp(Operation* op) {
  const OpKind kind = kindOf(op);
  const size_t numOld = static_cast<size_t>(numAccumulators(kind));
  const size_t numInputs = op->getNumOperands() - numOld;
  std::vector<OperandType> inputs;
  for (size_t i = 0; i < numInputs; ++i)
    inputs.push_back(fromTensorType(op->getOperand(i).getType()));
  const OperandType last = fromTensorType(op->getResults().back().getType());
  const auto expected = graph::inferOutputs(kind, attributesOf(op), inputs, stateTypeOf(kind, op),
                                            last.dims.empty() ? 0 : last.dims[0]);
  if (!expected) return op->emitOpError("(D1) ") << expected.error().message();
  const auto labels = labelsOfResults(op, numInputs);
  if (!labels) return op->emitOpError("(D1) ") << labels.error().message();

  size_t old = numInputs;
  for (size_t i = 0; i < op->getNumResults(); ++i) {
    const mlir::Type type = toTensorType(op->getContext(), (*expected)[i], (*labels)[i]);
    if (op->getResult(i).getType() != type)  // (D1)
      return op->emitOpError("(D1) result ") << i << " must be " << type;
    if (!graph::accumulates(kind, static_cast<int>(i))) continue;
    if (op->getOperand(old++).getType() != type)  // (D2)
      return op->emitOpError("(D2) the old value of result ") << i << " must be " << type;
  }
  return mlir::success();
}

}  // namespace trireme::dialect
