#include "ir/graph/block_builder.h"

#include <fmt/format.h>

namespace trireme::graph {

TensorId BlockBuilder::add(Tensor tensor) {
  block_.tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(block_.tensors.size()) - 1;
}

TensorId BlockBuilder::input(const std::vector<Dim>& dims) {
  Tensor t;
  t.name = "input";
  t.dims = dims;
  t.sequenceRegion = true;
  return block_.input = add(std::move(t));
}

TensorId BlockBuilder::data(const char* name, TensorKind kind, const std::vector<Dim>& dims) {
  Tensor t;
  t.name = name;
  t.kind = kind;
  t.element = Element::kIndex;
  t.dims = dims;
  return add(std::move(t));
}

TensorId BlockBuilder::tokens(const std::vector<Dim>& dims) {
  return data("tokens", TensorKind::kTokens, dims);
}

TensorId BlockBuilder::labels(const std::vector<Dim>& dims) {
  return data("labels", TensorKind::kLabels, dims);
}

TensorId BlockBuilder::parameter(std::string name, Parameter parameter) {
  Tensor t;
  t.name = std::move(name);
  t.kind = TensorKind::kParameter;
  t.dims = parameter.dims;
  t.parameter = static_cast<int32_t>(block_.parameters.size());
  block_.parameters.push_back(std::move(parameter));
  return add(std::move(t));
}

Result<std::vector<TensorId>> BlockBuilder::op(OpKind kind, const OpAttributes& attributes,
                                               std::vector<TensorId> inputs,
                                               std::vector<std::string> names) {
  std::vector<const Tensor*> read;
  for (const TensorId id : inputs) read.push_back(&tensor(id));
  TRIREME_ASSIGN_OR_RETURN(std::vector<Tensor> made, inferTensors(kind, attributes, read));
  if (made.size() != names.size())
    return Error(invalidArgument(fmt::format("{}: {} outputs, expected {}", program::opName(kind),
                                             names.size(), made.size())));
  std::vector<TensorId> outputs;
  for (size_t i = 0; i < made.size(); ++i) {
    made[i].name = std::move(names[i]);
    outputs.push_back(add(std::move(made[i])));
  }
  block_.forward.push_back({kind, attributes, std::move(inputs), outputs});
  return outputs;
}

}  // namespace trireme::graph
