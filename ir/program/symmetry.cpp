#include "ir/program/symmetry.h"

#include <algorithm>
#include <map>

namespace trireme::program {
namespace {

// Numbers keys by first occurrence.
template <typename Key>
class Numbering {
 public:
  int32_t operator()(const Key& key) {
    return numbers_.emplace(key, static_cast<int32_t>(numbers_.size())).first->second;
  }
  int32_t size() const { return static_cast<int32_t>(numbers_.size()); }

 private:
  std::map<Key, int32_t> numbers_;
};

using GroupKey = std::pair<GroupKind, std::vector<int32_t>>;

std::vector<int32_t> classifyGroups(const Program& program,
                                    const std::vector<int32_t>& classOfRank) {
  Numbering<GroupKey> number;
  std::vector<int32_t> classes;
  classes.reserve(program.groups.size());
  for (const Group& group : program.groups) {
    GroupKey key{group.kind, {}};
    for (int32_t rank : group.ranks) key.second.push_back(classOfRank[static_cast<size_t>(rank)]);
    std::sort(key.second.begin(), key.second.end());
    classes.push_back(number(key));
  }
  return classes;
}

std::vector<int32_t> classifyRanks(const Program& program, bool allRanks) {
  Numbering<std::array<int32_t, 2>> first;
  std::vector<int32_t> classes;
  for (int32_t rank = 0; rank < program.numRanks(); ++rank) {
    const RankInfo& info = program.ranks[static_cast<size_t>(rank)];
    classes.push_back(allRanks ? rank : first({info.role, info.ppIndex}));
  }
  int32_t size = allRanks ? program.numRanks() : first.size();
  while (!allRanks) {
    const std::vector<int32_t> groups = classifyGroups(program, classes);
    Numbering<std::array<int32_t, 1 + kNumGroupKinds>> refined;
    for (size_t rank = 0; rank < classes.size(); ++rank) {
      std::array<int32_t, 1 + kNumGroupKinds> key{classes[rank]};
      for (size_t kind = 0; kind < kNumGroupKinds; ++kind) {
        const int32_t group = program.ranks[rank].group[kind];
        key[1 + kind] = group < 0 ? -1 : groups[static_cast<size_t>(group)];
      }
      classes[rank] = refined(key);
    }
    if (refined.size() == size) break;
    size = refined.size();
  }
  return classes;
}

}  // namespace

Symmetry findSymmetry(const Program& program, bool allRanks) {
  Symmetry symmetry;
  symmetry.classOfRank = classifyRanks(program, allRanks);
  symmetry.classOfGroup = classifyGroups(program, symmetry.classOfRank);
  for (int32_t c : symmetry.classOfRank)
    if (c >= symmetry.numClasses()) symmetry.representative.resize(static_cast<size_t>(c) + 1, -1);
  for (const Group& group : program.groups) {
    if (group.kind != GroupKind::kPp) continue;
    for (int32_t rank : group.ranks) {
      const auto c = static_cast<size_t>(symmetry.classOfRank[static_cast<size_t>(rank)]);
      if (symmetry.representative[c] < 0) symmetry.representative[c] = rank;
    }
  }
  for (size_t g = 0; g < program.groups.size(); ++g) {
    const auto c = static_cast<size_t>(symmetry.classOfGroup[g]);
    if (c >= symmetry.members.size()) symmetry.members.resize(c + 1);
    std::vector<int32_t>& members = symmetry.members[c];
    if (!members.empty()) continue;
    for (int32_t rank : program.groups[g].ranks)
      members.push_back(symmetry.classOfRank[static_cast<size_t>(rank)]);
    std::sort(members.begin(), members.end());
    members.erase(std::unique(members.begin(), members.end()), members.end());
  }
  return symmetry;
}

}  // namespace trireme::program
