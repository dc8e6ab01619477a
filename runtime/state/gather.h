// Logical tensors to and from the arenas of all ranks.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "runtime/executor/rank_program.h"
#include "runtime/state/layout.h"

namespace trireme::runtime {

// The ranks that live in other processes. All processes make the same calls.
class OtherRanks {
 public:
  virtual ~OtherRanks() = default;
  // Tensors are put together in this process: it receives what the others send.
  virtual bool gathersHere() const = 0;
  // kUnavailable: a rank failed.
  virtual Status send(const std::string& bytes) = 0;
  virtual Result<std::string> receive(int32_t rank) = 0;
};

// All ranks of a program, between two steps.
struct TrainingState {
  const program::Program* program = nullptr;
  const std::vector<LogicalTensor>* tensors = nullptr;
  std::span<const RankProgram> ranks;  // in rank order: all, or those of this process
  OtherRanks* others = nullptr;        // null: all are here; not owned
};

// Puts the tensor together, in the type in which it is stored: `bytes` holds elements() of it,
// where tensors are put together; elsewhere this rank's part of it goes there. Errors: those of
// OtherRanks; kInternal: another process sent what does not belong to the tensor.
Status gatherTensor(const TrainingState& state, const LogicalTensor& tensor, StateKind kind,
                    char* bytes);

// The reverse, to every replica, shard and copy of this process. For kMaster, parameters in compute
// dtype as well.
void scatterTensor(const TrainingState& state, const LogicalTensor& tensor, StateKind kind,
                   const char* bytes);

// The type in which a tensor is stored.
DType storedType(const TrainingState& state, StateKind kind);

}  // namespace trireme::runtime
