// One pass (forward or backward) of a block on one rank: the ops on local values, with the
// tensor-axis communication that their sharding implies. Internal to ir/expand.
//
// One rule makes Megatron's f and g. Every tensor has a home sharding (plan/sharding.h). An op runs
// split along the label over which its operands are split; contracting that label leaves a partial
// result. A partial value becomes its home by all-reduce (home replicated) or reduce-scatter (home
// split along the sequence); an op that works along another label first all-gathers its
// sequence-split inputs.
#pragma once
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/plan/plan.h"
#include "ir/plan/sharding.h"
#include "ir/program/program.h"

namespace trireme::expand {

using ValueId = int32_t;

// Where a value lives.
enum class Storage : uint8_t {
  kTemporary,  // scratch, within the pass
  kSaved,      // activation slot: written by the forward, read by the backward
  kInput,      // residual stream at the block's entry (activation slot)
  kOutput,     // residual stream at the block's exit (activation slot)
  kGradient,   // gradient of the residual stream: entry value `outputGrad`, exit value `inputGrad`
  kTokens,
  kLabels,
  kParameter,
  kParameterGradient,
  kLoss,
};

struct Value {
  graph::TensorId tensor = -1;
  std::string name;
  program::OperandType type;  // local
  Storage storage = Storage::kTemporary;
};

// How a collective lies in time: on the compute stream, or beside it from its start to its join
// (beside.h).
enum class Overlap : uint8_t { kNone, kStart, kJoin };

// An op on values, or a collective over the tensor axis.
struct Item {
  bool isCollective = false;
  graph::OpKind kind = graph::OpKind::kAdd;
  graph::OpAttributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  // Collectives. All-reduce works in place: inputs[0] == outputs[0].
  program::InstructionKind collective = program::InstructionKind::kAllReduce;
  program::ReduceOp reduce = program::ReduceOp::kSum;
  Overlap overlap = Overlap::kNone;
};

struct LoweredPass {
  std::vector<Value> values;
  std::vector<Item> items;
};

struct LoweredBlock {
  const graph::Block* block = nullptr;
  LoweredPass forward, backward;
  std::vector<graph::TensorId> saved;  // Storage::kSaved, in order of definition
  std::vector<program::OperandType> savedTypes;
  std::vector<program::OperandType> parameterTypes;  // local, per block parameter
  std::vector<bool> gradientPartial;                 // per block parameter: to be summed over tp
};

// `recompute` says which activations the backward computes again instead of keeping.
LoweredBlock lowerBlock(const graph::Block& block, const plan::MeshShape& mesh,
                        plan::Recompute recompute, spec::Precision precision);

}  // namespace trireme::expand
