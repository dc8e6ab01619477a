// What the layers of a model cost, as somebody measured them: a graph of layers with times, sizes
// and the tensors between them. The input of the partition solvers (planner/partition); any model
// that can be measured can be described, not only transformers.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"

namespace trireme::spec {

// Bytes of one edge (an index into ProfileSpec::edges).
struct EdgeBytes {
  int32_t edge = 0;
  Bytes bytes;
  bool operator==(const EdgeBytes&) const = default;
};

// One way to run a layer: on so many devices, with or without recomputation, ...
struct ProfileVariant {
  std::string name = "plain";
  int64_t tensorDegree = 1;  // devices that share every microbatch
  // Of one microbatch. Nothing tells them apart after reading; a published form that has only their
  // sum is read as `forward`.
  Seconds forward, backward;
  Bytes weights;  // per device
  // Memory per device: `stored` for every microbatch in flight, `resident` whatever is in flight.
  // Absent: not measured.
  std::optional<Bytes> stored, resident;
  // Exchanged among the devices of the layer when the tensor of the edge crosses a stage border.
  // Edges of the layer in ascending order; none of 0 bytes.
  std::vector<EdgeBytes> sync;

  Seconds time() const { return forward + backward; }
  bool operator==(const ProfileVariant&) const = default;
};

struct ProfileLayer {
  std::string id;
  std::string name;                      // what it is: "Conv2d(64, 64)"; may be empty
  std::optional<Bytes> activation;       // output of one microbatch
  std::vector<ProfileVariant> variants;  // at least one
  bool operator==(const ProfileLayer&) const = default;
};

// Layer `to` reads `transfer` bytes per microbatch that layer `from` makes.
struct ProfileEdge {
  int32_t from = 0, to = 0;
  Bytes transfer;
  bool operator==(const ProfileEdge&) const = default;
};

struct ProfileSpec {
  std::string name;
  std::string source;  // who measured it, on what
  std::vector<ProfileLayer> layers;
  std::vector<ProfileEdge> edges;
  // What the file asks for besides; absent if it does not say. The command line overrides it.
  std::optional<int64_t> devices;
  std::optional<int64_t> microbatches;  // per update of the weights
  std::optional<Bytes> memory;          // per device
  std::optional<BytesPerSecond> bandwidth;

  bool operator==(const ProfileSpec&) const = default;
};

inline constexpr size_t kMaxProfileLayers = 20'000;

// Reads one of three forms:
//
//   *.txt                      graph.txt of PipeDream's profiler: lines "id -- layer --
//                              forward_compute_time=1.5, backward_compute_time=3.0,
//                              activation_size=4096.0, parameter_size=0.0" (ms and bytes), then
//                              "<tab>from -- to". An edge carries the activation of its source. As
//                              in PipeDream's optimizer, "Input" layers without a source and
//                              "__getitem__" layers that nobody reads are left out.
//   *.json with the key nodes  Piper's input: TMPCs (variants) by tensor degree, sizes in bytes,
//                              time per sample in seconds. memoryUsageA is `stored`, memoryUsageB
//                              `resident`, mbsInBatch `microbatches`.
//   anything else              the project's own YAML or JSON (ir/spec/README.md).
//
// (F1) There are 1 .. kMaxProfileLayers layers; ids are distinct, not empty, valid UTF-8 without
//      control characters.
// (F2) An edge joins two different layers of the profile; no two edges join the same two.
// (F3) No layer depends on itself.
// (F4) The graph is connected (directions aside).
// (F5) Times in seconds and sizes in bytes are 0 .. 1e18; devices and microbatches are 1 .. 2^30,
//      memory and bandwidth above 0.
// (F6) A layer has at least one variant; no two have the same tensor degree (1 .. 2^24) and name.
// (F7) Sync names neighbours of the layer.
//
// Errors: kInvalidArgument with file, line, column, what was expected and the nearest valid name;
// kUnavailable: the file cannot be read.
Result<ProfileSpec> loadProfile(const std::string& path);
Result<ProfileSpec> parseProfile(const std::string& text, const std::string& name);

// In the project's own YAML; parseProfile gives the same profile back.
std::string printProfile(const ProfileSpec& profile);

}  // namespace trireme::spec
