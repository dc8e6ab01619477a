// Which ranks of a program talk with which, and the communicators of NCCL that they need for it.
//
// A clique is a list of ranks with a lane. All that is asked of one communicator goes to one stream
// in one order, the same for its members, so nothing that a rank hands over early can block what
// others wait for:
//   collectives   one clique per list of members and stream (compute, or one of the two for
//                 reductions); groups of equal members share it, groups of one rank have none
//   norms         one per list of members of kModel or kWorld, over which numbers are summed, no
//                 tensors
//   messages      one clique per sender and receiver, forward and backward apart
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/program.h"

namespace trireme::program {

enum class Lane : uint8_t {
  kCollectives,
  kNorms,
  kDpReductions,
  kTpReductions,
  kForward,
  kBackward
};
inline constexpr size_t kNumLanes = 6;

struct Clique {
  Lane lane = Lane::kCollectives;
  std::vector<int32_t> ranks;  // in group order; of messages: sender, receiver
  bool operator==(const Clique&) const = default;
  auto operator<=>(const Clique&) const = default;
};

// Those that some instruction of some rank uses, each once, in an order that depends on the program
// alone. kInvalidArgument: a message goes through streams of different directions.
Result<std::vector<Clique>> cliquesOf(const Program& program);

// Those that a rank of `role` is a member of, by what they follow: a kind of group, and kPp for
// messages.
struct RoleClique {
  Lane lane = Lane::kCollectives;
  GroupKind group = GroupKind::kTp;
};
std::vector<RoleClique> cliquesOf(const Program& program, const Role& role);

// The others that `rank` exchanges tensors with. Errors: those of cliquesOf().
Result<std::set<int32_t>> peersOf(const Program& program, int32_t rank);

// The lane of a collective over a group of that kind, on the compute stream or one for reductions.
Lane laneOf(Stream stream, GroupKind group);
// The lane of a message.
Lane laneOf(Stream stream);

// "ranks 0, 2 (collectives)".
std::string describe(const Clique& clique);

}  // namespace trireme::program
