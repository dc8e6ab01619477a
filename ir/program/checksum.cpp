#include "ir/program/checksum.h"

#include <array>

namespace trireme::program {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected

using Table = std::array<std::array<uint32_t, 256>, 8>;

// table[k][b]: the remainder of byte b followed by k zero bytes.
constexpr Table makeTable() {
  Table table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    table[0][byte] = crc;
  }
  for (size_t k = 1; k < table.size(); ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      table[k][byte] = (table[k - 1][byte] >> 8) ^ table[0][table[k - 1][byte] & 0xFF];
  return table;
}

constexpr Table kTable = makeTable();

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])); };
  uint32_t crc = ~0u;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const uint32_t low = crc ^ (byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16 | byte(i + 3) << 24);
    crc = kTable[7][low & 0xFF] ^ kTable[6][(low >> 8) & 0xFF] ^ kTable[5][(low >> 16) & 0xFF] ^
          kTable[4][low >> 24] ^ kTable[3][byte(i + 4)] ^ kTable[2][byte(i + 5)] ^
          kTable[1][byte(i + 6)] ^ kTable[0][byte(i + 7)];
  }
  for (; i < bytes.size(); ++i) crc = (crc >> 8) ^ kTable[0][(crc ^ byte(i)) & 0xFF];
  return ~crc;
}

}  // namespace trireme::program
