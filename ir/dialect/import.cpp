#include "ir/dialect/import.h"

#include <fmt/format.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/Support/raw_ostream.h>

#include "ir/graph/block_builder.h"
#include "ir/graph/verify.h"
#include "ir/spec/load.h"

namespace trireme::dialect {
namespace {

using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;
using mlir::Operation;
using mlir::Value;
using spec::Precision;

// What only an accumulating op reads; no tensor of the graph.
constexpr TensorId kOldLoss = -2;

Status broken(const char* rule, const std::string& what) {
  return invalidArgument(fmt::format("({}) {}", rule, what));
}

std::string print(mlir::Type type) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << type;
  return text;
}

// "'trireme.gelu'"
std::string nameOf(Operation* op) {
  return fmt::format("'{}'", op->getName().getStringRef().str());
}

Result<std::vector<graph::Dim>> dimsOf(mlir::Type type) {
  const graph::Labels labels = labelsOf(type);
  if (labels.empty())
    return Error(broken("M4", fmt::format("{} has no labels, as in tensor<8x2xf32, "
                                          "#trireme.dims<sequence, batch>>",
                                          print(type))));
  std::vector<graph::Dim> dims;
  const program::OperandType sizes = fromTensorType(type);
  for (size_t i = 0; i < labels.size(); ++i) dims.push_back({labels[i], sizes.dims[i]});
  return dims;
}

// The precision whose compute type is that of `type`.
Result<Precision> precisionOf(mlir::Type type) {
  const DType dtype = fromTensorType(type).dtype;
  for (const Precision precision :
       {Precision::kFp64, Precision::kFp32, Precision::kBf16, Precision::kFp16})
    if (spec::computeDType(precision) == dtype) return precision;
  return Error(broken("M5", fmt::format("no precision computes in {}; valid: f64, f32, bf16, f16",
                                        dtypeName(dtype))));
}

// That of the residual stream that comes in, or of the parameters.
Result<Precision> precisionOf(BlockOp op) {
  for (mlir::Type type : op.getBody().getArgumentTypes())
    if (fromTensorType(type).dtype != DType::kI32) return precisionOf(type);
  for (ParameterOp parameter : op.getBody().getOps<ParameterOp>())
    return precisionOf(parameter.getType());
  return Error(broken("M4", "the block has neither a residual stream nor parameters"));
}

class BlockImporter {
 public:
  explicit BlockImporter(BlockOp op) : op_(op), builder_(block_) {}

  Result<graph::Block> import() {
    block_.name = op_.getSymName().str();
    TRIREME_RETURN_IF_ERROR(addArguments());
    for (Operation& op : op_.getBody().front().without_terminator())
      TRIREME_RETURN_IF_ERROR(addOp(&op));
    TRIREME_RETURN_IF_ERROR(addYield());
    TRIREME_RETURN_IF_ERROR(graph::verifyBlock(block_));
    return std::move(block_);
  }

 private:
  Status addArguments();
  Status addOp(Operation* op);
  Status addParameter(ParameterOp op);
  Status addComputeOp(Operation* op);
  Status addYield();
  Result<std::vector<std::string>> namesOf(Operation* op) const;
  Status bind(Value value, TensorId tensor);

  BlockOp op_;
  graph::Block block_;
  graph::BlockBuilder builder_;
  Precision precision_ = Precision::kFp32;
  llvm::DenseMap<Value, TensorId> tensors_;
};

// A value is the tensor if it has its type, labels included.
Status BlockImporter::bind(Value value, TensorId tensor) {
  const Tensor& t = builder_.tensor(tensor);
  const mlir::Type type = toTensorType(op_.getContext(), graph::typeOf(t, precision_), labelsOf(t));
  tensors_[value] = tensor;
  if (value.getType() == type) return {};
  return broken("M5", fmt::format("'{}' is {}, expected {} at {}", t.name, print(value.getType()),
                                  print(type), spec::precisionName(precision_)));
}

Status BlockImporter::addArguments() {
  const auto arguments = op_.getBody().getArguments();
  if (arguments.size() != 1 && arguments.size() != 3)
    return broken("M4",
                  fmt::format("the block takes {} tensors, expected 1 (tokens, or the residual "
                              "stream) or 3 (that, labels and the old loss)",
                              arguments.size()));
  TRIREME_ASSIGN_OR_RETURN(precision_, precisionOf(op_));
  TRIREME_ASSIGN_OR_RETURN(const std::vector<graph::Dim> first, dimsOf(arguments[0].getType()));
  const bool isIds = fromTensorType(arguments[0].getType()).dtype == DType::kI32;
  if (arguments.size() == 1)
    return bind(arguments[0], isIds ? builder_.tokens(first) : builder_.input(first));
  TRIREME_RETURN_IF_ERROR(bind(arguments[0], builder_.input(first)));
  TRIREME_ASSIGN_OR_RETURN(const std::vector<graph::Dim> labels, dimsOf(arguments[1].getType()));
  TRIREME_RETURN_IF_ERROR(bind(arguments[1], builder_.labels(labels)));
  tensors_[arguments[2]] = kOldLoss;  // (D2) is its type.
  return {};
}

Result<std::vector<std::string>> BlockImporter::namesOf(Operation* op) const {
  const auto names = op->getAttrOfType<mlir::ArrayAttr>(kNames);
  if (!names) return Error(broken("M4", fmt::format("{} has no trireme.names", nameOf(op))));
  std::vector<std::string> result;
  for (mlir::Attribute name : names) result.push_back(llvm::cast<mlir::StringAttr>(name).str());
  return result;
}

Status BlockImporter::addParameter(ParameterOp op) {
  graph::Parameter p;
  TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> names, namesOf(op));
  TRIREME_ASSIGN_OR_RETURN(p.dims, dimsOf(op.getType()));
  p.name = op.getName().str();
  p.init = static_cast<program::InitKind>(op.getInit());
  if (op.getStd()) p.initStd = op.getStd()->convertToDouble();
  p.decay = op.getDecay();
  p.tied = op.getTied();
  if (op.getLogical())
    p.logicalDims.assign(op.getLogical()->begin(), op.getLogical()->end());
  else
    for (const graph::Dim& dim : p.dims) p.logicalDims.push_back(dim.size);
  return bind(op.getResult(), builder_.parameter(names[0], std::move(p)));
}

Status BlockImporter::addComputeOp(Operation* op) {
  const program::OpKind kind = kindOf(op);
  TRIREME_ASSIGN_OR_RETURN(std::vector<std::string> names, namesOf(op));
  const size_t numInputs = op->getNumOperands() - static_cast<size_t>(numAccumulators(kind));
  std::vector<TensorId> inputs;
  for (size_t i = 0; i < op->getNumOperands(); ++i) {
    const TensorId tensor = tensors_.lookup(op->getOperand(static_cast<unsigned>(i)));
    if ((tensor == kOldLoss) != (i >= numInputs))
      return broken("M4", fmt::format("operand {} of {} is {}the old loss", i, nameOf(op),
                                      tensor == kOldLoss ? "" : "not "));
    if (i < numInputs) inputs.push_back(tensor);
  }
  const auto outputs = builder_.op(kind, attributesOf(op), std::move(inputs), std::move(names));
  if (!outputs) return broken("M4", outputs.error().message());
  for (size_t i = 0; i < outputs->size(); ++i)
    TRIREME_RETURN_IF_ERROR(bind(op->getResult(static_cast<unsigned>(i)), (*outputs)[i]));
  return {};
}

Status BlockImporter::addOp(Operation* op) {
  if (auto parameter = llvm::dyn_cast<ParameterOp>(op)) return addParameter(parameter);
  if (isComputeOp(op)) return addComputeOp(op);
  return broken("M4",
                fmt::format("{} is in a block, expected parameters and forward ops", nameOf(op)));
}

Status BlockImporter::addYield() {
  auto yield = llvm::dyn_cast<YieldOp>(op_.getBody().front().getTerminator());
  if (!yield) return broken("M4", "the block does not end in trireme.yield");
  const TensorId result = tensors_.lookup(yield.getValue());
  const bool hasLoss = op_.getBody().getNumArguments() == 3;
  if (hasLoss != (result >= 0 && builder_.tensor(result).kind == TensorKind::kLoss))
    return broken("M4", hasLoss ? "the block takes the old loss, so it must yield the new one"
                                : "the block takes no loss, so it must yield the residual stream");
  if (!hasLoss) block_.output = result;
  return {};
}

// The calls of a body, which must be %e = @a(tokens), %l = @b(%e), %h = @c(%l, labels, loss).
struct Body {
  CallOp embedding, head;
  RepeatOp layer;
};

Result<Body> bodyOf(ModelOp op) {
  const auto broken = [] {
    return Error(dialect::broken(
        "M6",
        "the body must be: a call with the tokens, its result repeated, a call with that, labels "
        "and the old loss, and trireme.yield of its result"));
  };
  mlir::Block& block = op.getBody().front();
  std::vector<Operation*> ops;
  for (Operation& inner : block)
    if (!llvm::isa<BlockOp>(inner)) ops.push_back(&inner);
  if (ops.size() != 4 || block.getNumArguments() != 3) return broken();
  const Body body = {llvm::dyn_cast<CallOp>(ops[0]), llvm::dyn_cast<CallOp>(ops[2]),
                     llvm::dyn_cast<RepeatOp>(ops[1])};
  auto yield = llvm::dyn_cast<YieldOp>(ops[3]);
  if (!body.embedding || !body.layer || !body.head || !yield) return broken();
  CallOp embedding = body.embedding, head = body.head;
  RepeatOp layer = body.layer;
  const bool isChain =
      llvm::equal(embedding.getInputs(), llvm::ArrayRef<Value>{block.getArgument(0)}) &&
      layer.getInput() == embedding.getResult() &&
      llvm::equal(head.getInputs(), llvm::ArrayRef<Value>{layer.getResult(), block.getArgument(1),
                                                          block.getArgument(2)}) &&
      yield.getValue() == head.getResult();
  if (!isChain) return broken();
  return body;
}

}  // namespace

Result<graph::Block> importBlock(BlockOp op) { return BlockImporter(op).import(); }

Result<graph::ModelGraph> importModel(ModelOp op) {
  TRIREME_ASSIGN_OR_RETURN(Body body, bodyOf(op));
  graph::ModelGraph graph;
  graph.name = op.getName().str();
  graph.globalBatchSize = static_cast<int64_t>(op.getBatch());
  graph.numLayers = static_cast<int64_t>(body.layer.getCount());
  const auto numBlocks = std::distance(op.getOps<BlockOp>().begin(), op.getOps<BlockOp>().end());
  if (numBlocks != 3)
    return Error(
        broken("M6", fmt::format("{} blocks, expected one for each of the 3 calls", numBlocks)));
  const auto import = [&](mlir::FlatSymbolRefAttr callee) -> Result<graph::Block> {
    BlockOp block = op.lookupSymbol<BlockOp>(callee);
    if (!block) return Error(broken("M1", callee.getValue().str() + " is no block"));
    TRIREME_ASSIGN_OR_RETURN(const Precision precision, precisionOf(block));
    if (callee != body.embedding.getCalleeAttr() && precision != graph.precision)
      return Error(broken(
          "M5", fmt::format("block @{} is in {}, those before it in {}", callee.getValue().str(),
                            spec::precisionName(precision), spec::precisionName(graph.precision))));
    graph.precision = precision;
    return importBlock(block);
  };
  TRIREME_ASSIGN_OR_RETURN(graph.embedding, import(body.embedding.getCalleeAttr()));
  TRIREME_ASSIGN_OR_RETURN(graph.layer, import(body.layer.getCalleeAttr()));
  TRIREME_ASSIGN_OR_RETURN(graph.head, import(body.head.getCalleeAttr()));
  TRIREME_RETURN_IF_ERROR(graph::verifyForward(graph));
  return graph;
}

}  // namespace trireme::dialect
