// Memory of plans of Trireme's own programs, as far as block costs tell: lower bounds. Internal to
// planner/.
#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "planner/query.h"
#include "planner/space/block_costs.h"

namespace trireme::planner {

// Parameters of one rank, whoever shares their state. Of plan.layers it reads plan.layers[rank].
double elementsOf(const plan::Plan& plan, const BlockCosts& blocks, size_t rank);
// What a rank needs without layers, with leastReserve(), which all ranks of a plan share, and with
// one more layer on each of its chunks. Without plan.layers.
struct ChunkMemory {
  Bytes fixed;
  std::vector<Bytes> perLayer;
  Bytes of(const std::vector<int64_t>& layers) const;
};
ChunkMemory chunkMemoryOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                          size_t rank, Bytes reserve);
// With plan.layers[rank].
Bytes rankMemory(const Query& query, const plan::Plan& plan, const BlockCosts& blocks, size_t rank,
                 Bytes reserve);
// Of the fullest rank, but for rounding.
Bytes fullestMemory(const Query& query, const plan::Plan& plan, const BlockCosts& blocks);

// Layers by stage and chunk, one on every chunk at least, such that the fullest rank is least full:
// by the bounds of its memory and `beyond` them of every rank (empty: nothing). Exact: layers that
// a chunk need not have lie on the rank's chunk that keeps fewest microbatches, and what a rank
// needs grows with them, so that handing out the next one to the rank that has least with it is
// optimal. `plan` without layers, of no more chunks than there are layers.
std::vector<std::vector<int64_t>> leanestCounts(const Query& query, const plan::Plan& plan,
                                                const BlockCosts& blocks,
                                                const std::vector<Bytes>& beyond = {});

// Like leastMemory() of the group, and no more than that, but known without its blocks: of a
// layer's parameters the matrices, of its activations what it reads.
Bytes unprobedMemory(const Query& query, const Group& group, Bytes reserve);

// What the fullest rank of a group's plans needs at least, however their layers are cut. Rank r
// with n layers needs at least F_r + n P_r, so that no cut of L layers needs less than
//
//   T = (L + sum F_r / P_r) / sum 1 / P_r,   for all ranks together hold sum (T - F_r) / P_r layers
//
// P_r: state and activations of a layer in the chunk that keeps fewest microbatches. F_r: what is
// no layer, and what the layer that every other chunk has keeps more than that. (The first and the
// last chunk of all may have none.)
class CutFloor {
 public:
  // All must outlive it.
  CutFloor(const Query& query, const BlockCosts& blocks) : query_(query), blocks_(blocks) {}
  // `plan` without layers. Plans of one group and one order after the other take O(pp).
  Bytes of(const plan::Plan& plan);
  // Layers of each rank at most, not rounded down: (memory - F_r) / P_r.
  std::vector<double> mostLayers(const plan::Plan& plan);

 private:
  struct Rank {
    Bytes fixed;     // activations and scratch, without layers
    Bytes perLayer;  // activations
    double elements = 0;
  };
  void count(const plan::Plan& plan);
  void lookAt(const plan::Plan& plan);  // count(), where it has not been done
  Bytes reserveOf(const plan::Plan& plan);
  // F and P.
  struct Need {
    Bytes fixed, perLayer;
  };
  Need needOf(const Rank& rank, Bytes perElement) const;

  const Query& query_;
  const BlockCosts& blocks_;
  plan::ScheduleKind schedule_ = plan::ScheduleKind::k1F1B;
  int64_t virtualStages_ = 0;  // of ranks_; 0: of none
  std::vector<Rank> ranks_;
  Bytes reserve_;
  // leastReserve() by what it depends on of the plans of a group.
  using ReserveKey = std::tuple<plan::StateSharding, plan::RankOrder, bool, bool>;
  std::map<ReserveKey, Bytes> reserves_;
};

}  // namespace trireme::planner
