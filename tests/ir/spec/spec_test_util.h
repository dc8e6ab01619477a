// Helpers of the tests of ir/spec.
#pragma once
#include <string>

#include "ir/base/status.h"

namespace trireme::spec {

// The message of a refusal; of a success, text that no test expects.
template <typename T>
std::string messageOf(const Result<T>& result) {
  return result.has_value() ? "(no error)" : result.error().message();
}
inline std::string messageOf(const Status& status) {
  return status.ok() ? "(no error)" : status.message();
}

// `text` with the first occurrence of `from` replaced. Missing text gives an empty document, which
// fails.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) return "";
  return text.replace(at, from.size(), to);
}

inline std::string examplePath(const std::string& path) {
  return std::string(TRIREME_SOURCE_DIR) + "/examples/" + path;
}

}  // namespace trireme::spec
