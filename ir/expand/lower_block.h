// One pass of a block on one rank: the ops on local values, with the tensor-axis communication that
// their sharding implies. Passes are forward and backward, and, where the schedule splits the
// backward, weights: the products that make gradients of matrices. Internal to ir/expand.
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
  kTemporary,       // scratch, within the pass
  kSaved,           // activation slot: written by the forward, read by the backward
  kKept,            // activation slot: read by the weights pass, so the backward leaves it
  kInput,           // residual stream at the block's entry (activation slot)
  kOutput,          // residual stream at the block's exit (activation slot)
  kInputGradient,   // gradient of the residual stream at the block's entry (activation slot)
  kOutputGradient,  // and at its exit
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
  bool isRecomputed = false;  // of the forward, computed again in the backward
};

struct LoweredPass {
  std::vector<Value> values;
  std::vector<Item> items;  // what is recomputed comes first
};

struct LoweredBlock {
  const graph::Block* block = nullptr;
  LoweredPass forward, backward, weights;
  bool keepsGradients = false;         // the weights pass reads the kOutputGradient
  std::vector<graph::TensorId> saved;  // Storage::kSaved and kKept, in order of definition
  std::vector<program::OperandType> savedTypes;
  // Per entry of `saved`: whose place it has, its own or that of one before it, over which the
  // backward writes it.
  std::vector<size_t> savedPlace;
  std::vector<program::OperandType> parameterTypes;  // local, per block parameter
  std::vector<bool> gradientPartial;                 // per block parameter: to be summed over tp
};

// `recompute` says which activations the backward computes again instead of keeping.
// `splitsBackward`: gradients of matrices are made by the weights pass, else by the backward.
LoweredBlock lowerBlock(const graph::Block& block, const plan::MeshShape& mesh,
                        plan::Recompute recompute, spec::Precision precision, bool splitsBackward);

}  // namespace trireme::expand
