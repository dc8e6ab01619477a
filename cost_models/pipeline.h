// Closed-form time of a pipeline flush: all microbatches forward and backward through all stages.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "ir/base/units.h"
#include "ir/plan/plan.h"

namespace trireme::cost {

// One microbatch on one stage, per chunk.
struct StageTimes {
  std::vector<Seconds> forward, backward;
  // Where the schedule splits the backward; what `backward` is then without. Otherwise empty.
  std::vector<Seconds> weights;
  Seconds total() const;     // over chunks, all passes
  Seconds shortest() const;  // pass
};

struct Pipeline {
  plan::ScheduleKind schedule = plan::ScheduleKind::k1F1B;
  int64_t numMicrobatches = 1;
  std::vector<StageTimes> stages;  // p of them, all with v chunks
  // Transfer of one activation (or gradient) between a stage and the next and, with v > 1, between
  // the last stage and the first; with v = 1 that is no slower than the others. As many as stages;
  // none: they take no time.
  std::vector<Seconds> hops;
  bool overlapTransfers = true;  // a rank computes while its transfers are under way
  // With overlap, an activation is sent when the slot that it goes into is free: programs that
  // receive into slots, of which there are no more than the schedule needs. Only where it is
  // played.
  bool receivesIntoSlots = false;
  // Of schedules that split the backward: a rank begins its next flush when its own part of this
  // one is done (StackDescription::postValidation).
  bool postValidation = false;

  // Of the transfers what is part of every pass: without overlap the slowest hop.
  Seconds stop() const;
};

// Of a pipeline's transfers those beside the ranks' work: none without overlap.
class Hops {
 public:
  Hops() = default;
  explicit Hops(const Pipeline& pipeline);

  Seconds behind(size_t stage) const { return hops_.empty() ? Seconds(0) : hops_[stage]; }
  // On a microbatch's way to the first chunk of a stage.
  Seconds before(size_t stage) const { return hops_.empty() ? Seconds(0) : before_[stage]; }
  Seconds toLast() const { return hops_.empty() ? Seconds(0) : before_.back(); }
  Seconds around() const { return hops_.empty() ? Seconds(0) : before_.back() + hops_.back(); }
  // Through so many chunks of every stage.
  Seconds through(double chunks) const { return around() * (chunks - 1) + toLast(); }
  Seconds slowestToLast() const;
  bool areEven() const;

 private:
  std::vector<Seconds> hops_, before_;
};

// m microbatches, S_r = sum over chunks of f + b on stage r, c_r the hop behind stage r. For equal
// hops, of which c is one; otherwise k c stands for the sum of the k on the way.
//
// GPipe is a flow shop with equal jobs, once in each direction: exact for any stage times.
//   T = sum_r f_r + (m-1) max_r f_r  +  sum_r b_r + (m-1) max_r b_r  +  2 (p-1) c
// where with overlap a stage hands on no faster than the link: max(f_r, c_r).
//
// 1F1B (v = 1) and interleaved 1F1B. Stage r works m S_r; it waits for the first microbatch to come
// through the first chunks of the stages before it and to go back through them, and, at the turn,
// for the last chunks of the stages behind it.
//   T = max_r [ m S_r + sum_{i<r} (f_{i,0} + b_{i,0}) + sum_{i>r} (f_{i,v-1} + b_{i,v-1}) ]
//       + 2 (v p - 1) c + stall
// For even stages and c = 0 this is m (f + b) + (p-1) (f + b) / v, Narayanan et al., SC 2021,
// exactly; for v = 1 it is sum_r S_r + (m-1) max_r S_r.
//
// Stall: plain 1F1B has k = p - r microbatches between stage r and the end, just enough to hide the
// compute of the round trip R_r = sum_{i>=r} S_i + 2 (k-1) c but none of its transfers. Of every k
// microbatches k-1 wait for their share of what is left:
//   stall = max_r X_r / (k-1) ((m-2) - floor((m-2) / k)),  X_r = max(0, R_r - k max_i S_i),  m >= 2
// For even stages X_0 = 2 (p-1) c, and the whole formula is exact for any c. Interleaving keeps
// (v-1) p more chunks in flight, which cover transfers shorter than a chunk; of longer ones every
// group of p microbatches but the first waits, inside the maximum over r, for
//   stall_r = (m/p - 1) (v-1) p (max(0, c - f_r / v) + max(0, c - b_r / v)),  f_r, b_r: all chunks
// where p c are the hops of all stages.
// Exact for even stages while c <= max(f, b) / v.
//
// Zero bubble (v = 1), w_r forwards before the first backward and W d_r microbatches behind
// (schedule.h), S_r = f_r + b_r + w_r. Of every stage four paths are a lower bound:
//   it works m S_r once the first microbatch has come,
//     sum_{i<r} (f_i + c) + m S_r
//   its last backward has W of m - 1 - d_r microbatches before it, and goes back to the first
//   stage,
//     sum_{i<r} (f_i + b_i + 2 c) + m (f_r + b_r) + max(0, m - 1 - d_r) W_r + W_0
//   and its first backward comes after all forwards and the backwards behind it,
//     sum_i f_i + sum_{i>r} b_i + (2 (p - 1) - r) c + m (b_r + W_r) + (m - min(m, w_r)) f_r
//   and from there to its last backward, which goes back to the first stage, it does what is left,
//     sum_i (f_i + b_i) + 2 (p - 1) c + (m - 1) b_r + max(0, m - 1 - d_r) W_r
//       + (m - min(m, w_r)) f_r + W_0
//   T = max_r, the longest of the four
// With post-validation flushes follow each other sooner. T is the time from one to the next, and no
// rank works less long from its first task to its last one: the first path without what comes
// before stage r, the second and the fourth as they are, from the first stage on, the third without
// the forwards before r.
//
// For even stages, c = 0 and m >= w_0 exact; then H1 has T = m S + (p-1) max(f + max(0, b - W), b)
// and H2 m S + (p-1) max(f, f + b - 2 W, b - f); flushTime plays
// the schedule.
//
// With overlap, whatever the schedule, a link hands on one message after the other: behind stage r
// it has m v of them in each direction (behind the last one m (v - 1)), the first when a microbatch
// has come to it, and from the last one on that has to go to the end and back,
//   T >= sum_{i<=r} f_{i,0} + sum_{i>r} f_{i,v-1} + (p-2) c + m v c_r + sum_i b_i + (v p - 1) c
// where (p-2) c are the hops to the last stage but c_r.
//
// Without overlap every transfer stops its rank: S_r grows by 2 v c (one paired exchange per
// direction and chunk) with the slowest c, and c = 0 elsewhere.
//
// Monotone in every time: no stage, however slow, makes the result smaller. Requires p >= 1.
Seconds pipelineTime(const Pipeline& pipeline);

using FlushTime = std::function<Seconds(const Pipeline&)>;

}  // namespace trireme::cost
