// Logical tensors to and from the arenas of all ranks.
#pragma once
#include <span>
#include <vector>

#include "runtime/executor/rank_program.h"
#include "runtime/state/layout.h"

namespace trireme::runtime {

// All ranks of a program, between two steps.
struct TrainingState {
  const program::Program* program = nullptr;
  const std::vector<LogicalTensor>* tensors = nullptr;
  std::span<const RankProgram> ranks;  // in rank order
};

// Puts the tensor together, in the type in which it is stored: `bytes` holds elements() of it.
void gatherTensor(const TrainingState& state, const LogicalTensor& tensor, StateKind kind,
                  char* bytes);

// The reverse, to every replica, shard and copy. For kMaster, parameters in compute dtype as well.
void scatterTensor(const TrainingState& state, const LogicalTensor& tensor, StateKind kind,
                   const char* bytes);

// The type in which a tensor is stored.
DType storedType(const TrainingState& state, StateKind kind);

}  // namespace trireme::runtime
