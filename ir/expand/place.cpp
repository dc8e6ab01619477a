#include "ir/expand/place.h"

#include <algorithm>
#include <numeric>

#include "ir/graph/semantics.h"

namespace trireme::expand {
namespace {

struct Life {
  int first = -1;
  int last = -1;
  bool overlaps(const Life& o) const { return first <= o.last && o.first <= last; }
  void extend(int item) {
    if (first < 0) first = item;
    last = std::max(last, item);
  }
};

std::vector<Life> lifetimes(const LoweredPass& pass) {
  std::vector<Life> lives(pass.values.size());
  for (size_t i = 0; i < pass.items.size(); ++i) {
    for (ValueId v : pass.items[i].inputs)
      lives[static_cast<size_t>(v)].extend(static_cast<int>(i));
    for (ValueId v : pass.items[i].outputs)
      lives[static_cast<size_t>(v)].extend(static_cast<int>(i));
  }
  return lives;
}

// The point in time of each item: items that codegen may fuse into one loop share theirs.
std::vector<int> fusedTimes(const LoweredPass& pass) {
  std::vector<int> times;
  bool inRun = false;
  for (const Item& item : pass.items) {
    const bool isGenerated = !item.isCollective && graph::isGenerated(item.kind);
    times.push_back((times.empty() ? 0 : times.back()) + (inRun && isGenerated ? 0 : 1));
    inRun = isGenerated;
  }
  return times;
}

// Merges an elementwise op's result with an input that dies there.
class MemorySharing {
 public:
  MemorySharing(const LoweredPass& pass, const std::vector<Life>& lives, std::vector<ValueId>& root)
      : pass_(pass), lives_(lives), root_(root) {}

  void run(bool isBackward) {
    for (size_t i = 0; i < pass_.items.size(); ++i) {
      const Item& item = pass_.items[i];
      if (item.isCollective || !graph::isElementwise(item.kind)) continue;
      const Storage output = storage(item.outputs[0]);
      const bool exclusive = output == Storage::kTemporary || output == Storage::kSaved ||
                             output == Storage::kKept || output == Storage::kOutput;
      if (!exclusive) continue;
      const ValueId temporary = dyingInput(i, Storage::kTemporary);
      const ValueId saved = isBackward ? dyingInput(i, Storage::kSaved) : -1;
      // A place in the slot is one per layer and microbatch, one in scratch is needed once.
      if (saved >= 0 &&
          (output == Storage::kKept || (output == Storage::kTemporary && temporary < 0)))
        root_[static_cast<size_t>(item.outputs[0])] = saved;
      else if (temporary >= 0)
        root_[static_cast<size_t>(temporary)] = item.outputs[0];
    }
  }

 private:
  Storage storage(ValueId v) const { return pass_.values[static_cast<size_t>(v)].storage; }

  ValueId dyingInput(size_t i, Storage where) const {
    const Item& item = pass_.items[i];
    const auto& type = pass_.values[static_cast<size_t>(item.outputs[0])].type;
    for (ValueId v : item.inputs)
      if (storage(v) == where && pass_.values[static_cast<size_t>(v)].type == type &&
          lives_[static_cast<size_t>(v)].last == static_cast<int>(i))
        return v;
    return -1;
  }

  const LoweredPass& pass_;
  const std::vector<Life>& lives_;
  std::vector<ValueId>& root_;
};

struct Block {
  int64_t offset = 0, bytes = 0;
  Life life;
};

int64_t lowestFreeOffset(const std::vector<Block>& placed, const Block& block) {
  std::vector<const Block*> conflicts;
  for (const Block& b : placed)
    if (b.life.overlaps(block.life)) conflicts.push_back(&b);
  std::sort(conflicts.begin(), conflicts.end(),
            [](const Block* a, const Block* b) { return a->offset < b->offset; });
  int64_t offset = 0;
  for (const Block* b : conflicts) {
    if (offset + block.bytes <= b->offset) break;
    offset = std::max(offset, b->offset + b->bytes);
  }
  return offset;
}

}  // namespace

Placement placeTemporaries(const LoweredPass& pass, bool isBackward) {
  const size_t n = pass.values.size();
  std::vector<Life> lives = lifetimes(pass);
  Placement placement;
  placement.root.resize(n);
  placement.scratchOffset.resize(n);
  std::iota(placement.root.begin(), placement.root.end(), 0);
  MemorySharing(pass, lives, placement.root).run(isBackward);
  for (size_t v = 0; v < n; ++v) {
    auto& root = placement.root[v];
    while (placement.root[static_cast<size_t>(root)] != root)
      root = placement.root[static_cast<size_t>(root)];
    if (lives[v].first >= 0) {
      lives[static_cast<size_t>(root)].extend(lives[v].last);
      lives[static_cast<size_t>(root)].first =
          std::min(lives[static_cast<size_t>(root)].first, lives[v].first);
    }
  }

  const std::vector<int> times = fusedTimes(pass);
  for (Life& life : lives)
    if (life.first >= 0)
      life = {times[static_cast<size_t>(life.first)], times[static_cast<size_t>(life.last)]};

  std::vector<ValueId> order;
  for (size_t v = 0; v < n; ++v)
    if (placement.root[v] == static_cast<ValueId>(v) &&
        pass.values[v].storage == Storage::kTemporary)
      order.push_back(static_cast<ValueId>(v));
  std::stable_sort(order.begin(), order.end(), [&](ValueId a, ValueId b) {
    return pass.values[static_cast<size_t>(a)].type.bytes() >
           pass.values[static_cast<size_t>(b)].type.bytes();
  });
  std::vector<Block> placed;
  for (ValueId v : order) {
    Block block{0, alignUp(pass.values[static_cast<size_t>(v)].type.bytes()),
                lives[static_cast<size_t>(v)]};
    block.offset = lowestFreeOffset(placed, block);
    placement.scratchOffset[static_cast<size_t>(v)] = block.offset;
    placement.scratchBytes = std::max(placement.scratchBytes, block.offset + block.bytes);
    placed.push_back(block);
  }
  return placement;
}

}  // namespace trireme::expand
