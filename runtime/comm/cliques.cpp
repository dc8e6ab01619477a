#include "runtime/comm/cliques.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/program/walk.h"

namespace trireme::runtime {

using program::InstructionKind;
using program::Stream;

namespace {

// What the ranks of a role ask for.
struct Needs {
  std::set<std::pair<program::GroupKind, Lane>> groups;
  struct Message {
    bool sends = false;
    int32_t peerStage = 0;
    Lane lane = Lane::kForward;
    auto operator<=>(const Message&) const = default;
  };
  std::set<Message> messages;
};

Result<Needs> needsOf(const program::Role& role) {
  Needs needs;
  for (const program::Body& body : role.bodies)
    for (const program::Instruction& in : body.instructions) {
      if (program::isCollective(in.kind)) needs.groups.insert({in.group, laneOf(in.stream)});
      if (!program::isMessage(in.kind)) continue;
      const bool sends = in.kind == InstructionKind::kSend;
      const bool isSendStream =
          in.stream == Stream::kSendForward || in.stream == Stream::kSendBackward;
      if (!program::isMessageStream(in.stream) || sends != isSendStream)
        return Error(invalidArgument(
            fmt::format("role {}, body {}: a {} on the stream {}", role.name, body.name,
                        program::instructionName(in.kind), program::streamName(in.stream))));
      needs.messages.insert({sends, in.peerStage, laneOf(in.stream)});
    }
  return needs;
}

}  // namespace

Lane laneOf(Stream stream) {
  switch (stream) {
    case Stream::kCompute:
      break;
    case Stream::kRecvForward:
    case Stream::kSendForward:
      return Lane::kForward;
    case Stream::kRecvBackward:
    case Stream::kSendBackward:
      return Lane::kBackward;
    case Stream::kDpReduce:
      return Lane::kDpReductions;
    case Stream::kTpReduce:
      return Lane::kTpReductions;
  }
  return Lane::kCollectives;
}

std::string describe(const Clique& clique) {
  constexpr const char* kNames[kNumLanes] = {"collectives", "reductions over dp",
                                             "reductions over tp", "messages forward",
                                             "messages backward"};
  return fmt::format("ranks {} ({})", fmt::join(clique.ranks, ", "),
                     kNames[static_cast<size_t>(clique.lane)]);
}

Result<std::set<int32_t>> peersOf(const program::Program& program, int32_t rank) {
  TRIREME_ASSIGN_OR_RETURN(const std::vector<Clique> cliques, cliquesOf(program));
  std::set<int32_t> peers;
  for (const auto& [lane, ranks] : cliques)
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
      peers.insert(ranks.begin(), ranks.end());
  peers.erase(rank);
  return peers;
}

Result<std::vector<Clique>> cliquesOf(const program::Program& program) {
  std::vector<Needs> roles;
  for (const program::Role& role : program.roles) {
    TRIREME_ASSIGN_OR_RETURN(Needs needs, needsOf(role));
    roles.push_back(std::move(needs));
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

}  // namespace trireme::runtime
