// Helpers of the tests of ir/spec.
#pragma once
#include <string>

#include "ir/base/status.h"
#include "tests/support/text.h"

namespace trireme::spec {

// The message of a refusal; of a success, text that no test expects.
template <typename T>
std::string messageOf(const Result<T>& result) {
  return result.has_value() ? "(no error)" : result.error().message();
}
inline std::string messageOf(const Status& status) {
  return status.ok() ? "(no error)" : status.message();
}

inline std::string examplePath(const std::string& path) {
  return std::string(TRIREME_SOURCE_DIR) + "/examples/" + path;
}

}  // namespace trireme::spec
