#include "runtime/data/token_type.h"

#include <cstring>

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

}  // namespace trireme::runtime
