#include "runtime/executor/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "ir/base/format.h"
#include "ir/program/workspace.h"

namespace trireme::runtime {
namespace {

// The program may still be malformed; resolveRank() says so.
int64_t touchedBytes(const program::Role& role, int threads) {
  if (role.workspace < 0 || static_cast<size_t>(role.workspace) >= role.buffers.size())
    return role.arenaBytes;
  const program::Buffer& workspace = role.buffers[static_cast<size_t>(role.workspace)];
  const int64_t bytes =
      std::clamp<int64_t>(workspace.bytes(), 0, std::max<int64_t>(role.arenaBytes, 0));
  return role.arenaBytes - program::idleWorkspaceBytes(bytes, threads);
}

struct Need {
  Bytes sum, largest;
};

Need needOf(const program::Program& program, int threads) {
  Need need;
  for (const program::RankInfo& rank : program.ranks) {
    const Bytes bytes(
        static_cast<double>(touchedBytes(program.roles[static_cast<size_t>(rank.role)], threads)));
    need.sum += bytes;
    need.largest = std::max(need.largest, bytes);
  }
  return need;
}

std::string counted(int count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

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

Status checkArenas(const program::Program& program, int threadsPerRank, Bytes available) {
  const Need need = needOf(program, threadsPerRank);
  if (need.sum <= available) return {};
  int fitting = std::min(threadsPerRank, program::kMaxKernelThreads) - 1;
  while (fitting > 0 && needOf(program, fitting).sum > available) --fitting;
  const int32_t ranks = program.numRanks();
  const std::string remedy = fitting > 0
                                 ? fmt::format("{} per rank would fit", counted(fitting, "thread"))
                                 : fmt::format("a plan with at most {} per rank would fit",
                                               formatBytes(available / ranks));
  return resourceExhausted(fmt::format(
      "the arenas of {} with {} each need {} (at most {} each), {} are available on this machine; "
      "{}",
      counted(ranks, "rank"), counted(threadsPerRank, "thread"), formatBytes(need.sum),
      formatBytes(need.largest), formatBytes(available), remedy));
}

}  // namespace trireme::runtime
