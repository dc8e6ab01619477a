// A rank that fails, or stalls, at its first instruction of the second microbatch.
#pragma once
#include <cstdint>

#include "runtime/executor/fault_injector.h"

namespace trireme::testing {

class StopsRank final : public runtime::FaultInjector {
 public:
  StopsRank(int32_t rank, runtime::Fault fault) : rank_(rank), fault_(fault) {}
  runtime::Fault before(int32_t rank, const program::TaskRecord& task, int32_t, int32_t) override {
    return rank == rank_ && task.microbatch == 1 ? fault_ : runtime::Fault::kNone;
  }

 private:
  int32_t rank_;
  runtime::Fault fault_;
};

}  // namespace trireme::testing
