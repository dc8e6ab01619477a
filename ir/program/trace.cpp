#include "ir/program/trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "ir/program/walk.h"

namespace trireme::program {
namespace {

using nlohmann::json;

size_t at(int64_t i) { return static_cast<size_t>(i); }

// "layer.forward.0", else "send", "all_reduce".
std::string eventName(const Program& program, const TraceEvent& e) {
  if (e.kind == InstructionKind::kCompute && e.segment >= 0 &&
      at(e.segment) < program.segments.size())
    return program.segments[at(e.segment)].name;
  return std::string(instructionName(e.kind));
}

json toJson(const Program& program, const TraceEvent& e) {
  constexpr double kMicroseconds = 1e6;
  json args = {{"task", taskName({0, e.chunk, e.microbatch, 0, e.direction})},
               {"step", e.step + 1}};
  if (e.layer >= 0) args["layer"] = e.layer;
  if (e.bytes > 0) args["bytes"] = e.bytes;
  return {{"ph", "X"},
          {"pid", e.rank},
          {"tid", static_cast<int>(e.stream)},
          {"name", eventName(program, e)},
          {"cat", directionName(e.direction)},
          {"ts", e.beginSeconds * kMicroseconds},
          {"dur", (e.endSeconds - e.beginSeconds) * kMicroseconds},
          {"args", args}};
}

json metadata(const char* what, int32_t rank, int stream, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", stream}, {"args", {{"name", name}}}};
}

}  // namespace

std::string toPerfettoJson(const Program& program, const std::vector<TraceEvent>& events) {
  json list = json::array();
  std::set<int32_t> ranks;
  for (const TraceEvent& e : events) ranks.insert(e.rank);
  for (int32_t rank : ranks) {
    std::string name = fmt::format("rank {}", rank);
    if (rank >= 0 && rank < program.numRanks()) {
      const RankInfo& info = program.ranks[at(rank)];
      name += fmt::format(" (pp {} dp {} tp {})", info.ppIndex, info.dpIndex, info.tpIndex);
    }
    list.push_back(metadata("process_name", rank, 0, name));
    for (int s = 0; s < kNumStreams; ++s)
      list.push_back(
          metadata("thread_name", rank, s, std::string(streamName(static_cast<Stream>(s)))));
  }
  for (const TraceEvent& e : events) list.push_back(toJson(program, e));
  const json trace = {{"traceEvents", list}, {"displayTimeUnit", "ms"}};
  return trace.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace trireme::program
