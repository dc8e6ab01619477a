#include "ir/program/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace trireme::program {
namespace {

constexpr std::string_view kPrefix = "cuda:";
constexpr std::array<GpuTarget, 3> kTargets = {
    {{kLeastCapability, false, "sm_80"}, {90, false, "sm_90"}, {90, true, "sm_90a"}}};  // sorted

std::string knownNames() {
  std::string names;
  for (const GpuTarget& target : kTargets)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", target.name);
  return names;
}

// 91 of "sm_91", "sm_91a"; nothing of anything else.
std::optional<int> capabilityOf(std::string_view name) {
  constexpr std::string_view kStem = "sm_";
  if (!name.starts_with(kStem)) return std::nullopt;
  int capability = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kStem.size(), end, capability);
  const bool hasSuffix = end - rest == 1 && (*rest == 'a' || *rest == 'f');
  if (error != std::errc() || capability < 10 || (rest != end && !hasSuffix)) return std::nullopt;
  return capability;
}

// Why there is no target of that name, and which would do.
Status unknown(std::string_view name, std::string_view arch) {
  const std::string there = fmt::format("there are {}", knownNames());
  if (name.empty())
    return invalidArgument(fmt::format(
        "'{}': a name is missing: one comma stands between two names; {}", arch, there));
  if (name.starts_with(kPrefix))
    return invalidArgument(fmt::format(
        "'{}': {} stands once, in front of all names: cuda:sm_80,sm_90", arch, kPrefix));
  if (name == "host" || name == "x86-64")
    return invalidArgument(
        fmt::format("'{}': a bundle is for GPUs or for hosts; compile one for each", arch));
  const std::optional<int> capability = capabilityOf(name);
  if (!capability) return invalidArgument(fmt::format("no target {}; {}", name, there));
  const std::optional<GpuTarget> nearest = nearestTarget(*capability);
  if (!nearest)
    return invalidArgument(
        fmt::format("no target {}: {} is the oldest; {}", name, kTargets.front().name, there));
  return invalidArgument(fmt::format(
      "no target {}; the nearest is {}, which GPUs of compute capability {} run as well; {}", name,
      nearest->name, capabilityName(*capability), there));
}

}  // namespace

bool isGpuArch(std::string_view arch) { return arch.starts_with(kPrefix); }

Result<std::vector<GpuTarget>> parseGpuTargets(std::string_view arch) {
  if (!isGpuArch(arch)) {
    const bool isMixed = arch.find(kPrefix) != std::string_view::npos;
    return Error(isMixed ? unknown("host", arch)
                         : invalidArgument(fmt::format("no target {}; there are {}{}", arch,
                                                       kPrefix, knownNames())));
  }
  std::vector<GpuTarget> targets;
  for (size_t begin = kPrefix.size(), end = 0; begin <= arch.size(); begin = end + 1) {
    end = std::min(arch.find(',', begin), arch.size());
    const std::string_view name = arch.substr(begin, end - begin);
    const auto* known = std::find_if(kTargets.begin(), kTargets.end(),
                                     [&](const GpuTarget& t) { return t.name == name; });
    if (known == kTargets.end()) return Error(unknown(name, arch));
    if (std::find(targets.begin(), targets.end(), *known) != targets.end())
      return Error(invalidArgument(fmt::format("'{}': {} stands twice", arch, name)));
    targets.push_back(*known);
  }
  std::sort(targets.begin(), targets.end());
  return targets;
}

std::string printGpuTargets(const std::vector<GpuTarget>& targets) {
  std::string text;
  for (const GpuTarget& target : targets)
    text += fmt::format("{}{}", text.empty() ? kPrefix : ",", target.name);
  return text;
}

const GpuTarget& ptxTarget(const std::vector<GpuTarget>& targets) {
  TRIREME_CHECK(!targets.empty());
  const auto later = std::find_if(targets.begin(), targets.end(),
                                  [](const GpuTarget& target) { return !target.exact; });
  return later != targets.end() ? *later : targets.front();
}

bool runsOn(const std::vector<GpuTarget>& targets, int capability) {
  return std::any_of(targets.begin(), targets.end(), [&](const GpuTarget& target) {
    return target.exact ? capability == target.capability : capability >= target.capability;
  });
}

std::optional<GpuTarget> nearestTarget(int capability) {
  std::optional<GpuTarget> nearest;
  for (const GpuTarget& target : kTargets)
    if (!target.exact && target.capability <= capability) nearest = target;
  return nearest;
}

std::string capabilityName(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

}  // namespace trireme::program
