#include "ir/graph/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ir/graph/semantics.h"

namespace trireme::graph {
namespace {

using program::InitKind;

Status broken(const char* rule, const std::string& what) {
  return invalidArgument(fmt::format("({}) {}", rule, what));
}

Status verifyOp(const Op& op) {
  const OpAttributes& a = op.attributes;
  const auto isFiniteNotNegative = [](double value) { return value >= 0 && std::isfinite(value); };
  const bool isRotary = op.kind == OpKind::kRotary;
  if (!isFiniteNotNegative(a.epsilon) || !(a.probability >= 0 && a.probability < 1) ||
      !isFiniteNotNegative(a.ropeTheta) || (isRotary && a.ropeTheta == 0))
    return broken("G1",
                  fmt::format("{}: epsilon {}, probability {} or rotary base {} is out of range",
                              program::opName(op.kind), a.epsilon, a.probability, a.ropeTheta));
  if (const auto problem = findProblem(a.ropeScaling))
    return broken("G1", fmt::format("{}: rope_scaling: {} {}", program::opName(op.kind),
                                    problem->key, problem->message));
  if (!isRotary && a.ropeScaling != RopeScaling{})
    return broken("G1", fmt::format("{} has rope_scaling", program::opName(op.kind)));
  if (a.sequenceSharded || a.widthSharded || a.scale != 0)
    return broken("G1", fmt::format("{} is sharded or scaled, which a plan decides",
                                    program::opName(op.kind)));
  return {};
}

size_t countLayerMarks(const std::string& name) {
  size_t count = 0;
  for (size_t at = name.find("{}"); at != std::string::npos; at = name.find("{}", at + 2)) ++count;
  return count;
}

// A layer has an input and an output: of the residual stream, which makes it repeatable.
bool isLayer(const Block& block) { return block.input >= 0 && block.output >= 0; }

Status verifyNames(const Block& block) {
  const size_t numMarks = isLayer(block) ? 1 : 0;
  for (auto p = block.parameters.begin(); p != block.parameters.end(); ++p) {
    const auto same = [&](const Parameter& other) { return other.name == p->name; };
    if (p->name.empty()) return broken("G2", "a parameter has no name");
    if (std::any_of(block.parameters.begin(), p, same))
      return broken("G2", fmt::format("two parameters are called '{}'", p->name));
    if (countLayerMarks(p->name) != numMarks)
      return broken("G2", fmt::format("parameter '{}' is in {}, so its name must have {}", p->name,
                                      numMarks == 1 ? "a layer" : "no layer",
                                      numMarks == 1 ? "one '{}' for the layer" : "no '{}'"));
  }
  return {};
}

Status verifyParameter(const Parameter& p) {
  if (p.logicalDims.size() != p.dims.size())
    return broken("G3", fmt::format("parameter '{}' has {} logical dims, expected {}", p.name,
                                    p.logicalDims.size(), p.dims.size()));
  for (size_t i = 0; i < p.dims.size(); ++i)
    if (p.logicalDims[i] < 1 || p.logicalDims[i] > p.dims[i].size)
      return broken("G3", fmt::format("parameter '{}' has the logical size {} in dim {}, expected "
                                      "1 to {}",
                                      p.name, p.logicalDims[i], i, p.dims[i].size));
  if (p.init == InitKind::kNormal ? !(p.initStd >= 0) || std::isinf(p.initStd) : p.initStd != 0)
    return broken(
        "G3",
        fmt::format("parameter '{}' has the standard deviation {}, expected {}", p.name, p.initStd,
                    p.init == InitKind::kNormal ? "a finite one, at least 0" : "none"));
  return {};
}

Status verifyUses(const Block& block) {
  std::vector<int> numReaders(block.tensors.size(), 0);
  std::vector<bool> needsReader(block.tensors.size(), false);
  for (const Op& op : block.forward) {
    for (const TensorId id : op.inputs) ++numReaders[static_cast<size_t>(id)];
    needsReader[static_cast<size_t>(op.outputs[0])] = op.kind != OpKind::kTokenLoss;
  }
  if (block.input >= 0) needsReader[static_cast<size_t>(block.input)] = true;
  if (block.output >= 0) ++numReaders[static_cast<size_t>(block.output)];
  for (size_t t = 0; t < block.tensors.size(); ++t) {
    const Tensor& tensor = block.tensors[t];
    if (tensor.kind == TensorKind::kParameter && numReaders[t] != 1)
      return broken("G4", fmt::format("parameter '{}' is read {} times, expected once", tensor.name,
                                      numReaders[t]));
    if (needsReader[t] && numReaders[t] == 0)
      return broken("G4", fmt::format("nothing reads '{}'", tensor.name));
  }
  return {};
}

bool isLossOp(OpKind kind) { return kind >= OpKind::kLossMax && kind <= OpKind::kTokenLoss; }

// The only loss op of `kind`; nullptr if there is none, or there are several.
const Op* onlyOp(const Block& block, OpKind kind) {
  const auto is = [&](const Op& op) { return op.kind == kind; };
  const auto found = std::find_if(block.forward.begin(), block.forward.end(), is);
  if (found == block.forward.end() || std::any_of(found + 1, block.forward.end(), is))
    return nullptr;
  return &*found;
}

Status verifyLoss(const Block& block) {
  if (block.output >= 0) {
    const Tensor& output = block.tensors[static_cast<size_t>(block.output)];
    if (output.kind != TensorKind::kActivation || output.element != Element::kCompute)
      return broken("G5",
                    fmt::format("the block ends in '{}', which is no activation", output.name));
    for (const Op& op : block.forward)
      if (isLossOp(op.kind))
        return broken(
            "G5", fmt::format("{} in a block that has another output", program::opName(op.kind)));
    return {};
  }
  const Op* max = onlyOp(block, OpKind::kLossMax);
  const Op* target = onlyOp(block, OpKind::kLossTarget);
  const Op* sum = onlyOp(block, OpKind::kLossSumExp);
  const Op* loss = onlyOp(block, OpKind::kTokenLoss);
  if (!max || !target || !sum || !loss)
    return broken("G5",
                  "a block without output has one each of loss_max, loss_target, "
                  "loss_sum_exp and token_loss");
  const std::vector<TensorId> logitsAndMax = {max->inputs[0], max->outputs[0]};
  const bool agree = loss->inputs == std::vector<TensorId>{target->outputs[0], sum->outputs[0]} &&
                     sum->inputs == logitsAndMax && target->inputs[0] == logitsAndMax[0] &&
                     target->inputs[1] == logitsAndMax[1];
  if (!agree)
    return broken("G5",
                  "token_loss must read loss_target and loss_sum_exp, and both the same "
                  "logits and their loss_max");
  const auto& logits = block.tensors[static_cast<size_t>(logitsAndMax[0])];
  for (const Op* op : {max, target, sum})
    if (op->attributes != max->attributes || op->attributes.logicalVocab < 1 ||
        op->attributes.logicalVocab > logits.dims.back().size)
      return broken("G5",
                    fmt::format("{}: logical vocabulary {}, expected the same in all loss ops, "
                                "1 to {}",
                                program::opName(op->kind), op->attributes.logicalVocab,
                                logits.dims.back().size));
  return {};
}

const std::vector<Dim>* dimsOf(const Block& block, TensorId id) {
  return id < 0 ? nullptr : &block.tensors[static_cast<size_t>(id)].dims;
}

const std::vector<Dim>* dataOf(const Block& block, TensorKind kind) {
  for (const Tensor& tensor : block.tensors)
    if (tensor.kind == kind) return &tensor.dims;
  return nullptr;
}

std::string printDims(const std::vector<Dim>* dims) {
  if (!dims) return "nothing";
  std::vector<std::string> parts;
  for (const Dim& dim : *dims)
    parts.push_back(fmt::format("{} {}", labelName(dim.label), dim.size));
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return "[" + text + "]";
}

Status verifyStream(const ModelGraph& graph) {
  if (graph.numLayers < 1 || graph.globalBatchSize < 1)
    return broken("G6", fmt::format("{} layers and a global batch of {}, expected at least 1 each",
                                    graph.numLayers, graph.globalBatchSize));
  const std::vector<Dim>* stream = dimsOf(graph.layer, graph.layer.input);
  const Labels expected = {Label::kSequence, Label::kBatch, Label::kHidden};
  if (!stream || labelsOf(graph.layer.tensors[static_cast<size_t>(graph.layer.input)]) != expected)
    return broken("G6", fmt::format("the layer takes {}, expected a residual stream {}",
                                    printDims(stream), printLabels(expected)));
  const std::vector<Dim> ids(stream->begin(), stream->begin() + 2);
  struct End {
    const char* what;
    const std::vector<Dim>* dims;
    const std::vector<Dim>* expected;
  };
  const Block &embedding = graph.embedding, &head = graph.head;
  for (const End& end :
       {End{"the embedding takes tokens", dataOf(embedding, TensorKind::kTokens), &ids},
        End{"the embedding makes", dimsOf(embedding, embedding.output), stream},
        End{"the layer makes", dimsOf(graph.layer, graph.layer.output), stream},
        End{"the head takes", dimsOf(head, head.input), stream},
        End{"the head takes labels", dataOf(head, TensorKind::kLabels), &ids}})
    if (!end.dims || *end.dims != *end.expected)
      return broken("G6", fmt::format("{} {}, expected {}", end.what, printDims(end.dims),
                                      printDims(end.expected)));
  if (embedding.input >= 0 || head.output >= 0)
    return broken("G6", "the embedding has no input, and the head no output, but the loss");
  return {};
}

Status verifyTied(const ModelGraph& graph) {
  std::map<std::string, const Parameter*> tables;
  for (const Parameter& p : graph.embedding.parameters) tables[p.name] = &p;
  for (const Parameter& p : graph.layer.parameters)
    if (p.tied) return broken("G7", fmt::format("parameter '{}' of a layer is tied", p.name));
  size_t numTied = 0;
  for (const Parameter& p : graph.head.parameters) {
    const auto table = tables.find(p.name);
    if (p.tied && table == tables.end())
      return broken("G7", fmt::format("the embedding has no '{}' to tie the head's to", p.name));
    if (table == tables.end()) continue;
    if (!p.tied || p != *table->second)
      return broken("G7",
                    fmt::format("parameter '{}' is in embedding and head, but not tied, or not "
                                "the same",
                                p.name));
    ++numTied;
  }
  for (const Parameter& p : graph.embedding.parameters) numTied -= p.tied ? 1 : 0;
  if (numTied != 0) return broken("G7", "a tied parameter of the embedding is not in the head");
  return {};
}

}  // namespace

Status verifyBlock(const Block& block) {
  for (const Op& op : block.forward) TRIREME_RETURN_IF_ERROR(verifyOp(op));
  TRIREME_RETURN_IF_ERROR(verifyNames(block));
  for (const Parameter& p : block.parameters) TRIREME_RETURN_IF_ERROR(verifyParameter(p));
  TRIREME_RETURN_IF_ERROR(verifyUses(block));
  return verifyLoss(block);
}

Status verifyForward(const ModelGraph& graph) {
  for (const Block* block : {&graph.embedding, &graph.layer, &graph.head})
    if (const Status status = verifyBlock(*block); !status.ok())
      return status.withContext(block->name);
  TRIREME_RETURN_IF_ERROR(verifyStream(graph));
  return verifyTied(graph);
}

}  // namespace trireme::graph
