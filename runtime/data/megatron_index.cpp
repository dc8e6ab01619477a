#include "runtime/data/megatron_index.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>

namespace trireme::runtime {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);

// DType.code of indexed_dataset.py; 2 is int8, 6 and 7 are floating.
std::optional<TokenType> typeOf(uint8_t code) {
  switch (code) {
    case 1:
      return TokenType::kU8;
    case 3:
      return TokenType::kI16;
    case 4:
      return TokenType::kI32;
    case 5:
      return TokenType::kI64;
    case 8:
      return TokenType::kU16;
    default:
      return std::nullopt;
  }
}

uint64_t word(std::string_view header, size_t at) {
  uint64_t value = 0;
  std::memcpy(&value, header.data() + at, sizeof(value));
  return value;
}

}  // namespace

Result<MegatronIndex> parseMegatronIndex(std::string_view header, int64_t fileBytes) {
  if (header.size() < kMegatronHeaderBytes || !header.starts_with(kMagic))
    return Error(invalidArgument("not the index of a Megatron dataset"));
  if (const uint64_t version = word(header, 9); version != 1)
    return Error(invalidArgument(fmt::format("index of version {}, this reads 1", version)));
  const auto code = static_cast<uint8_t>(header[17]);
  const std::optional<TokenType> type = typeOf(code);
  if (!type)
    return Error(invalidArgument(
        fmt::format("type {} holds no tokens (1, 3, 4, 5 and 8 are uint8 to uint16)", code)));
  const uint64_t sequences = word(header, 18), documents = word(header, 26);
  const auto rest = static_cast<uint64_t>(fileBytes - kMegatronHeaderBytes);
  // Bounded first, so that the sum cannot overflow.
  if (sequences > rest / 12 || documents > rest / 8 || 12 * sequences + 8 * documents != rest)
    return Error(invalidArgument(
        fmt::format("{} bytes do not hold an index of {} sequences and {} documents", fileBytes,
                    sequences, documents)));
  return MegatronIndex{*type, static_cast<int64_t>(sequences), static_cast<int64_t>(documents)};
}

}  // namespace trireme::runtime
