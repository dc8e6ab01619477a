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

// Of described stacks all plans on as many devices that may need less than is known.
template <typename MayBeNews, typename Visit>
Status Misfits::forEachNews(int64_t gpus, const MayBeNews& mayBeNews, const Visit& visit) {
  std::vector<Rejection> ignored;
  for (const Group& group : groupsFor(query_, gpus, ignored)) {
    const Degrees degrees = degreesOf(group);
    if (!mayBeNews(degrees, Bytes(0)) || !hasPlan(query_, group)) continue;
    TRIREME_ASSIGN_OR_RETURN(const SharedBlocks blocks, costs_.blocks(planOf(query_, group)));
    if (!mayBeNews(degrees, leastMemory(query_, group, *blocks))) continue;
    forEachPlan(query_, group, [&](plan::Plan plan) {
      const Bytes least = leastMemory(query_, plan, *blocks);
      if (mayBeNews(degrees, least)) visit(degrees, Uncut{least, std::move(plan), blocks});
    });
  }
  return {};
}

Status Misfits::cutLean(int64_t gpus) {
  return forEachNews(
      gpus, [&](const Degrees&, Bytes least) { return mayBeLean(least); },
      [&](const Degrees&, Uncut uncut) {
        const Bytes memory = cutLeanest(uncut.plan, *uncut.blocks);
        noteLean(std::move(uncut.plan), memory);
      });
}

// Those that seem to need least first, and of schedules 1F1B alone, which keeps least: few are cut.
Status Misfits::cutLeanestOf(int64_t gpus, const std::function<bool(const Degrees&)>& isAsked) {
  const bool isFree = !query_.pins.schedule && !query_.pins.virtualStages;
  std::map<Degrees, std::vector<Uncut>> plans;
  TRIREME_RETURN_IF_ERROR(forEachNews(
      gpus,
      [&](const Degrees& degrees, Bytes least) {
        const auto known = least_.find(degrees);
        return known != least_.end() && least < known->second && isAsked(degrees);
      },
      [&](const Degrees& degrees, Uncut uncut) {
        if (isFree && uncut.plan.schedule != plan::ScheduleKind::k1F1B) return;
        plans[degrees].push_back(std::move(uncut));
      }));
  for (auto& [degrees, uncut] : plans) {
    std::stable_sort(uncut.begin(), uncut.end(),
                     [](const Uncut& a, const Uncut& b) { return a.least < b.least; });
    Bytes& known = least_[degrees];
    for (auto next = uncut.begin(); next != uncut.end() && next->least < known; ++next)
      known = std::min(known, cutLeanest(next->plan, *next->blocks));
  }
  return {};
}

Result<std::vector<Rejection>> Misfits::rejections(
    int64_t gpus, const std::function<bool(const Degrees&)>& mayFit) {
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
  // The search opened those that may be fast, which need most.
  if (!query_.stack.ownPrograms && query_.pins.layers.empty())
    TRIREME_RETURN_IF_ERROR(cutLeanestOf(gpus, isAsked));
  std::vector<Rejection> rejections;
  for (const auto& [degrees, memory] : least_) {
    if (!isAsked(degrees) || memory <= query_.cluster.device.memory) continue;
    const auto [tp, pp, cp, dp] = degrees;
    rejections.push_back(
        {"memory",
         fmt::format("tp {} pp {}{} dp {}", tp, pp, cp > 1 ? fmt::format(" cp {}", cp) : "", dp),
         formatBytes(memory), formatBytes(query_.cluster.device.memory)});
  }
  return rejections;
}

}  // namespace trireme::planner
