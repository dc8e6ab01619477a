// The ranks of a run and how they fare, as a session sees them: threads of one process, or
// processes.
#pragma once
#include <memory>

#include "runtime/comm/communicator.h"

namespace trireme::runtime {

class World {
 public:
  virtual ~World() = default;
  // Once per rank of this process.
  virtual std::unique_ptr<Communicator> communicator(int32_t rank) = 0;

  virtual bool failed() const = 0;
  // Why the first rank failed (ok: none has), and which (-1: none in particular).
  virtual Status failure() const = 0;
  virtual int32_t failedRank() const = 0;
  // Only the first call counts; wakes everybody. `rank` -1: none in particular.
  virtual void fail(int32_t rank, const Status& reason) = 0;
};

}  // namespace trireme::runtime
