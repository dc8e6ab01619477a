#include "ir/spec/shipped.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::spec {

const ShippedFile* findShipped(ShippedKind kind, std::string_view name) {
  for (const ShippedFile& file : shippedFiles())
    if (file.kind == kind && file.name == name) return &file;
  return nullptr;
}

std::vector<std::string> shippedNames(ShippedKind kind) {
  std::vector<std::string> names;
  for (const ShippedFile& file : shippedFiles())
    if (file.kind == kind) names.emplace_back(file.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string_view shippedKindName(ShippedKind kind) {
  constexpr std::string_view kNames[] = {"model", "cluster", "stack", "device", "link"};
  return kNames[static_cast<size_t>(kind)];
}

std::string shippedPath(const ShippedFile& file) {
  return fmt::format("examples/{}s/{}.yaml", shippedKindName(file.kind), file.name);
}

}  // namespace trireme::spec
