#include "ir/graph/block_builder.h"

namespace trireme::graph {

TensorId BlockBuilder::tensor(Tensor tensor) {
  block_.tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(block_.tensors.size()) - 1;
}

TensorId BlockBuilder::parameter(Parameter parameter) {
  Tensor t;
  t.name = parameter.name;
  t.kind = TensorKind::kParameter;
  t.dims = parameter.dims;
  t.parameter = static_cast<int32_t>(block_.parameters.size());
  block_.parameters.push_back(std::move(parameter));
  return tensor(std::move(t));
}

TensorId BlockBuilder::op(OpKind kind, OpAttributes attributes, std::vector<TensorId> inputs,
                          Tensor output) {
  const TensorId id = tensor(std::move(output));
  op(kind, attributes, std::move(inputs), std::vector<TensorId>{id});
  return id;
}

void BlockBuilder::op(OpKind kind, OpAttributes attributes, std::vector<TensorId> inputs,
                      std::vector<TensorId> outputs) {
  block_.forward.push_back({kind, attributes, std::move(inputs), std::move(outputs)});
}

}  // namespace trireme::graph
