#include "runtime/executor/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "ir/base/format.h"

namespace trireme::runtime {

std::optional<Bytes> parseAvailableMemory(const std::string& meminfo) {
  std::optional<Bytes> available;
  Bytes swap;
  std::istringstream lines(meminfo);
  for (std::string key; lines >> key; lines.ignore(4096, '\n')) {
    double kibibytes = 0;  // The unit is fixed: "MemAvailable:     1234 kB".
    if (key == "MemAvailable:" && lines >> kibibytes) available = Bytes(kibibytes * 1024);
    if (key == "SwapFree:" && lines >> kibibytes) swap = Bytes(kibibytes * 1024);
  }
  if (available) *available += swap;
  return available;
}

std::optional<Bytes> availableMemory() {
  std::ifstream file("/proc/meminfo");
  std::stringstream text;
  text << file.rdbuf();
  return parseAvailableMemory(text.str());
}

Status checkArenas(const program::Program& program, Bytes available) {
  Bytes sum, largest;
  for (const program::RankInfo& rank : program.ranks) {
    const Bytes arena(
        static_cast<double>(program.roles[static_cast<size_t>(rank.role)].arenaBytes));
    sum += arena;
    largest = std::max(largest, arena);
  }
  if (sum <= available) return {};
  const int32_t ranks = program.numRanks();
  return resourceExhausted(fmt::format(
      "the arenas of {} rank{} need {} (at most {} each), {} are available on this machine; a plan "
      "with at most {} per rank would fit",
      ranks, ranks == 1 ? "" : "s", formatBytes(sum), formatBytes(largest), formatBytes(available),
      formatBytes(available / ranks)));
}

}  // namespace trireme::runtime
