// Words of commands: what several readers of launch scripts ask of them.
#pragma once
#include <algorithm>
#include <string_view>

namespace trireme::codegen {

template <typename List>
bool isIn(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// Of a path, what is behind the last slash.
inline std::string_view baseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace trireme::codegen
