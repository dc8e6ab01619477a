// What every rank says, at any length.
#pragma once
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace trireme::runtime {

// Communicator::exchange() without its limit, in as many rounds as the longest word needs. Errors:
// as there.
Result<std::vector<std::string>> exchangeLong(Communicator& comm, const std::string& mine);

}  // namespace trireme::runtime
