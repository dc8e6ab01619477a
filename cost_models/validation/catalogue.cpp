#include "cost_models/validation/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <span>
#include <tuple>

#include "ir/spec/load.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/shipped.h"

namespace trireme::cost {
namespace {

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return result;
}

// Words between spaces, hyphens and underscores, without what stands in brackets.
std::vector<std::string> wordsOf(std::string_view text) {
  std::vector<std::string> words(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '(') ++depth;
    if (c == ' ' || c == '-' || c == '_' || c == '(')
      words.emplace_back();
    else if (depth == 0)
      words.back() += c;
    if (c == ')' && depth > 0) --depth;
  }
  std::erase(words, "");
  return words;
}

// "80GB", "80GIB" or "80G"; 0: something else.
double gigabytesOf(const std::string& word) {
  double value = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, code] = std::from_chars(word.data(), end, value, std::chars_format::fixed);
  if (code != std::errc()) return 0;
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  return unit == "GB" || unit == "GIB" || unit == "G" ? value : 0;
}

bool isPcie(const std::string& kind) { return kind.starts_with("PCIE"); }
// "NVL72", but not the NVL of an H100 of its own kind.
bool isRack(const std::string& kind) {
  return kind.starts_with("NVL") && kind.find_first_of("0123456789") == 3;
}
bool isSxm(const std::string& kind) { return kind.starts_with("SXM"); }
// SXM is any of SXM2 to SXM5.
bool areSameKind(const std::string& a, const std::string& b) {
  return a == b || (isSxm(a) && isSxm(b) && (a == "SXM" || b == "SXM"));
}

bool areCompatible(const GpuName& wanted, const GpuName& device) {  // (C1)
  if (wanted.chip != device.chip) return false;
  if (wanted.memoryGb > 0 && device.memoryGb > 0 &&
      std::abs(wanted.memoryGb - device.memoryGb) > 0.1 * device.memoryGb)
    return false;
  const auto conflicts = [](const GpuName& a, const GpuName& b) {
    return std::any_of(a.kinds.begin(), a.kinds.end(), isPcie) &&
           std::any_of(b.kinds.begin(), b.kinds.end(), isSxm);
  };
  return !conflicts(wanted, device) && !conflicts(device, wanted);
}

int64_t commonKinds(const GpuName& wanted, const GpuName& device) {
  int64_t count = 0;
  for (const std::string& kind : wanted.kinds)
    count += std::any_of(device.kinds.begin(), device.kinds.end(),
                         [&](const std::string& other) { return areSameKind(kind, other); });
  return count;
}

BytesPerSecond networkRate(const spec::ClusterSpec& cluster) {
  return cluster.tiers.size() > 1 ? cluster.tiers.back().bandwidth : BytesPerSecond(0);
}

// Of the row; in the unit of tiers.
BytesPerSecond publishedRate(const Row& row) {
  return BytesPerSecond(row.interNodeGbpsPerGpu.value_or(0) * 1e9 / 8);
}

// GPUs of a node, or of a rack that joins several: the first tier, unless it joins parts of a host.
int64_t nodeOf(const spec::ClusterSpec& cluster) {
  return std::max(cluster.tiers.front().devices, cluster.devicesPerHost());
}

bool hasRoomFor(const Row& row, const spec::ClusterSpec& cluster) {
  return cluster.tiers.size() == 1 || row.gpusPerNode.value_or(1) <= nodeOf(cluster);
}

// (C2): the less, the better.
auto preference(const Row& row, const spec::ClusterSpec& cluster,
                const std::vector<spec::ClusterSpec>& clusters) {
  const GpuName wanted = parseGpuName(row.gpu), device = parseGpuName(cluster.device.name);
  const bool isPlain = wanted.memoryGb == 0;
  const auto hasTheSame = [&](const spec::ClusterSpec& other) {
    return other.device.name == cluster.device.name;
  };
  const int64_t numAlike = isPlain ? std::ranges::count_if(clusters, hasTheSame) : 0;
  const double memory = isPlain ? cluster.device.memory.count() : 0;
  const bool otherNodes = row.gpusPerNode && nodeOf(cluster) != *row.gpusPerNode;
  const double rate = networkRate(cluster).count();
  double distance = -rate;
  if (row.interNodeGbpsPerGpu)
    distance = rate > 0 ? std::abs(std::log(rate / publishedRate(row).count())) : HUGE_VAL;
  return std::tuple(-commonKinds(wanted, device), !hasRoomFor(row, cluster), -numAlike, -memory,
                    otherNodes, distance);
}

void setNetwork(const Row& row, spec::ClusterSpec& cluster) {  // (C3)
  if (!row.interNodeGbpsPerGpu) return;
  for (size_t i = 1; i < cluster.tiers.size(); ++i) {
    spec::LinkTier& tier = cluster.tiers[i];
    const bool isLast = i + 1 == cluster.tiers.size();
    if (!isLast && tier.devices <= nodeOf(cluster)) continue;
    if (std::abs(tier.bandwidth / publishedRate(row) - 1) < 0.01) continue;
    tier.bandwidth = publishedRate(row);
    tier.pairBandwidth = BytesPerSecond(0);
    tier.curves.clear();
  }
}

void setNodes(const Row& row, spec::ClusterSpec& cluster) {  // (C4)
  constexpr int64_t kWidestNode = 16;
  if (cluster.tiers.size() == 1 || !row.gpusPerNode || nodeOf(cluster) > kWidestNode) return;
  cluster.hostDevices = std::min(cluster.hostDevices, *row.gpusPerNode);
  for (size_t i = 0; i + 1 < cluster.tiers.size(); ++i)
    if (int64_t& devices = cluster.tiers[i].devices; devices <= kWidestNode)
      devices = std::min(devices, *row.gpusPerNode);
}

void fillBlocksEvenly(int64_t gpus, spec::ClusterSpec& cluster) {  // (C5)
  int64_t inner = 1;
  for (size_t i = 0; i + 1 < cluster.tiers.size(); ++i) {
    int64_t& devices = cluster.tiers[i].devices;
    devices = std::min(devices, gpus);
    while (devices > 1 && (gpus % devices != 0 || devices % inner != 0)) --devices;
    inner = devices;
  }
}

Status unknownGpu(const Row& row, const std::vector<spec::ClusterSpec>& clusters) {
  const std::string chip = parseGpuName(row.gpu).chip;
  std::vector<std::string> same, all, chips;
  for (const spec::ClusterSpec& cluster : clusters) {
    const std::string& name = cluster.device.name;
    if (std::find(all.begin(), all.end(), name) != all.end()) continue;
    all.push_back(name);
    chips.push_back(parseGpuName(name).chip);
    if (chips.back() == chip) same.push_back(name);
  }
  if (!same.empty())
    return invalidArgument(fmt::format("gpu {}: no cluster has one; nearest: {}",
                                       spec::quoteForMessage(row.gpu), fmt::join(same, ", ")));
  size_t nearest = SIZE_MAX;
  for (const std::string& other : chips)
    nearest = std::min(nearest, spec::editDistance(chip, other));
  for (size_t i = 0; i < all.size(); ++i)
    if (spec::editDistance(chip, chips[i]) == nearest) same.push_back(all[i]);
  return invalidArgument(fmt::format("gpu {}: no cluster has one; nearest: {}",
                                     spec::quoteForMessage(row.gpu), fmt::join(same, ", ")));
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Whether the text says that `what` (lower case) was used. A clause ends at a comma, a semicolon, a
// full stop, a plus, a line's end, "with", "and" or "but"; one with a word of denial says that it
// was not.
bool saysOf(std::string_view what, const std::string& text) {
  constexpr std::string_view kDenials[] = {"no",      "non",  "not", "neither", "nor",      "never",
                                           "without", "w/o",  "off", "false",   "disabled", "0",
                                           "isn",     "wasn", "don", "doesn",   "didn"};
  constexpr std::string_view kEnds[] = {"with", "and", "but"};
  const auto has = [](std::span<const std::string_view> words, std::string_view word) {
    return std::ranges::find(words, word) != words.end();
  };
  const auto isAlphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  };
  const std::string lower = spec::lowerCase(text) + ';';
  bool isThere = false, isDenied = false;
  std::string word;
  for (size_t i = 0; i < lower.size(); ++i) {
    const char c = lower[i];
    const bool isWithin = c == '.' && i + 1 < lower.size() && isAlphanumeric(lower[i + 1]);
    if (isAlphanumeric(c) || c == '/' || isWithin) {
      word += c;
      continue;
    }
    const bool isNamed = contains(word, what);
    isThere = isThere || isNamed;
    isDenied = isDenied || has(kDenials, word) || (isNamed && word.starts_with("un"));
    const bool endsClause =
        has(kEnds, word) || std::string_view(";,.+\n").find(c) != std::string::npos;
    word.clear();
    if (!endsClause) continue;
    if (isThere && !isDenied) return true;
    isThere = isDenied = false;
  }
  return false;
}

void addVariants(const Row& row, std::vector<std::string>& variants) {
  const std::string precision = upper(row.precision);
  const bool fp8 = contains(precision, "FP8");
  const bool megatron = row.stack == "megatron-core" || row.stack == "nemo";
  if (megatron && row.year && *row.year <= 2023) variants.push_back("-2023");  // (S1)
  if (row.stack == "torchtitan") {
    const bool asyncTp = saysOf("asynctp", row.notes);
    if (row.schedule.starts_with("FSDP1")) variants.push_back("-fsdp1");  // (S2)
    if (asyncTp || fp8 || saysOf("compile", row.notes) || saysOf("compile", row.schedule))
      variants.push_back("-compiled");             // (S3)
    if (asyncTp) variants.push_back("-async-tp");  // (S4)
  }
  if (contains(precision, "ROWWISE")) variants.push_back("-fp8-rowwise");  // (S5)
  if (precision == "FP8" || precision == "FP8-CS") variants.push_back("-fp8-current");
  if (fp8 && contains(precision, "MX")) variants.push_back("-fp8-mx");
  if (megatron && isZeroBubble(row)) variants.push_back("-zero-bubble");  // (S6)
}

}  // namespace

Result<std::vector<std::string>> yamlFilesIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code code;
  for (std::filesystem::directory_iterator at(folder, code), end; !code && at != end;
       at.increment(code))
    if (at->path().extension() == ".yaml") paths.push_back(at->path().string());
  if (code)
    return Error(
        unavailable(fmt::format("{}: cannot read the folder: {}", folder, code.message())));
  if (paths.empty())
    return Error(invalidArgument(fmt::format("{}: expected .yaml files, there is none", folder)));
  const auto stem = [](const std::string& path) { return std::filesystem::path(path).stem(); };
  std::sort(paths.begin(), paths.end(),
            [&](const std::string& a, const std::string& b) { return stem(a) < stem(b); });
  return paths;
}

namespace {

Result<std::vector<std::string>> namesOrFiles(const std::string& folder, spec::ShippedKind kind) {
  if (folder.empty()) return spec::shippedNames(kind);
  return yamlFilesIn(folder);
}

}  // namespace

Result<Catalogue> loadCatalogue(const std::string& clusterFolder, const std::string& stackFolder) {
  Catalogue catalogue;
  TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> clusters,
                           namesOrFiles(clusterFolder, spec::ShippedKind::kCluster));
  for (const std::string& path : clusters) {
    TRIREME_ASSIGN_OR_RETURN(spec::ClusterSpec cluster, spec::loadCluster(path));
    catalogue.clusters.push_back(std::move(cluster));
  }
  TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> stacks,
                           namesOrFiles(stackFolder, spec::ShippedKind::kStack));
  for (const std::string& path : stacks) {
    TRIREME_ASSIGN_OR_RETURN(spec::StackProfile stack, spec::loadStack(path));
    catalogue.stacks.push_back(std::move(stack));
  }
  return catalogue;
}

GpuName parseGpuName(std::string_view name) {
  GpuName result;
  bool inChip = true;
  for (const std::string& word : wordsOf(upper(name))) {
    if (word == "NVIDIA" || word == "TESLA" || word == "GEFORCE") continue;
    const double gigabytes = gigabytesOf(word);
    const bool isKind = isPcie(word) || isSxm(word) || word.starts_with("HBM") || isRack(word);
    if (gigabytes > 0) result.memoryGb = gigabytes;
    inChip = inChip && gigabytes == 0 && !isKind;
    if (inChip)
      result.chip += word;
    else if (gigabytes == 0)
      result.kinds.push_back(word);
  }
  return result;
}

Result<spec::ClusterSpec> clusterFor(const Row& row,
                                     const std::vector<spec::ClusterSpec>& clusters) {
  TRIREME_CHECK(row.gpus.has_value());
  const GpuName wanted = parseGpuName(row.gpu);
  const spec::ClusterSpec* best = nullptr;
  for (const spec::ClusterSpec& cluster : clusters) {
    if (!areCompatible(wanted, parseGpuName(cluster.device.name))) continue;
    if (!best || preference(row, cluster, clusters) < preference(row, *best, clusters))
      best = &cluster;
  }
  if (!best) return Error(unknownGpu(row, clusters));
  if (!hasRoomFor(row, *best)) {  // (C4)
    const int64_t widest = nodeOf(*best);
    return Error(invalidArgument(
        fmt::format("gpus_per_node {}: no cluster has as many {} in a node; nearest: {} ({})",
                    *row.gpusPerNode, best->device.name, widest, best->name)));
  }
  spec::ClusterSpec cluster = *best;
  setNetwork(row, cluster);
  setNodes(row, cluster);
  fillBlocksEvenly(*row.gpus, cluster);
  return spec::withNumDevices(std::move(cluster), *row.gpus);
}

bool isZeroBubble(const Row& row) {
  const std::string schedule = spec::lowerCase(row.schedule);
  return schedule == "zb-1p" || schedule == "zb-2p";
}

std::vector<std::string> profileNames(const Row& row) {
  std::vector<std::string> variants;
  addVariants(row, variants);
  // All, then without one of them, the last first... down to the stack alone.
  std::vector<std::string> names;
  const size_t n = variants.size();
  for (size_t kept = n + 1; kept-- > 0;)
    for (size_t set = (size_t{1} << n); set-- > 0;) {
      std::string name = row.stack;
      size_t count = 0;
      // Bit n-1 is the first variant, so that the more important ones are kept longer.
      for (size_t i = 0; i < n; ++i)
        if (set >> (n - 1 - i) & 1) name += variants[i], ++count;
      if (count == kept) names.push_back(std::move(name));
    }
  return names;
}

Result<ChosenStack> stackFor(const Row& row, const std::vector<spec::StackProfile>& stacks) {
  const std::vector<std::string> names = profileNames(row);
  for (const std::string& name : names)
    for (const spec::StackProfile& stack : stacks) {
      if (stack.name != name) continue;
      return ChosenStack{
          stack, name == names[0] ? "" : fmt::format("no stack profile {}: {}", names[0], name)};
    }
  std::vector<std::string> known;
  for (const spec::StackProfile& stack : stacks) known.push_back(stack.name);
  return Error(invalidArgument(fmt::format("stack {}: there is no such profile{}",
                                           spec::quoteForMessage(row.stack),
                                           spec::suggestion(row.stack, known))));
}

}  // namespace trireme::cost
