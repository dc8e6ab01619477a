// The clusters and stacks that rows may name, and which of them a row means.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cost_models/validation/row.h"
#include "ir/base/status.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

struct Catalogue {
  std::vector<spec::ClusterSpec> clusters;
  std::vector<spec::StackProfile> stacks;
};

// The .yaml files of a folder, in the order of their names without the
// extension. kUnavailable: the folder cannot be
// read; kInvalidArgument: it holds no such file.
Result<std::vector<std::string>> yamlFilesIn(const std::string& folder);

// What the .yaml files of both folders say; of an empty path, the shipped ones (spec/shipped.h).
// Errors: those of yamlFilesIn, spec::loadCluster and spec::loadStack.
Result<Catalogue> loadCatalogue(const std::string& clusterFolder, const std::string& stackFolder);

// What a GPU's name says: "NVIDIA H100-96GB-HBM2e-SXM (500W)" is an H100 of 96 GB, of the kinds
// HBM2E and SXM, "GB200 NVL72" a GB200 of the kind NVL72. Upper case; what stands in brackets and
// the vendor's words are left out.
struct GpuName {
  std::string chip;                // "H100", "RTX4090"
  double memoryGb = 0;             // 0: the name does not say
  std::vector<std::string> kinds;  // "SXM5", "PCIE", "HBM2E"...
};
GpuName parseGpuName(std::string_view name);

// The cluster of the row's GPUs, with as many devices as the row has. An unpublished cell has the
// cluster file's own number.
//
// (C1) The chip is the row's. Memory that both names state differs by a tenth at most, and neither
//      is PCIe where the other is SXM.
// (C2) Of several: the one with more of the row's kinds in its name; then one whose nodes have room
//      for gpus_per_node; if the row does not state the memory, the GPU that most clusters have, of
//      as many the one with most memory: an H100 is one of 80 GB, not Meta's of 96; then the one
//      whose machines have the row's gpus_per_node; then the one
//      whose network is nearest to inter_node_gbps_per_gpu or, unpublished, the fastest, which is
//      the vendor's own system; then the first.
// (C3) A published inter_node_gbps_per_gpu is the line rate of all tiers behind the node; measured
//      curves of a tier whose rate it changes are left out.
// (C4) A node is the file's first tier, or the host where that joins parts of one: bridged pairs.
//      Fewer GPUs per node make it smaller, unless it is more than 16 devices wide: such racks join
//      several nodes. More are refused.
// (C5) GPUs that do not fill whole blocks of a tier lie in equal parts, as large as possible, on
//      more of them: 128 GPUs take 64 of each of two racks of 72.
//
// kInvalidArgument: no cluster has the GPU, or as many of them in a node; the message names the
// nearest ones.
Result<spec::ClusterSpec> clusterFor(const Row& row,
                                     const std::vector<spec::ClusterSpec>& clusters);

// The names of profiles that describe the row's software, the most specific first. Profiles are
// called after the row's stack and what else changes the program:
//
// (S1) -2023          megatron-core and NeMo of 2023 and before: attention was not fused yet
// (S2) -fsdp1         torchtitan, schedule FSDP1: PyTorch's first FSDP
// (S3) -compiled      torchtitan, "compile" in schedule or notes, or AsyncTP, or fp8: it was
//                     compiled. Not where their clause denies it: "without torch.compile"
// (S4) -async-tp      torchtitan, "AsyncTP" in the notes: tensor-parallel collectives in pieces
// (S5) -fp8-rowwise   precision fp8(rowwise): a scale per row
//      -fp8-current   precisions FP8 and FP8-CS: scales of the tensor itself
//      -fp8-mx        precisions MXFP8 and FP8-MX: scales per block of 32
// (S6) -zero-bubble   megatron-core and NeMo, schedules ZB-1p and ZB-2p: a fork of Megatron-Core
//
// Several follow each other in this order: torchtitan-compiled-async-tp.
std::vector<std::string> profileNames(const Row& row);

bool isZeroBubble(const Row& row);  // its schedule is ZB-1p or ZB-2p

struct ChosenStack {
  spec::StackProfile profile;
  std::string assumption;  // which more specific profile is missing; empty if none is
};
// The first of profileNames that there is. kInvalidArgument: none; the message has the nearest
// ones.
Result<ChosenStack> stackFor(const Row& row, const std::vector<spec::StackProfile>& stacks);

}  // namespace trireme::cost
