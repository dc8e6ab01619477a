#include "cli/output/tell.h"

#include <cstdio>

namespace trireme::cli {

void writeToStderr(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stderr) == text.size()) std::fflush(stderr);
}

}  // namespace trireme::cli
