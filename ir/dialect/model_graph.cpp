#include "ir/dialect/model_graph.h"

#include <llvm/Support/raw_ostream.h>
#include <mlir/IR/Builders.h>
#include <mlir/IR/BuiltinOps.h>
#include <mlir/IR/Diagnostics.h>
#include <mlir/IR/OwningOpRef.h>
#include <mlir/Parser/Parser.h>

#include "ir/dialect/dialect.h"
#include "ir/dialect/import.h"
#include "ir/graph/semantics.h"
#include "ir/graph/verify.h"

namespace trireme::dialect {
namespace {

using graph::Block;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;
using mlir::Value;

// Writes one graph into a module.
class Exporter {
 public:
  Exporter(mlir::OpBuilder& builder, const graph::ModelGraph& graph)
      : builder_(builder), graph_(graph), loc_(builder.getUnknownLoc()) {}

  void addModel();

 private:
  mlir::Type typeOf(const Tensor& tensor) const {
    return toTensorType(builder_.getContext(), graph::typeOf(tensor, graph_.precision),
                        graph::labelsOf(tensor));
  }
  mlir::Block& addBody(mlir::Region& region, const std::vector<mlir::Type>& arguments);
  BlockOp addBlock(const Block& block);
  void addParameter(const Block& block, TensorId id);
  void addOp(const Block& block, const graph::Op& op);
  void nameResults(mlir::Operation* made, const std::vector<llvm::StringRef>& names) {
    made->setAttr(kNames, builder_.getStrArrayAttr(names));
  }

  mlir::OpBuilder& builder_;
  const graph::ModelGraph& graph_;
  mlir::Location loc_;
  std::vector<Value> values_;  // of the current block's tensors
  Value oldLoss_;
};

const Tensor& tensorOf(const Block& block, TensorId id) {
  return block.tensors[static_cast<size_t>(id)];
}

// The tensor of a kind that a block has one of; -1: it has none.
TensorId find(const Block& block, TensorKind kind) {
  for (size_t t = 0; t < block.tensors.size(); ++t)
    if (block.tensors[t].kind == kind) return static_cast<TensorId>(t);
  return -1;
}

mlir::Block& Exporter::addBody(mlir::Region& region, const std::vector<mlir::Type>& arguments) {
  mlir::Block& body = region.emplaceBlock();
  for (mlir::Type type : arguments) body.addArgument(type, loc_);
  builder_.setInsertionPointToEnd(&body);
  return body;
}

void Exporter::addParameter(const Block& block, TensorId id) {
  const Tensor& tensor = tensorOf(block, id);
  const graph::Parameter& p = block.parameters[static_cast<size_t>(tensor.parameter)];
  const bool isPadded = p.logicalDims != graph::typeOf(tensor, graph_.precision).dims;
  auto made = builder_.create<ParameterOp>(
      loc_, typeOf(tensor), builder_.getStringAttr(p.name),
      InitNameAttr::get(builder_.getContext(), static_cast<InitName>(p.init)),
      p.init == program::InitKind::kNormal ? builder_.getF64FloatAttr(p.initStd) : nullptr,
      p.decay ? builder_.getUnitAttr() : nullptr, p.tied ? builder_.getUnitAttr() : nullptr,
      isPadded ? builder_.getDenseI64ArrayAttr(p.logicalDims) : nullptr);
  nameResults(made, {tensor.name});
  values_[static_cast<size_t>(id)] = made.getResult();
}

void Exporter::addOp(const Block& block, const graph::Op& op) {
  std::vector<Value> inputs;
  std::vector<mlir::Type> outputs;
  std::vector<llvm::StringRef> names;
  for (const TensorId id : op.inputs) inputs.push_back(values_[static_cast<size_t>(id)]);
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    if (graph::accumulates(op.kind, static_cast<int>(i))) inputs.push_back(oldLoss_);
    outputs.push_back(typeOf(tensorOf(block, op.outputs[i])));
    names.push_back(tensorOf(block, op.outputs[i]).name);
  }
  mlir::Operation* made = createComputeOp(builder_, loc_, op.kind, op.attributes, inputs, outputs);
  nameResults(made, names);
  for (size_t i = 0; i < op.outputs.size(); ++i)
    values_[static_cast<size_t>(op.outputs[i])] = made->getResult(static_cast<unsigned>(i));
}

// Parameters and ops in the order of their tensors.
BlockOp Exporter::addBlock(const Block& block) {
  const mlir::OpBuilder::InsertionGuard guard(builder_);
  auto made = builder_.create<BlockOp>(loc_, block.name);
  std::vector<TensorId> arguments;
  for (const TensorId id :
       {block.input, find(block, TensorKind::kTokens), find(block, TensorKind::kLabels)})
    if (id >= 0) arguments.push_back(id);
  std::vector<mlir::Type> types;
  for (const TensorId id : arguments) types.push_back(typeOf(tensorOf(block, id)));
  const TensorId loss = find(block, TensorKind::kLoss);
  if (loss >= 0) types.push_back(typeOf(tensorOf(block, loss)));
  mlir::Block& body = addBody(made.getBody(), types);
  values_.assign(block.tensors.size(), nullptr);
  for (size_t i = 0; i < arguments.size(); ++i)
    values_[static_cast<size_t>(arguments[i])] = body.getArgument(static_cast<unsigned>(i));
  if (loss >= 0) oldLoss_ = body.getArguments().back();

  TensorId next = 0;
  const auto addParametersBefore = [&](TensorId end) {
    for (; next < end; ++next)
      if (tensorOf(block, next).kind == TensorKind::kParameter) addParameter(block, next);
  };
  for (const graph::Op& op : block.forward) {
    addParametersBefore(op.outputs[0]);
    addOp(block, op);
  }
  builder_.create<YieldOp>(loc_, values_[static_cast<size_t>(loss >= 0 ? loss : block.output)]);
  return made;
}

void Exporter::addModel() {
  auto model =
      builder_.create<ModelOp>(loc_, graph_.name, static_cast<uint64_t>(graph_.globalBatchSize));
  const Block &embedding = graph_.embedding, &head = graph_.head;
  const mlir::Type tokens = typeOf(tensorOf(embedding, find(embedding, TensorKind::kTokens)));
  const mlir::Type labels = typeOf(tensorOf(head, find(head, TensorKind::kLabels)));
  const mlir::Type loss = typeOf(tensorOf(head, find(head, TensorKind::kLoss)));
  const mlir::Type stream = typeOf(tensorOf(graph_.layer, graph_.layer.input));
  mlir::Block& body = addBody(model.getBody(), {tokens, labels, loss});
  for (const Block* block : {&graph_.embedding, &graph_.layer, &graph_.head}) addBlock(*block);

  const auto call = [&](const Block& block, mlir::Type type, mlir::ValueRange inputs) -> Value {
    return builder_.create<CallOp>(loc_, type, block.name, inputs);
  };
  Value x = call(embedding, stream, {body.getArgument(0)});
  x = builder_.create<RepeatOp>(loc_, stream, static_cast<uint64_t>(graph_.numLayers),
                                graph_.layer.name, x);
  x = call(head, loss, {x, body.getArgument(1), body.getArgument(2)});
  builder_.create<YieldOp>(loc_, x);
}

}  // namespace

std::string printModelGraph(const graph::ModelGraph& graph) {
  TRIREME_CHECK(graph::verifyForward(graph).ok());
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<TriremeDialect>();
  mlir::OpBuilder builder(&context);
  const mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(builder.getUnknownLoc());
  builder.setInsertionPointToEnd((*module).getBody());
  Exporter(builder, graph).addModel();
  std::string text;
  llvm::raw_string_ostream stream(text);
  (*module)->print(stream);
  return text;
}

Result<graph::ModelGraph> parseModelGraph(const std::string& text, const std::string& name) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<TriremeDialect>();
  context.printOpOnDiagnostic(false);
  std::string errors;
  const mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic& diagnostic) {
    if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error) return;
    llvm::raw_string_ostream stream(errors);
    stream << (errors.empty() ? "" : "; ");
    if (const auto at = llvm::dyn_cast<mlir::FileLineColLoc>(diagnostic.getLocation()))
      stream << at.getFilename().getValue() << ":" << at.getLine() << ":" << at.getColumn() << ": ";
    stream << diagnostic;
  });
  const auto module =
      mlir::parseSourceString<mlir::ModuleOp>(text, mlir::ParserConfig(&context), name);
  if (!module) return Error(invalidArgument(errors.empty() ? name + ": no module" : errors));
  auto& ops = (*module).getBody()->getOperations();
  auto model = ops.empty() ? ModelOp() : llvm::dyn_cast<ModelOp>(ops.front());
  if (!model || ops.size() != 1)
    return Error(invalidArgument(name + ":1:1: expected one trireme.model and nothing else"));
  auto graph = importModel(model);
  TRIREME_CHECK(graph.has_value());  // The model is verified.
  graph::deriveBackward(*graph);
  return graph;
}

}  // namespace trireme::dialect
