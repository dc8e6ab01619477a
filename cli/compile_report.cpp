#include "cli/compile_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <set>

#include "cli/output/table.h"
#include "cli/output/wrap.h"
#include "ir/base/format.h"

namespace trireme::cli {
namespace {

using nlohmann::json;

struct RoleCounts {
  std::string name;
  int64_t ranks = 0, layers = 0, tasks = 0, arenaBytes = 0;
};

std::vector<RoleCounts> countRoles(const program::Program& program) {
  std::vector<RoleCounts> counts;
  for (const program::Role& role : program.roles) {
    RoleCounts& c = counts.emplace_back();
    c.name = role.name;
    c.tasks = std::ssize(role.tasks);
    c.arenaBytes = role.arenaBytes;
    for (const program::Chunk& chunk : role.chunks) c.layers += chunk.numLayers;
  }
  for (const program::RankInfo& rank : program.ranks)
    ++counts[static_cast<size_t>(rank.role)].ranks;
  return counts;
}

struct CodeCounts {
  size_t segments = 0, generated = 0, library = 0, bytes = 0;
};

CodeCounts countCode(const program::Bundle& bundle) {
  CodeCounts counts;
  std::set<std::string> generated;
  for (const program::CompiledSegment& segment : bundle.kernels)
    for (const program::KernelCall& call : segment.calls)
      if (call.kind == program::KernelCallKind::kGenerated)
        generated.insert(call.symbol);
      else
        ++counts.library;
  counts.segments = bundle.kernels.size();
  counts.generated = generated.size();
  counts.bytes = bundle.sharedObject.size() + bundle.ptx.size();
  for (const program::Cubin& cubin : bundle.cubins) counts.bytes += cubin.bytes.size();
  return counts;
}

std::string counted(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::vector<std::string> cubinNames(const program::Bundle& bundle) {
  std::vector<std::string> names;
  for (const program::Cubin& cubin : bundle.cubins) names.push_back(cubin.target);
  return names;
}

// What PTX was made for; nothing for hosts, or if there is none.
std::optional<program::GpuTarget> ptxOf(const program::Bundle& bundle) {
  const auto targets = program::parseGpuTargets(bundle.target.arch);
  if (bundle.ptx.empty() || !targets) return std::nullopt;
  return program::ptxTarget(*targets);
}

std::string targetLine(const program::Bundle& bundle) {
  const std::optional<program::GpuTarget> ptx = ptxOf(bundle);
  if (!ptx) return "";
  const std::string code =
      bundle.cubins.empty()
          ? "no code, for there is no ptxas here: the driver compiles the PTX when a run starts"
          : fmt::format("code for {}", fmt::join(cubinNames(bundle), ", "));
  return wrapLine(fmt::format("{:<14}{}: PTX of {}{}, {}", "target", bundle.target.arch, ptx->name,
                              ptx->exact ? ", which no later GPU runs" : " and later GPUs", code),
                  14);
}

std::string rolesTable(const program::Program& program) {
  std::vector<std::vector<std::string>> rows;
  for (const RoleCounts& role : countRoles(program))
    rows.push_back({role.name, fmt::format("{}", role.ranks), fmt::format("{}", role.layers),
                    fmt::format("{}", role.tasks),
                    formatBytes(Bytes(static_cast<double>(role.arenaBytes)))});
  return printTable({{"role"}, {"ranks", true}, {"layers", true}, {"tasks", true}, {"arena", true}},
                    rows);
}

}  // namespace

std::string compileText(const program::Bundle& bundle, const CompileReport& report) {
  const CodeCounts code = countCode(bundle);
  const std::string kernels = fmt::format(
      "{} segments: {} generated kernels ({}), {} library calls", code.segments, code.generated,
      formatBytes(Bytes(static_cast<double>(code.bytes))), code.library);
  std::string text = wrapLine(fmt::format("{:<14}{}", "plan", bundle.summary), 14);
  text +=
      fmt::format("{:<14}for {}, with {}\n", "programs", counted(bundle.program.numRanks(), "rank"),
                  counted(std::ssize(bundle.program.roles), "role"));
  text += wrapLine(fmt::format("{:<14}{}", "code", kernels), 14);
  text += targetLine(bundle);
  text += rolesTable(bundle.program);
  if (report.simulated)
    text += fmt::format("{:<14}{} per step\n", "simulated", formatSeconds(*report.simulated));
  return text +
         fmt::format("{:<14}{} in {}\n", "bundle", report.folder, formatSeconds(report.elapsed));
}

json compileJson(const program::Bundle& bundle, const CompileReport& report) {
  json roles = json::array();
  for (const RoleCounts& role : countRoles(bundle.program))
    roles.push_back({{"name", role.name},
                     {"numRanks", role.ranks},
                     {"numLayers", role.layers},
                     {"numTasks", role.tasks},
                     {"arenaBytes", role.arenaBytes}});
  const CodeCounts code = countCode(bundle);
  const std::optional<program::GpuTarget> ptx = ptxOf(bundle);
  return {{"bundle", report.folder},
          {"plan", bundle.summary},
          {"target", bundle.target.arch},
          {"numRanks", bundle.program.numRanks()},
          {"roles", roles},
          {"code",
           {{"numSegments", code.segments},
            {"numGeneratedKernels", code.generated},
            {"numLibraryCalls", code.library},
            {"bytes", code.bytes},
            {"ptx", ptx ? json(ptx->name) : json()},
            {"cubins", cubinNames(bundle)}}},
          {"simulatedSeconds", report.simulated ? json(report.simulated->count()) : json()},
          {"seconds", report.elapsed.count()}};
}

}  // namespace trireme::cli
