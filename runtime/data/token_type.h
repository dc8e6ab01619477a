// How files hold tokens.
#pragma once
#include <cstdint>
#include <string_view>

namespace trireme::runtime {

enum class TokenType : uint8_t { kU8, kU16, kI16, kI32, kI64 };

std::string_view tokenTypeName(TokenType type);  // "uint8", "uint16", "int16", "int32", "int64"
int64_t tokenBytes(TokenType type);
// Token i of little-endian `data`, which need not be aligned.
int64_t loadToken(TokenType type, const char* data, int64_t i);
// Whether all of the first `count` tokens are in [0, vocabSize); at the speed of memory.
bool tokensAreWithin(TokenType type, const char* data, int64_t count, int64_t vocabSize);

}  // namespace trireme::runtime
