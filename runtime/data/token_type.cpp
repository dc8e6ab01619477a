#include "runtime/data/token_type.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace trireme::runtime {
namespace {

constexpr std::string_view kTypeNames[] = {"uint8", "uint16", "int16", "int32", "int64"};
constexpr int64_t kBytes[] = {1, 2, 2, 4, 8};

template <typename T>
int64_t load(const char* data, int64_t i) {
  T token;
  std::memcpy(&token, data + i * int64_t{sizeof(T)}, sizeof(T));
  return static_cast<int64_t>(token);
}

// As unsigned numbers negative ones are above all that are not.
template <typename T>
bool areWithin(const char* data, int64_t count, int64_t vocabSize) {
  using Unsigned = std::make_unsigned_t<T>;
  Unsigned most = 0;
  for (int64_t i = 0; i < count; ++i) {
    Unsigned token;
    std::memcpy(&token, data + i * int64_t{sizeof(T)}, sizeof(T));
    most = std::max(most, token);
  }
  return most <= static_cast<Unsigned>(std::numeric_limits<T>::max()) &&
         static_cast<uint64_t>(most) < static_cast<uint64_t>(vocabSize);
}

}  // namespace

std::string_view tokenTypeName(TokenType type) { return kTypeNames[static_cast<size_t>(type)]; }

int64_t tokenBytes(TokenType type) { return kBytes[static_cast<size_t>(type)]; }

int64_t loadToken(TokenType type, const char* data, int64_t i) {
  switch (type) {
    case TokenType::kU8:
      return load<uint8_t>(data, i);
    case TokenType::kU16:
      return load<uint16_t>(data, i);
    case TokenType::kI16:
      return load<int16_t>(data, i);
    case TokenType::kI32:
      return load<int32_t>(data, i);
    case TokenType::kI64:
      break;
  }
  return load<int64_t>(data, i);
}

bool tokensAreWithin(TokenType type, const char* data, int64_t count, int64_t vocabSize) {
  switch (type) {
    case TokenType::kU8:
      return areWithin<uint8_t>(data, count, vocabSize);
    case TokenType::kU16:
      return areWithin<uint16_t>(data, count, vocabSize);
    case TokenType::kI16:
      return areWithin<int16_t>(data, count, vocabSize);
    case TokenType::kI32:
      return areWithin<int32_t>(data, count, vocabSize);
    case TokenType::kI64:
      break;
  }
  return areWithin<int64_t>(data, count, vocabSize);
}

}  // namespace trireme::runtime
