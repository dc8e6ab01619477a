// All cuts of a plan whose schedule is played, without playing all of them. Internal to planner/.
#pragma once
#include <cstdint>
#include <vector>

#include "planner/cuts/best_cut.h"
#include "planner/cuts/cut_player.h"

namespace trireme::planner {

// How the layers of a stage may lie on its chunks, each with one at least, where StageCosts does
// not take empty ends.
enum class Spread : uint8_t {
  kEven,  // chunks differ by one at most
  kAny,
};

// Work for a search, in passes of chunks: a tenth of a second. Of Trireme's own programs so much
// for even chunks, in parts for single plans at most, and so much for any.
inline constexpr int64_t kMostPassesOfExact = 50'000'000;
inline constexpr int64_t kMostPassesOfEven = 20'000'000;

struct ExactCuts {
  // Of those that fit and take less than `enough`, fastest first, at most `most`: the fastest there
  // are, or, where `others` is 0, that were found.
  std::vector<CutSearch::Cut> fastest;
  // All others that fit take at least this: `enough`, or as much as the last of `fastest` where
  // there may be more. 0: not known, as there are too many to look at.
  Seconds others;
};

struct ExactQuestion {
  cost::Pipeline pipeline;  // but for its stages
  int64_t numLayers = 0;
  int64_t virtualStages = 1;
  size_t numStages = 0;
  Spread spread = Spread::kAny;
  cost::OnceTimes leastOnce;  // each on some stage, whatever the cut
  Seconds enough;
  size_t most = 1;
};

// Branch and bound over the stages, from the last one to the first. With the layers of the last
// stages fixed the flush takes no less than these played alone (cost::TailPlayer): stages next to
// each other whose chunks do not match hold each other up at every change of chunks, whatever the
// others do, so that of hundreds of ways to cut a stage a few are left.
//
// `player` says what stages cost, and plays what is left. Takes what it plays off `passes`, in
// passes of chunks, until they are used up. Knows nothing of GPipe, of postValidation.
ExactCuts exactCuts(const ExactQuestion& question, CutPlayer& player, int64_t& passes);

}  // namespace trireme::planner
