#include "planner/cuts/stage_options.h"

#include <algorithm>
#include <set>
#include <utility>

#include "planner/cuts/cuts.h"
#include "planner/rounding.h"

namespace trireme::planner {
namespace {

// Ways to cut one stage: more are too many to look at.
constexpr size_t kMostOptions = 2000;  // that may be fast enough
constexpr double kMostWays = 8000;

double workOf(const cost::StageTimes& times) {
  double work = 0;
  for (const auto* passes : {&times.forward, &times.backward, &times.weights})
    for (const Seconds time : *passes) work += time.count();
  return work;
}

// The less of every time.
void lower(cost::StageTimes& least, const cost::StageTimes& other) {
  const auto lowerAll = [](std::vector<Seconds>& times, const std::vector<Seconds>& others) {
    for (size_t c = 0; c < times.size(); ++c) times[c] = std::min(times[c], others[c]);
  };
  lowerAll(least.forward, other.forward);
  lowerAll(least.backward, other.backward);
  lowerAll(least.weights, other.weights);
}

}  // namespace

StageOptions::StageOptions(const ExactQuestion& question, CutPlayer& player)
    : question_(question),
      player_(player),
      stages_(question.numStages),
      stop_(question.pipeline.stop().count()),
      least_(question.pipeline),
      options_(stages_),
      groups_(stages_) {}

bool StageOptions::find() {
  for (size_t rank = 0; rank < stages_; ++rank) least_.stages.push_back(leastOf(rank).times);
  findOthers();
  findMost();
  std::vector<int64_t> fewest;
  for (size_t rank = 0; rank < stages_; ++rank) {
    const int64_t others = mostBefore_.back() - most_[rank];
    fewest.push_back(std::max(leastLayers(rank), question_.numLayers - others));
    double ways = 0;
    for (int64_t layers = fewest[rank]; layers <= most_[rank]; ++layers)
      ways += waysToSpread(layers);
    if (ways > kMostWays) return false;
  }
  for (size_t rank = 0; rank < stages_; ++rank) {
    for (int64_t layers = fewest[rank]; layers <= most_[rank]; ++layers)
      if (!addOptions(rank, layers)) return false;
    if (!isLast(rank)) findGroups(rank);
  }
  limitLayers();
  return true;
}

bool StageOptions::mayHoldAll() const {
  return std::none_of(options_.begin(), options_.end(),
                      [](const auto& options) { return options.empty(); }) &&
         leastBefore_.back() <= question_.numLayers && question_.numLayers <= mostBefore_.back();
}

int64_t StageOptions::leastLayers(size_t rank) const {
  return player_.takesEmptyEnds() && (isFirst(rank) || isLast(rank)) ? question_.virtualStages - 1
                                                                     : question_.virtualStages;
}

const CutPlayer::Stage& StageOptions::leastOf(size_t rank) {
  std::vector<int64_t> counts(static_cast<size_t>(question_.virtualStages), 1);
  if (player_.takesEmptyEnds() && isFirst(rank)) counts.front() = 0;
  if (player_.takesEmptyEnds() && isLast(rank)) counts.back() = 0;
  return player_.stageOf(rank, counts);
}

// The least of the other stages on the path of a stage: the first chunks of those before it, the
// last ones of those behind.
void StageOptions::findOthers() {
  const bool splits = plan::splitsBackward(question_.pipeline.schedule);
  const cost::Hops hops(question_.pipeline);
  const auto pass = [&](size_t rank, size_t chunk, Seconds hop) {
    const cost::StageTimes& times = least_.stages[rank];
    const double transfer = hop.count() + stop_, forward = times.forward[chunk].count() + transfer;
    return splits ? forward : forward + times.backward[chunk].count() + transfer;
  };
  others_.assign(stages_, 0);
  for (size_t rank = 0; rank < stages_; ++rank) {
    for (size_t before = 0; before < rank; ++before)
      others_[rank] += pass(before, 0, hops.behind(before));
    if (splits) continue;
    const auto last = static_cast<size_t>(question_.virtualStages) - 1;
    for (size_t after = rank + 1; after < stages_; ++after)
      others_[rank] += pass(after, last, hops.behind(after - 1));
  }
}

double StageOptions::pathOf(size_t rank, const CutPlayer::Stage& stage) const {
  const double stops = 2 * stop_ * static_cast<double>(question_.virtualStages);
  const auto microbatches = static_cast<double>(question_.pipeline.numMicrobatches);
  return (workOf(stage.times) + stops) * microbatches + others_[rank];
}

bool StageOptions::isSlow(double path, const cost::OnceTimes& once) const {
  return (Seconds(path) + once.total()) * player_.factor() >= question_.enough * (1 - kTie);
}

// The longer chunks behind, and in front where that is another legal spread.
std::vector<std::vector<int64_t>> StageOptions::evenSpreads(size_t rank, int64_t layers) const {
  std::vector<int64_t> counts = spreadOver(layers, question_.virtualStages);
  if (isLast(rank) && counts.front() == 0) std::reverse(counts.begin(), counts.end());
  std::vector<std::vector<int64_t>> spreads = {counts};
  if (counts.front() > 0 && counts.back() > 0) spreads.emplace_back(counts.rbegin(), counts.rend());
  return spreads;
}

// Of even chunks the one of an end has one of the rest or not, and all else is the same.
StageOptions::Excess StageOptions::excessOf(size_t rank, int64_t layers) {
  Excess excess{true, true};
  for (const std::vector<int64_t>& counts : evenSpreads(rank, layers)) {
    const CutPlayer::Stage& stage = player_.stageOf(rank, counts);
    const double path = pathOf(rank, stage);
    const cost::OnceTimes& least = question_.leastOnce;
    excess.isTooMuch &= isSlow(path, isEven() ? longest(stage.once, least) : least);
    excess.isMoreToo &= isSlow(path, least);
  }
  return excess;
}

void StageOptions::findMost() {
  mostBefore_ = {0};
  leastBefore_ = {0};
  for (size_t rank = 0; rank < stages_; ++rank) {
    int64_t most = leastLayers(rank) - 1;
    for (int64_t layers = most + 1; layers <= question_.numLayers; ++layers) {
      const Excess excess = excessOf(rank, layers);
      if (!excess.isTooMuch) most = layers;
      if (excess.isMoreToo) break;
    }
    most_.push_back(most);
    mostBefore_.push_back(mostBefore_.back() + most);
    leastBefore_.push_back(leastBefore_.back() + leastLayers(rank));
  }
}

// By what was found.
void StageOptions::limitLayers() {
  for (size_t rank = 0; rank < stages_; ++rank) {
    const std::vector<StageOption>& options = options_[rank];
    mostBefore_[rank + 1] = mostBefore_[rank] + (options.empty() ? 0 : options.back().layers);
    leastBefore_[rank + 1] = leastBefore_[rank] + (options.empty() ? 0 : options.front().layers);
  }
}

// Of chunks that all have a layer: v of n layers, (n mod v) or (v - 1) of (n - 1).
double StageOptions::waysToSpread(int64_t layers) const {
  const int64_t v = question_.virtualStages;
  const int64_t of = isEven() ? v : layers - 1, picked = isEven() ? layers % v : v - 1;
  double ways = 1;
  for (int64_t i = 0; i < picked; ++i)
    ways *= static_cast<double>(of - i) / static_cast<double>(i + 1);
  return ways;
}

// False: there are too many.
bool StageOptions::addOptions(size_t rank, int64_t layers) {
  now_.counts.resize(static_cast<size_t>(question_.virtualStages));
  now_.fewest = isEven() ? layers / question_.virtualStages : 0;
  now_.most = isEven() ? now_.fewest + 1 : layers;
  now_.isTight = isTight(rank, layers);
  now_.fewestOf.clear();
  for (size_t chunk = 0; chunk < now_.counts.size(); ++chunk)
    now_.fewestOf.push_back(fewestOn(rank, chunk));
  now_.behind.assign(now_.counts.size() + 1, 0);
  for (size_t chunk = now_.counts.size(); chunk-- > 0;)
    now_.behind[chunk] = now_.behind[chunk + 1] + now_.fewestOf[chunk];
  return now_.behind[0] > layers || spread(rank, 0, layers);
}

// Where the longer chunks are in front more microbatches wait, and where they are behind more of
// the work of the last stage is on the chunk of the head.
bool StageOptions::isTight(size_t rank, int64_t layers) {
  const auto spreads = evenSpreads(rank, layers);
  return !std::all_of(spreads.begin(), spreads.end(),
                      [&](const auto& counts) { return player_.fits(rank, counts); });
}

// The ways to have `left` layers on the chunks from `chunk` on, each within the limits.
bool StageOptions::spread(size_t rank, size_t chunk, int64_t left) {
  if (chunk == now_.counts.size()) return left > 0 || addOption(rank);
  const auto behind = static_cast<int64_t>(now_.counts.size() - chunk) - 1;
  const int64_t most = std::min(now_.most, left - now_.behind[chunk + 1]);
  for (int64_t n = std::max(now_.fewestOf[chunk], left - now_.most * behind); n <= most; ++n) {
    now_.counts[chunk] = n;
    if (!spread(rank, chunk + 1, left - n)) return false;
  }
  return true;
}

// Of the options that are being added.
int64_t StageOptions::fewestOn(size_t rank, size_t chunk) const {
  const bool isEnd = (isFirst(rank) && chunk == 0) ||
                     (isLast(rank) && static_cast<int64_t>(chunk) + 1 == question_.virtualStages);
  return std::max<int64_t>(now_.fewest, player_.takesEmptyEnds() && isEnd ? 0 : 1);
}

bool StageOptions::addOption(size_t rank) {
  const std::vector<int64_t>& counts = now_.counts;
  const CutPlayer::Stage& stage = player_.stageOf(rank, counts);
  if (isSlow(pathOf(rank, stage), stage.once)) return true;
  if (now_.isTight && !player_.fits(rank, counts)) return true;
  int64_t layers = 0;
  for (const int64_t n : counts) layers += n;
  options_[rank].push_back({counts, layers, &stage});
  return options_[rank].size() <= kMostOptions;
}

void StageOptions::findGroups(size_t rank) {
  for (size_t chunk = 0; chunk < static_cast<size_t>(question_.virtualStages); ++chunk) {
    std::set<int64_t> numbers;
    for (const StageOption& option : options_[rank]) numbers.insert(option.counts[chunk]);
    for (const int64_t n : numbers)
      if (n > *numbers.begin()) groups_[rank].push_back(groupOf(rank, chunk, n));
  }
}

OptionGroup StageOptions::groupOf(size_t rank, size_t chunk, int64_t layers) const {
  OptionGroup group{chunk, layers, 0, {}, {kNoCut, kNoCut}};
  for (const StageOption& option : options_[rank]) {
    if (option.counts[chunk] < layers) continue;
    group.once = shortest(group.once, option.stage->once);
    if (group.least.forward.empty()) {
      group.fewest = option.layers;
      group.least = option.stage->times;
    } else {
      lower(group.least, option.stage->times);
    }
  }
  return group;
}

}  // namespace trireme::planner
