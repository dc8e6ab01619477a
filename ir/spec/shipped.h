// The files of examples/, which the program carries so that they can be named wherever it runs.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::spec {

// One folder each: models, clusters, stacks and the parts of clusters, devices and links.
enum class ShippedKind : uint8_t { kModel, kCluster, kStack, kDevice, kLink };

struct ShippedFile {
  ShippedKind kind;
  std::string_view name;  // of the file, without ".yaml"
  std::string_view text;
};

// By kind, then by name. Made by cmake/shipped.cmake.
std::span<const ShippedFile> shippedFiles();

// Null if there is none.
const ShippedFile* findShipped(ShippedKind kind, std::string_view name);
// In the order of the alphabet.
std::vector<std::string> shippedNames(ShippedKind kind);
std::string_view shippedKindName(ShippedKind kind);  // model, cluster, stack, device, link
// For messages: "examples/stacks/nemo.yaml".
std::string shippedPath(const ShippedFile& file);

}  // namespace trireme::spec
