// A hash that is the same in every run and on every machine.
#pragma once
#include <cstdint>
#include <string_view>

namespace trireme {

// FNV-1a, 64 bits. `hash`: of what stands before the text.
constexpr uint64_t fnv1a(std::string_view text, uint64_t hash = 0xcbf29ce484222325u) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace trireme
