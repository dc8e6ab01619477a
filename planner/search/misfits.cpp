#include "planner/search/misfits.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "cost_models/described_memory.h"
#include "ir/base/format.h"

namespace trireme::planner {
namespace {

// Own programs: bounds of memory are within some per cent of it.
constexpr size_t kMostLean = 64;

}  // namespace

bool Misfits::mayBeLean(Bytes least) const {
  if (!query_.stack.ownPrograms) return !leanest_ || least < leanestMemory_;
  return lean_.size() < kMostLean || least.count() < lean_.rbegin()->first;
}

bool Misfits::isNews(const Degrees& degrees, Bytes least) const {
  const auto known = least_.find(degrees);
  return known == least_.end() || least < known->second;
}

void Misfits::noteLean(plan::Plan plan, Bytes memory) {
  if (leanest_ && memory >= leanestMemory_) return;
  leanest_ = std::move(plan);
  leanestMemory_ = memory;
}

void Misfits::note(const plan::Plan& plan, Bytes memory) {
  const auto [place, isNew] = least_.try_emplace(degreesOf(plan), memory);
  if (!isNew) place->second = std::min(place->second, memory);
  if (query_.stack.ownPrograms) {
    lean_.emplace(memory.count(), plan);
    if (lean_.size() > kMostLean) lean_.erase(std::prev(lean_.end()));
  }
  noteLean(plan, memory);
}

void Misfits::noteUncut(plan::Plan plan, const SharedBlocks& blocks) {
  const Bytes least = leastMemory(query_, plan, *blocks);
  const auto [place, isNew] = uncut_.try_emplace(degreesOf(plan));
  if (isNew || least < place->second.least) place->second = {least, std::move(plan), blocks};
}

Bytes Misfits::cutLeanest(plan::Plan& plan, const BlockCosts& blocks) {
  plan.layers = CutSearch(query_, plan, blocks, slots_).leanest();
  simplifyRecomputed(plan);
  return cost::describedMemory(
             {*blocks.described, query_.model, plan, query_.cluster, query_.stack.description})
      .total();
}

Result<plan::Plan> Misfits::findLeanest(int64_t gpus) {
  if (query_.stack.ownPrograms)
    TRIREME_RETURN_IF_ERROR(estimateLean());
  else if (query_.pins.layers.empty())
    TRIREME_RETURN_IF_ERROR(cutLean(gpus));
  if (!leanest_) return Error(internalError("no plan fits, and none is known that does not"));
  return *leanest_;
}

// All were bounded; which is leanest is known when those with the least bounds are estimated.
Status Misfits::estimateLean() {
  std::optional<Bytes> least;
  for (const auto& [bound, plan] : lean_) {
    if (least && Bytes(bound) >= *least) break;
    TRIREME_ASSIGN_OR_RETURN(const cost::Estimate estimate, costs_.estimate(plan));
    if (least && estimate.memory.total() >= *least) continue;
    least = estimate.memory.total();
    leanest_ = plan;
  }
  return {};
}

// Only what may be leaner than the leanest so far is cut.
Status Misfits::cutLean(int64_t gpus) {
  std::vector<Rejection> ignored;
  for (const Group& group : groupsFor(query_, gpus, ignored)) {
    if (!hasPlan(query_, group)) continue;
    TRIREME_ASSIGN_OR_RETURN(const SharedBlocks shared, costs_.blocks(planOf(query_, group)));
    const BlockCosts& blocks = *shared;
    if (!mayBeLean(leastMemory(query_, group, blocks))) continue;
    forEachPlan(query_, group, [&](plan::Plan plan) {
      if (!mayBeLean(leastMemory(query_, plan, blocks))) return;
      const Bytes memory = cutLeanest(plan, blocks);
      noteLean(std::move(plan), memory);
    });
  }
  return {};
}

std::vector<Rejection> Misfits::rejections(int64_t gpus,
                                           const std::function<bool(const Degrees&)>& mayFit) {
  const auto isAsked = [&](const Degrees& degrees) {
    const auto [tp, pp, cp, dp] = degrees;
    return tp * pp * cp * dp == gpus && !mayFit(degrees);
  };
  for (auto& [degrees, uncut] : uncut_) {
    if (!isAsked(degrees)) continue;
    const Bytes memory = cutLeanest(uncut.plan, *uncut.blocks);
    const auto [place, isNew] = least_.try_emplace(degrees, memory);
    if (!isNew) place->second = std::min(place->second, memory);
  }
  std::vector<Rejection> rejections;
  for (const auto& [degrees, memory] : least_) {
    if (!isAsked(degrees)) continue;
    const auto [tp, pp, cp, dp] = degrees;
    rejections.push_back(
        {"memory",
         fmt::format("tp {} pp {}{} dp {}", tp, pp, cp > 1 ? fmt::format(" cp {}", cp) : "", dp),
         formatBytes(memory), formatBytes(query_.cluster.device.memory)});
  }
  return rejections;
}

}  // namespace trireme::planner
