// The writers of the formats, one per framework. Internal to codegen/export.
#pragma once
#include "codegen/export/export.h"

namespace trireme::codegen {

// All require a plan without misfits.
Exported toMegatron(const plan::Plan& plan, const spec::ModelSpec& model,
                    const ExportOptions& options);
Exported toNemo(const plan::Plan& plan, const spec::ModelSpec& model, const ExportOptions& options);
Exported toTorchtitan(const plan::Plan& plan, const spec::ModelSpec& model,
                      const ExportOptions& options);
Exported toDeepspeed(const plan::Plan& plan, const spec::ModelSpec& model,
                     const ExportOptions& options);
Exported toAccelerate(const plan::Plan& plan, const spec::ModelSpec& model,
                      const ExportOptions& options);

// All nodes have as many ranks: of ranksPerHost(plan).
struct Nodes {
  int64_t count = 1, ranks = 1;
};
Nodes nodesOf(const plan::Plan& plan);

// Whether weights in MX formats are gathered in the buffer of the gradients.
bool gathersInGradients(const plan::Plan& plan, const ExportOptions& options);
// What a plan that shares gradients or parameters is priced without.
void noteFsdp(const plan::Plan& plan, Exported& exported);
// Whether NVLink may join the ranks of tensor parallelism, as far as the plan says: those of a
// host, or of a rack of hosts with few devices.
bool mayShareIsland(const plan::Plan& plan);
inline constexpr const char* kIslandNote =
    "collectives of tensor parallelism run beside products where NVLink joins their ranks; "
    "elsewhere (PCIe, other hosts) they cannot, as the plan is priced: switch it off there";
// Whether Megatron-Core is told to run collectives of tensor parallelism beside products; and where
// it can.
bool overlapsTensorParallel(const plan::Plan& plan, const ExportOptions& options);
void noteTensorParallel(const plan::Plan& plan, const ExportOptions& options, Exported& exported);
// What Megatron-Core computes in another way than the plan says.
void noteCore(const plan::Plan& plan, const spec::ModelSpec& model, Exported& exported);

// Steps of the whole training: as asked for, or warm-up + decay; none if the rate never decays.
std::optional<int64_t> numSteps(const plan::Plan& plan, const ExportOptions& options);

// The shortest text that reads back as the same number.
std::string number(double value);

// For a shell: as it is if no character is special, else in single quotes.
std::string quoted(const std::string& word);

// Of frameworks whose files have neither seed nor dropout: a note that has them.
std::string inScript(const spec::TrainingSpec& training);

// Layers of every virtual stage, in their order.
std::vector<plan::LayerRange> virtualStageLayers(const plan::Plan& plan);

}  // namespace trireme::codegen
