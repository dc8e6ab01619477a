// Adds tensors, parameters and ops to a block. Internal to ir/graph.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ir/graph/graph.h"

namespace trireme::graph {

class BlockBuilder {
 public:
  explicit BlockBuilder(Block& block) : block_(block) {}

  TensorId tensor(Tensor tensor);
  // A parameter and the tensor that reads it.
  TensorId parameter(Parameter parameter);
  // An op with one fresh output; returns it.
  TensorId op(OpKind kind, OpAttributes attributes, std::vector<TensorId> inputs, Tensor output);
  void op(OpKind kind, OpAttributes attributes, std::vector<TensorId> inputs,
          std::vector<TensorId> outputs);

 private:
  Block& block_;
};

}  // namespace trireme::graph
