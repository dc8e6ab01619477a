// Texts with one part changed, for the tests of what reads them.
#pragma once
#include <gtest/gtest.h>

#include <string>

namespace trireme {

// `text` with the first `from` replaced; the test fails if it is not there.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "'" << from << "' is not in:\n" << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace trireme
