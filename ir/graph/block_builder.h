// Writes the forward of a block, op by op. The tensors that an op makes are inferred.
#pragma once
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/semantics.h"

namespace trireme::graph {

class BlockBuilder {
 public:
  explicit BlockBuilder(Block& block) : block_(block) {}

  // What comes into a block. Each may be called once, before any op.
  TensorId input(const std::vector<Dim>& dims);  // the residual stream
  TensorId tokens(const std::vector<Dim>& dims);
  TensorId labels(const std::vector<Dim>& dims);

  // A parameter and the tensor `name` that reads it.
  TensorId parameter(std::string name, Parameter parameter);

  // An op and the fresh tensors `names` that it makes, one per output.
  // kInvalidArgument: the op does not take these inputs (inferTensors), or makes fewer or more.
  Result<std::vector<TensorId>> op(OpKind kind, const OpAttributes& attributes,
                                   std::vector<TensorId> inputs, std::vector<std::string> names);

  const Tensor& tensor(TensorId id) const { return block_.tensors[static_cast<size_t>(id)]; }

 private:
  TensorId add(Tensor tensor);
  TensorId data(const char* name, TensorKind kind, const std::vector<Dim>& dims);

  Block& block_;
};

}  // namespace trireme::graph
