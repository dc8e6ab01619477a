#include "planner/answer/recut.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/cuts/best_cut.h"
#include "planner/cuts/cuts.h"
#include "planner/cuts/own_cuts.h"
#include "planner/space/space.h"

namespace trireme::planner {
namespace {

bool isBetter(const cost::Estimate& a, const cost::Estimate& b) {
  if (a.fits() != b.fits()) return a.fits();
  return a.fits() ? a.step < b.step : a.missing() < b.missing();
}

// The fastest of them, one after the other; what cannot be faster is not estimated.
class Fastest {
 public:
  Fastest(const plan::Plan& plan, const CostFunctions& costs) : plan_(plan), costs_(costs) {}

  Status tryCut(Ranges layers, Seconds bound) {
    if (fits() && bound > best_->estimate.step) return {};
    Recut recut{plan_, {}};
    recut.plan.layers = std::move(layers);
    simplifyRecomputed(recut.plan);
    TRIREME_ASSIGN_OR_RETURN(recut.estimate, costs_.estimate(recut.plan));
    if (!best_ || isBetter(recut.estimate, best_->estimate)) best_ = std::move(recut);
    return {};
  }
  bool fits() const { return best_ && best_->estimate.fits(); }
  Seconds step() const { return fits() ? best_->estimate.step : kNoCut; }
  Recut take() { return *std::move(best_); }

 private:
  const plan::Plan& plan_;
  const CostFunctions& costs_;
  std::optional<Recut> best_;
};

Result<Recut> fastestOf(const Query& query, const plan::Plan& plan, const CostFunctions& costs) {
  TRIREME_ASSIGN_OR_RETURN(const SharedBlocks blocks, costs.blocks(plan));
  const std::vector<Ranges> cuts = cutsFor(query, plan, *blocks);
  Fastest fastest(plan, costs);
  if (!blocks->described) {
    std::vector<BoundedCut> bounded = ownCuts(query, plan, *blocks, *costs.player, cuts);
    std::sort(bounded.begin(), bounded.end(),
              [](const BoundedCut& a, const BoundedCut& b) { return a.bound < b.bound; });
    for (BoundedCut& cut : bounded)
      TRIREME_RETURN_IF_ERROR(fastest.tryCut(std::move(cut.layers), cut.bound));
    if (hasManyCuts(plan)) {
      CutFloor floor(query, *blocks);
      int64_t passes = kMostPassesOfOne;
      AllOwnCuts all = allOwnCuts(query, plan, *blocks, *costs.player,
                                  AllCuts(query, plan, *blocks, floor), fastest.step(), passes);
      if (all.cut) TRIREME_RETURN_IF_ERROR(fastest.tryCut(std::move(all.cut->layers), all.bound));
    }
    if (fastest.fits()) return fastest.take();
  }
  for (const Ranges& cut : cuts) TRIREME_RETURN_IF_ERROR(fastest.tryCut(cut, Seconds(0)));
  if (fastest.fits() || !blocks->described) return fastest.take();
  SlotTable slots;
  TRIREME_RETURN_IF_ERROR(
      fastest.tryCut(CutSearch(query, plan, *blocks, slots).leanest(), Seconds(0)));
  return fastest.take();
}

}  // namespace

Result<Recut> fastestCut(const Query& query, const plan::Plan& plan, const CostFunctions& costs) {
  if (query.pins.layers.empty()) return fastestOf(query, plan, costs);
  Query uncut = query;
  uncut.pins.layers.clear();
  return fastestOf(uncut, plan, costs);
}

}  // namespace trireme::planner
