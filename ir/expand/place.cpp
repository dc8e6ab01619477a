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
    for (ValueId v : pass.items[i].inputs) lives[static_cast<size_t>(v)].extend(static_cast<int>(i));
    for (ValueId v : pass.items[i].outputs) lives[static_cast<size_t>(v)].extend(static_cast<int>(i));
  }
  return lives;
}

// Merges inputs of elementwise ops that die there into the output.
void shareMemory(const LoweredPass& pass, const std::vector<Life>& lives, std::vector<ValueId>& root) {
  for (size_t i = 0; i < pass.items.size(); ++i) {
    const Item& item = pass.items[i];
    if (item.isCollective || !graph::isElementwise(item.kind)) continue;
    const Value& output = pass.values[static_cast<size_t>(item.outputs[0])];
    const bool exclusive = output.storage == Storage::kTemporary ||
                           output.storage == Storage::kSaved || output.storage == Storage::kOutput;
    if (!exclusive) continue;
    for (ValueId v : item.inputs) {
      const Value& input = pass.values[static_cast<size_t>(v)];
      if (input.storage != Storage::kTemporary || !(input.type == output.type)) continue;
      if (lives[static_cast<size_t>(v)].last != static_cast<int>(i)) continue;
      root[static_cast<size_t>(v)] = item.outputs[0];
      break;
    }
  }
}

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

Placement placeTemporaries(const LoweredPass& pass) {
  const size_t n = pass.values.size();
  std::vector<Life> lives = lifetimes(pass);
  Placement placement;
  placement.root.resize(n);
  placement.scratchOffset.resize(n);
  std::iota(placement.root.begin(), placement.root.end(), 0);
  shareMemory(pass, lives, placement.root);
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
