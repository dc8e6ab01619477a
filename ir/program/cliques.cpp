#include "ir/program/cliques.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/program/walk.h"

namespace trireme::program {
namespace {

// What the ranks of a role ask for.
struct Needs {
  std::set<std::pair<GroupKind, Lane>> groups;
  struct Message {
    bool sends = false;
    int32_t peerStage = 0;
    Lane lane = Lane::kForward;
    auto operator<=>(const Message&) const = default;
  };
  std::set<Message> messages;
};

Needs needsOf(const Role& role) {
  Needs needs;
  for (const Body& body : role.bodies)
    for (const Instruction& in : body.instructions) {
      if (isCollective(in.kind)) needs.groups.insert({in.group, laneOf(in.stream, in.group)});
      if (isMessage(in.kind))
        needs.messages.insert({in.kind == InstructionKind::kSend, in.peerStage, laneOf(in.stream)});
    }
  return needs;
}

Status checkStreams(const Role& role) {
  for (const Body& body : role.bodies)
    for (const Instruction& in : body.instructions) {
      if (!isMessage(in.kind)) continue;
      const bool isSendStream =
          in.stream == Stream::kSendForward || in.stream == Stream::kSendBackward;
      if (!isMessageStream(in.stream) || (in.kind == InstructionKind::kSend) != isSendStream)
        return invalidArgument(fmt::format("role {}, body {}: a {} on the stream {}", role.name,
                                           body.name, instructionName(in.kind),
                                           streamName(in.stream)));
    }
  return {};
}

// Groups of two kinds have the same members where those of all others are single ranks: a bit per
// axis along which the members differ, and one for the two ends of a pipeline. 0: one member.
int axesOf(GroupKind kind, const Program& program, const Role& role) {
  constexpr int kEnds = 8;
  const int tp = program.tp > 1 ? 1 : 0, dp = program.dp > 1 ? 2 : 0, pp = program.pp > 1 ? 4 : 0;
  switch (kind) {
    case GroupKind::kTp:
      return tp;
    case GroupKind::kDp:
      return dp;
    case GroupKind::kPp:
      return pp;
    case GroupKind::kEmbedding:
      if (role.stage != 0 && role.stage != program.pp - 1) return 0;
      return program.pp > 2 ? kEnds : pp;
    case GroupKind::kModel:
      return tp | pp;
    case GroupKind::kWorld:
      break;
  }
  return tp | dp | pp;
}

}  // namespace

Lane laneOf(Stream stream, GroupKind group) {
  if (stream == Stream::kDpReduce) return Lane::kDpReductions;
  if (stream == Stream::kTpReduce) return Lane::kTpReductions;
  const bool ofNumbers = group == GroupKind::kModel || group == GroupKind::kWorld;
  return ofNumbers ? Lane::kNorms : Lane::kCollectives;
}

Lane laneOf(Stream stream) {
  const bool isForward = stream == Stream::kRecvForward || stream == Stream::kSendForward;
  return isForward ? Lane::kForward : Lane::kBackward;
}

std::vector<RoleClique> cliquesOf(const Program& program, const Role& role) {
  const Needs needs = needsOf(role);
  std::vector<RoleClique> cliques;
  std::set<std::pair<Lane, int>> seen;
  for (const auto& [kind, lane] : needs.groups)
    if (const int axes = axesOf(kind, program, role); axes != 0 && seen.emplace(lane, axes).second)
      cliques.push_back({lane, kind});
  for (const auto& message : needs.messages) cliques.push_back({message.lane, GroupKind::kPp});
  return cliques;
}

std::string describe(const Clique& clique) {
  constexpr const char* kNames[kNumLanes] = {"collectives",        "norms",
                                             "reductions over dp", "reductions over tp",
                                             "messages forward",   "messages backward"};
  return fmt::format("ranks {} ({})", fmt::join(clique.ranks, ", "),
                     kNames[static_cast<size_t>(clique.lane)]);
}

Result<std::set<int32_t>> peersOf(const Program& program, int32_t rank) {
  TRIREME_ASSIGN_OR_RETURN(const std::vector<Clique> cliques, cliquesOf(program));
  std::set<int32_t> peers;
  for (const auto& [lane, ranks] : cliques)
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
      peers.insert(ranks.begin(), ranks.end());
  peers.erase(rank);
  return peers;
}

Result<std::vector<Clique>> cliquesOf(const Program& program) {
  std::vector<Needs> roles;
  for (const Role& role : program.roles) {
    TRIREME_RETURN_IF_ERROR(checkStreams(role));
    roles.push_back(needsOf(role));
  }
  std::set<Clique> cliques;
  for (int32_t rank = 0; rank < program.numRanks(); ++rank) {
    const Needs& needs = roles[static_cast<size_t>(program.ranks[static_cast<size_t>(rank)].role)];
    for (const auto& [kind, lane] : needs.groups)
      if (const auto& ranks = groupOf(program, rank, kind).ranks; ranks.size() > 1)
        cliques.insert({lane, ranks});
    for (const auto& [sends, stage, lane] : needs.messages) {
      const int32_t peer = peerRank(program, rank, stage);
      if (peer < 0)
        return Error(invalidArgument(fmt::format("rank {}: no pipeline rank {}", rank, stage)));
      cliques.insert({lane, sends ? std::vector{rank, peer} : std::vector{peer, rank}});
    }
  }
  return std::vector<Clique>(cliques.begin(), cliques.end());
}

}  // namespace trireme::program
