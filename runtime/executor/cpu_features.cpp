#include "runtime/executor/cpu_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

namespace trireme::runtime {
namespace {

#if defined(__x86_64__)
constexpr std::string_view kArch = "x86-64";
#elif defined(__aarch64__)
constexpr std::string_view kArch = "aarch64";
#else
constexpr std::string_view kArch = "unknown";
#endif

// Names for which LLVM and Linux differ by more than punctuation: {LLVM's, Linux's}.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"sse3", "pni"},    {"lzcnt", "abm"},    {"x87", "fpu"},     {"prfchw", "3dnowprefetch"},
    {"sahf", "lahflm"}, {"rdrnd", "rdrand"}, {"crc32", "sse42"}, {"evex512", "avx512f"},
    {"bmi", "bmi1"},    {"sha", "shani"},    {"64bit", "lm"},    {"invpcid", "invpcid"}};

std::string normalised(std::string_view name) {
  std::string out;
  for (char c : name)
    if (c != '_' && c != '-' && c != '.' && c != '+') out += c;
  for (const auto& [llvm, linux_] : kAliases)
    if (out == llvm) return std::string(linux_);
  return out;
}

std::set<std::string> featuresHere() {
  std::set<std::string> features;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(std::min(line.size(), line.find(':') + 1)));
    for (std::string word; words >> word;) features.insert(normalised(word));
    break;
  }
  return features;
}

}  // namespace

Status checkTarget(const program::Target& target) {
  if (!target.arch.empty() && normalised(target.arch) != normalised(kArch))
    return invalidArgument(
        fmt::format("the bundle's kernels are for {}, this machine is {}", target.arch, kArch));
  if (target.cpuFeatures.empty()) return {};
  const std::set<std::string> here = featuresHere();
  std::string missing;
  for (const std::string& feature : target.cpuFeatures)
    if (!here.contains(normalised(feature))) missing += " " + feature;
  if (missing.empty()) return {};
  return invalidArgument("the bundle's kernels need CPU features that this machine lacks:" +
                         missing);
}

}  // namespace trireme::runtime
