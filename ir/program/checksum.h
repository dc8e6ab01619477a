// CRC-32C of bytes, which finds every damage of up to 32 consecutive bits and any other with
// probability 1 - 2^-32. Castagnoli et al., IEEE Trans. Comm. 1993.
#pragma once
#include <cstdint>
#include <string_view>

namespace trireme::program {

uint32_t crc32c(std::string_view bytes);

}  // namespace trireme::program
