// PipeDream's partitioning: layers -> stages, each on as many workers as keep it from being the
// slowest.
//
// Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019;
// Harlap et al., "PipeDream: Fast and Efficient Pipeline Parallel DNN Training", arXiv:1806.03377,
// 2018; and the optimizer in PipeDream's repository, whose objective is neither. Each gives other
// plans for the same profile, so all three are here.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/spec/profile.h"

namespace trireme::planner {

enum class PipedreamForm : uint8_t { kHierarchical, kFlat, kReleased };
std::string_view pipedreamFormName(PipedreamForm form);  // sosp19, arxiv18, released

// `components` of the level below (workers, for the first level) joined by one network.
struct NetworkLevel {
  int64_t components = 1;
  BytesPerSecond bandwidth;  // of a component
};

// Layers i+1 .. j lie between the down-sets i and j (down_sets.h); a_s are the bytes that cross the
// border of down-set s, w(i, j) and T(i, j) the weight bytes and the time of layers i+1 .. j.
// m workers in all, r replicas of a stage, B the bandwidth.
//
// kHierarchical (SOSP'19), levels k = 1 .. L, innermost first, m_k components of bandwidth B_k:
//   A_0(i, j) = T(i, j)
//   T_k(i, j, r) = max( A_{k-1}(i, j, m_{k-1}), 2 (r - 1) w(i, j) / B_k ) / r
//   A_k(i, j, m) = min( T_k(i, j, m), min_{s, r} max( A_k(i, s, m - r), 2 a_s / B_k,
//                                                     T_k(s, j, r) ) )
// kFlat (arXiv'18), one level: the same with
//   T(i, j, r) = max( T(i, j), 4 (r - 1) w(i, j) / (r B) ) / r
// kReleased (the code), per level; c_k = 1 on the first, m_{k-1} on the others:
//   whole(i, j, m) = ( A_{k-1}(i, j) + 4 (m - 1) w(i, j) / (m B_k) / c_k ) / m
//   last(s, j, r)  = max( ( A_{k-1}(s, j) + 4 (r - 1) w(s, j) / (r B_k) ) / r,
//                         2 a_s / (B_k r), 2 a_j / (B_k r) )
//   A_k(i, j, m) = min( whole(i, j, m), min_{s, r} max( A_k(i, s, m - r), last(s, j, r) ) )
//   The transfers 2 a are counted if `countTransfers`, the one of a_j unless j is the end. Under a
//   memory limit, a stage on r replicas whose first worker is number m - r must have
//   ceil((M - m) / r) (activations + weights) within it, M the components of the level (for the
//   first stage of a pipeline: m = r). So the last stage is never refused: the code's rule.
//
// All three use every component of every level; kReleased may leave some idle if
// `mayLeaveIdle`.
struct PipedreamProblem {
  spec::ProfileSpec profile;
  PipedreamForm form = PipedreamForm::kHierarchical;
  std::vector<NetworkLevel> levels;  // innermost first
  bool countTransfers = true;        // kReleased only, as are the next two
  bool mayLeaveIdle = false;
  std::optional<Bytes> memory;  // per worker

  // Whether the instance makes sense. kInvalidArgument: no level; components outside 1 .. 2^20, or
  // 2^30 and more workers; a bandwidth that is not above 0; several levels with kFlat; a memory
  // limit, no transfers or idle workers with another form than kReleased; a layer without exactly
  // one variant at tensor degree 1; a memory limit and a layer without an activation.
  Status check() const;

  // Whether `partition` is an answer and says the truth of itself: stages that cover the layers,
  // each after those it depends on, on exactly (at most, if mayLeaveIdle) the components there are,
  // within memory, and `time` what the recurrence gives for these stages (to 1e-9 of it).
  // kInvalidArgument, naming the first fault.
  Status verify(const struct PipedreamPartition& partition) const;

  int64_t numWorkers() const;
};

// On the levels above the first, every replica is a pipeline of its own: `inner`.
struct PipedreamStage {
  std::vector<int32_t> layers;  // each after those that it depends on
  int64_t replicas = 1;         // components of its level
  std::vector<PipedreamStage> inner;
};

struct PipedreamPartition {
  std::vector<PipedreamStage> stages;  // of the last level, in the order of the data
  Seconds time;                        // per microbatch in steady state, the objective
  Seconds dataParallelTime;            // of all layers on all workers, under the same formula
  Seconds oneWorkerTime;
  size_t numDownSets = 0;
};

// "15-1"; on several levels the inner pipelines in brackets: "3x(2-2)-1x(4)".
std::string describe(const std::vector<PipedreamStage>& stages);

// The stages of the first level as one pipeline, with the number of all their workers.
struct WorkerStage {
  std::vector<int32_t> layers;
  int64_t workers = 1;
  // What one worker holds in steady state under 1F1B with weight stashing:
  // ceil(workers from here to the end / workers) versions of its weights and activations. Absent if
  // a layer has no activation.
  std::optional<Bytes> memory;
};
std::vector<WorkerStage> workerStages(const PipedreamProblem& problem,
                                      const PipedreamPartition& partition);

// Exact: no partition of the recurrence is faster. O(sum over levels of P m_k^2) time for P triples
// of nested down-sets (of the last level: pairs), less what the bounds T(i, s) / (m - r) and
// T(s, j) / r cut off; O(S^2 m_k) memory on the levels below the last, S the down-sets. Of equally
// fast partitions it is always the same one, and never one that only splits up another's stage.
//
// kInvalidArgument: see check(). kResourceExhausted: too many down-sets. There is always an answer:
// one stage on all workers obeys the memory rule.
// `progress` hears the share of the work that is done.
Result<PipedreamPartition> partitionPipedream(const PipedreamProblem& problem,
                                              const std::function<void(double)>& progress = {});

}  // namespace trireme::planner
