// Makes the tree of a document from the events of its parser. Internal to ir/spec.
#pragma once
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "ir/spec/yaml_node.h"

namespace trireme::spec {

// Carries a refusal out of a parser's callbacks; the parse functions catch it.
struct Refusal {
  Mark mark;
  std::string message;
};

// Within a map every other event is a key. Throws Refusal for a key that is not a scalar or comes
// twice, and below kMaxDocumentDepth.
class TreeBuilder {
 public:
  void open(Node::Kind kind, Mark mark);
  void close();
  void add(Node node);

  Node root;  // complete when the last open() was closed

 private:
  struct Frame {
    Node node;
    std::optional<Node> key;  // Set between a key and its value.
    std::unordered_set<std::string> keys;
  };
  bool expectsKey() const;

  std::vector<Frame> frames_;
};

}  // namespace trireme::spec
