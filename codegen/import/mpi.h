// How many ranks mpirun is asked for.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace trireme::codegen {

// 0: it is not said, or not known.
struct MpiRanks {
  int64_t all = 0, perHost = 0;
};

// Of the words between mpirun (mpiexec) and the program: -np, --npernode, --map-by ppr:N:node and
// their likes. kInvalidArgument, with `place`: a number that is none.
Result<MpiRanks> readMpirun(const std::vector<std::string>& words, const std::string& place);

}  // namespace trireme::codegen
