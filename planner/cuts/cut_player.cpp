#include "planner/cuts/cut_player.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/cuts/chains.h"
#include "planner/cuts/cuts.h"
#include "planner/rounding.h"

namespace trireme::planner {
namespace {

// Moves that are judged in the time that a play takes for a pass.
constexpr int64_t kPairsOfPass = 4;
// Of what is known of one cut alone, moves may help that seem so much too slow.
constexpr double kTangentReach = 1.01;

bool isFaster(Seconds a, Seconds b) { return a < b * (1 - kTie); }

std::vector<double> layersOf(const Counts& counts) {
  std::vector<double> layers;
  for (const std::vector<int64_t>& stage : counts)
    layers.insert(layers.end(), stage.begin(), stage.end());
  return layers;
}

}  // namespace

Counts countsOf(const Ranges& ranges) {
  Counts counts;
  for (const auto& stage : ranges) {
    counts.emplace_back();
    for (const plan::LayerRange& range : stage) counts.back().push_back(range.count);
  }
  return counts;
}

CutPlayer::CutPlayer(StageCosts& costs, cost::FlushPlayer& flush, cost::Pipeline pipeline,
                     double factor, std::optional<Seconds> limit, int64_t mostPasses)
    : costs_(costs),
      pipeline_(std::move(pipeline)),
      flush_(flush),
      factor_(factor),
      limit_(limit ? *limit * (1 + kTie) : Seconds(std::numeric_limits<double>::infinity())),
      mostPasses_(mostPasses) {}

const CutPlayer::Stage& CutPlayer::stageOf(size_t rank, const std::vector<int64_t>& counts) {
  if (rank >= latest_.size()) latest_.resize(rank + 1);
  if (latest_[rank] != nullptr && latest_[rank]->first == counts) return latest_[rank]->second;
  const size_t kind = costs_.kindOf(rank);
  if (kind >= known_.size()) known_.resize(kind + 1);
  const auto [place, isNew] = known_[kind].try_emplace(counts);
  latest_[rank] = &*place;
  Stage& stage = place->second;
  if (!isNew) return stage;
  StageCosts::Stage cost = costs_.stageOf(rank, counts);
  const Seconds stop = pipeline_.stop();
  const auto pass = [&](size_t c) {
    return (cost.times.forward[c] + cost.times.backward[c] + stop * 2).count();
  };
  for (size_t c = 0; c < counts.size(); ++c) stage.all += pass(c);
  stage.first = pass(0);
  stage.last = pass(counts.size() - 1);
  if (!cost.times.weights.empty()) {
    stage.all += cost.times.weights.front().count();
    stage.first = pipeline_.postValidation ? 0 : (cost.times.forward.front() + stop).count();
    stage.last = 0;
  }
  stage.once = cost.once;
  stage.times = std::move(cost.times);
  return stage;
}

bool CutPlayer::fits(size_t rank, const std::vector<int64_t>& counts) {
  if (rank >= fitting_.size()) fitting_.resize(rank + 1);
  Fitting& fitting = fitting_[rank];
  if (fitting.latest != nullptr && fitting.latest->first == counts) return fitting.latest->second;
  const auto [place, isNew] = fitting.known.try_emplace(counts);
  if (isNew) place->second = costs_.fits(rank, counts);
  fitting.latest = &*place;
  return place->second;
}

bool CutPlayer::fits(const Counts& counts) {
  for (size_t rank = 0; rank < counts.size(); ++rank)
    if (!fits(rank, counts[rank])) return false;
  return true;
}

cost::OnceTimes CutPlayer::put(const Counts& counts) {
  cost::OnceTimes once;
  pipeline_.stages.resize(counts.size());
  put_.resize(counts.size(), nullptr);
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    const Stage& stage = stageOf(rank, counts[rank]);
    if (std::exchange(put_[rank], &stage) != &stage) pipeline_.stages[rank] = stage.times;
    once = longest(once, stage.once);
  }
  return once;
}

Seconds CutPlayer::timeOf(const Counts& counts) {
  const auto [place, isNew] = played_.try_emplace(counts);
  if (!isNew) return place->second;
  const Seconds once = put(counts).total();
  const auto chunks = static_cast<int64_t>(counts.size() * counts.front().size());
  numPasses_ += 2 * pipeline_.numMicrobatches * chunks;
  // With post-validation what is priced is no chain of a flush, and the latest alone are of use.
  if (pipeline_.postValidation) return place->second = (flush_.timeOf(pipeline_) + once) * factor_;
  cost::Chain chain;
  const Seconds flush = flush_.timeOf(pipeline_, &chain);
  addChains(chain, counts);
  return place->second = (flush + once) * factor_;
}

// With the first cut also what the closed form knows of all.
void CutPlayer::addChains(const cost::Chain& played, const Counts& counts) {
  const std::vector<double> layers = layersOf(counts);
  const bool isFirst = !moves_.knowsChains();
  if (isFirst) learnLayer(counts);
  const auto ofLayer = [&](PassKind kind, size_t chunk) {
    return (chunk == 0 ? ofFirst_ : chunk + 1 == layers.size() ? ofLast_ : ofLayer_)[kind];
  };
  const bool hasClosedForms =
      pipeline_.schedule != plan::ScheduleKind::kGpipe && !pipeline_.postValidation;
  if (isFirst && hasClosedForms)
    for (cost::Chain& chain : closedForms(pipeline_)) {
      chain.length = lengthOf(chain, pipeline_);
      moves_.addChain(lineOf(chain, ofLayer, layers));
    }
  moves_.addChain(lineOf(played, ofLayer, layers));
}

// How the best changes as far as one layer goes.
void CutPlayer::addTangent() {
  moves_ = {};
  put(counts_);
  cost::Chain chain;
  flush_.timeOf(pipeline_, &chain);
  addChains(chain, counts_);
}

// What a layer more is on most chunks and, as layers and what is beside them need not add up, on
// the first and the last one.
void CutPlayer::learnLayer(const Counts& counts) {
  const auto addedTo = [&](size_t rank, size_t chunk, LayerTimes& times) {
    std::vector<int64_t> more = counts[rank];
    ++more[chunk];
    const Stage& before = stageOf(rank, counts[rank]);
    const Stage& with = stageOf(rank, more);
    times[kForwardPass] = (with.times.forward[chunk] - before.times.forward[chunk]).count();
    times[kBackwardPass] = (with.times.backward[chunk] - before.times.backward[chunk]).count();
    if (!with.times.weights.empty())
      times[kWeightsPass] = (with.times.weights[chunk] - before.times.weights[chunk]).count();
    return cost::OnceTimes{with.once.reducing - before.once.reducing,
                           with.once.updating - before.once.updating};
  };
  const size_t last = counts.size() - 1, chunk = counts.front().size() - 1;
  addedTo(0, 0, ofFirst_);
  onceOfLayer_ = addedTo(last, chunk, ofLast_);
  if (chunk > 0 || last > 1) addedTo(chunk > 0 ? 0 : 1, chunk, ofLayer_);
}

bool CutPlayer::play(const Counts& counts) {
  if (!fits(counts)) return false;
  const Seconds once = put(counts).total();
  const auto isSlow = [&](Seconds step) {
    return step > limit_ || (best_ && !isFaster(step, best_->step));
  };
  if (isSlow((cost::pipelineTime(pipeline_) + once) * factor_)) return false;
  const Seconds step = timeOf(counts);
  if (isSlow(step)) return false;
  best_ = {rangesFrom(counts), step};
  counts_ = counts;
  return true;
}

void CutPlayer::descend(size_t mostInVain) {
  while (best_ && mayPlay() && stepDown(mostInVain)) {
  }
}

int64_t CutPlayer::leastOf(const Chunk& at, const Counts& counts) const {
  const bool isFirst = at.rank == 0 && at.chunk == 0;
  const bool isLast = at.rank + 1 == counts.size() && at.chunk + 1 == counts[at.rank].size();
  return costs_.takesEmptyEnds() && (isFirst || isLast) ? 0 : 1;
}

std::optional<Counts> CutPlayer::nearest(const std::vector<double>& layers, int64_t left,
                                         int64_t chunks) {
  const auto perStage = static_cast<size_t>(chunks);
  Counts counts(layers.size() / perStage, std::vector<int64_t>(perStage));
  std::vector<size_t> order(layers.size());  // of chunks that may have more
  std::iota(order.begin(), order.end(), size_t{0});
  const auto countAt = [&](size_t i) -> int64_t& { return counts[i / perStage][i % perStage]; };
  const auto missing = [&](size_t i) { return layers[i] - static_cast<double>(countAt(i)); };
  for (const size_t i : order) {
    countAt(i) = std::max(static_cast<int64_t>(std::floor(layers[i] + 1e-6)),
                          leastOf({i / perStage, i % perStage}, counts));
    left -= countAt(i);
  }
  for (; left > 0 && !order.empty(); --left) {
    const auto most = std::max_element(order.begin(), order.end(),
                                       [&](size_t a, size_t b) { return missing(a) < missing(b); });
    ++countAt(*most);
    if (fits(*most / perStage, counts[*most / perStage])) continue;
    --countAt(*most);
    ++left;
    order.erase(most);
  }
  if (left != 0) return std::nullopt;
  return counts;
}

std::vector<LayerMoves::Move> CutPlayer::movesFrom(const Counts& counts, double enough) {
  const size_t chunks = counts.front().size();
  const auto all = static_cast<int64_t>(counts.size() * chunks);
  numPasses_ += all * all / kPairsOfPass;
  std::vector<size_t> givers;
  std::vector<cost::OnceTimes> once;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    once.push_back(stageOf(rank, counts[rank]).once);
    for (size_t c = 0; c < chunks; ++c)
      if (mayGive({rank, c}, counts)) givers.push_back(rank * chunks + c);
  }
  return moves_.from(layersOf(counts), givers, chunks, {once, onceOfLayer_}, enough);
}

bool CutPlayer::stepDown(size_t mostInVain) {
  const bool isTangent = pipeline_.postValidation;
  if (isTangent) addTangent();
  const Counts from = counts_;
  const size_t chunks = from.front().size();
  const double enough = (best_->step / factor_).count() * (isTangent ? kTangentReach : 1 - kTie);
  std::vector<LayerMoves::Move> moves = movesFrom(from, enough);
  for (size_t inVain = 0; inVain < mostInVain && !moves.empty() && mayPlay();) {
    const auto likeliest =
        std::min_element(moves.begin(), moves.end(),
                         [](const auto& a, const auto& b) { return a.time() < b.time(); });
    Counts moved = from;
    --moved[likeliest->from / chunks][likeliest->from % chunks];
    ++moved[likeliest->to / chunks][likeliest->to % chunks];
    *likeliest = moves.back();
    moves.pop_back();
    const size_t known = played_.size();
    if (play(moved)) return true;
    if (played_.size() == known) continue;
    ++inVain;
    if (!isTangent) moves_.lookAgain(layersOf(from), enough, moves);
  }
  return false;
}

}  // namespace trireme::planner
