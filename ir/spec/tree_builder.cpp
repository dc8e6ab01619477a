#include "ir/spec/tree_builder.h"

#include <fmt/format.h>

#include <utility>

namespace trireme::spec {

void TreeBuilder::open(Node::Kind kind, Mark mark) {
  if (frames_.size() >= static_cast<size_t>(kMaxDocumentDepth))
    throw Refusal{mark, fmt::format("nested deeper than {} levels", kMaxDocumentDepth)};
  if (expectsKey()) throw Refusal{mark, "a key must be plain text"};
  Node node;
  node.kind = kind;
  node.mark = mark;
  frames_.push_back({std::move(node), std::nullopt, {}});
}

void TreeBuilder::close() {
  Node node = std::move(frames_.back().node);
  frames_.pop_back();
  add(std::move(node));
}

bool TreeBuilder::expectsKey() const {
  return !frames_.empty() && frames_.back().node.kind == Node::Kind::kMap && !frames_.back().key;
}

void TreeBuilder::add(Node node) {
  if (frames_.empty()) {
    root = std::move(node);
    return;
  }
  Frame& frame = frames_.back();
  if (expectsKey()) {
    if (node.kind != Node::Kind::kScalar) throw Refusal{node.mark, "a key must be plain text"};
    if (!frame.keys.insert(node.text).second)
      throw Refusal{node.mark, fmt::format("duplicate key {}", quoteForMessage(node.text))};
    frame.key = std::move(node);
    return;
  }
  if (frame.key) {
    node.key = std::move(frame.key->text);
    node.keyMark = frame.key->mark;
    frame.key.reset();
  }
  // A missing value has no place of its own.
  if (node.kind == Node::Kind::kNull && !node.key.empty()) node.mark = node.keyMark;
  frame.node.items.push_back(std::move(node));
}

}  // namespace trireme::spec
