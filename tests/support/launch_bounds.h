// How large the blocks of the library kernels may be, as their PTX says.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace trireme::testing {

// Of each kernel in a PTX text, the most threads of a block (.maxntid); of some it says nothing.
std::map<std::string, unsigned> launchBoundsOf(std::string_view ptx);

// Those of this build's library kernels; none if it has none.
const std::map<std::string, unsigned>& launchBounds();

}  // namespace trireme::testing
