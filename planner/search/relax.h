// What to say when nothing fits.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "planner/query.h"
#include "planner/search/search.h"

namespace trireme::planner {

enum class ChangeKind : uint8_t {
  kPin,      // one pinned choice is given up
  kAllPins,  // all but the devices, where none alone helps
  kStack,    // other software
  kDevices,  // more of them
  kBatch,    // another number of sequences per step
  kHeadroom  // no memory kept free
};

// One change of the query after which there is a plan: the fastest, as a search finds it.
struct Relaxation {
  ChangeKind kind = ChangeKind::kPin;
  std::string change;  // "microbatch 1 (pinned: 4)", "16 devices (there are 8)"
  plan::Plan plan;
  cost::Estimate estimate;
  int64_t devices = 0;  // that there have to be: more than ranks where these are spread over hosts
};

// A plan that does not fit; its estimate says by how much.
struct NearestMiss {
  plan::Plan plan;
  cost::Estimate estimate;
};

struct Shortfall {
  Status reason;
  // Of all plans that were costed the one that misses least; none if no layout obeys the pins.
  std::optional<NearestMiss> nearest;
  std::vector<Relaxation> changes;  // fewest devices first, of as many the fastest step
  std::vector<std::string> tried;   // all of them: "up to 320 devices", "batch 12, 14"
};

// Why a query whose search ended with `reason` has no plan, and what would give it one. Tried are:
// memory that is kept free; every pinned choice given up alone; all of them together if none alone
// helps; each of `stacks` (that train in the precision, if somebody asked for it, or else in the
// usual one), of which the fastest counts; more devices, up to 64 times as many or 64 hosts: the
// fewest that do, in whole hosts (blocks of the first tier, where the cluster does not say) or,
// with less than one, singly, and more where a program's ranks need the whole of more hosts; near
// batches, where replicas cannot share the query's (nearBatches()). A search for each of the
// former, for the devices one more than twice the binary logarithm of the hosts, for batches twice
// as many at most; most of these end at the first plan that fits. Errors are those of a search that
// fails, kInternal as a rule.
Result<Shortfall> shortfallOf(const Query& query, const Status& reason,
                              const std::vector<spec::StackProfile>& stacks = {},
                              const SearchProgress& progress = {});

// Batches that as many replicas share as there are devices for, or half, a quarter... as many, and
// that of the query do not divide; of each number the next above and below. Nearest first.
//
//   13 sequences on 5 devices: 14 and 12 (of 2), 15 and 10 (of 5)
std::vector<int64_t> nearBatches(const Query& query);

// "...; would work, fewest devices first: microbatch 1 (pinned: 4) (5.300 ms a step), or ..."
Status toStatus(const Shortfall& shortfall);

// kInfeasible, or kInternal if it fits: by how much `leanest`, the plan of the space that needs
// least memory, misses it. ofEvenChunks: as of the search's Certificate.
Status missesMemory(const Query& query, const plan::Plan& leanest, bool ofEvenChunks,
                    const CostFunctions& costs);

// The same status with what would work behind its message.
Status withRelaxations(const Query& query, const Status& status,
                       const SearchProgress& progress = {});

}  // namespace trireme::planner
