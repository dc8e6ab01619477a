#include <fmt/ranges.h>

#include <algorithm>
#include <variant>

#include "ir/spec/precision_names.h"
#include "ir/spec/stack_names.h"
#include "planner/whatif/change_lines.h"
#include "planner/whatif/changes.h"

namespace trireme::planner {
namespace {

using Stack = spec::StackDescription;
using spec::StackProfile;

std::string_view textOf(spec::AttentionKind value) { return nameOf(spec::kAttention, value); }
std::string_view textOf(spec::SelectiveRecompute value) { return nameOf(spec::kSelective, value); }
std::string_view textOf(spec::ContextExchange value) { return nameOf(spec::kExchanges, value); }
std::string_view textOf(spec::ReplicaReduction value) { return nameOf(spec::kReductions, value); }
std::string_view textOf(spec::GradientAccumulation value) {
  return nameOf(spec::kAccumulation, value);
}
template <typename T>
T textOf(T value) {
  return value;
}

template <typename Owner, typename... Types>
struct Setting {
  std::string_view key;  // of stack files
  std::variant<Types Owner::*...> member;
};
using OwnSetting = Setting<StackProfile, bool, double, Bytes>;
using DescribedSetting =
    Setting<Stack, bool, double, Bytes, Seconds, spec::AttentionKind, spec::SelectiveRecompute,
            spec::ContextExchange, spec::ReplicaReduction, spec::GradientAccumulation>;

constexpr OwnSetting kOwnSettings[] = {
    {"flash_attention", &StackProfile::flashAttention},
    {"overlap_pipeline_transfers", &StackProfile::overlapPipelineTransfers},
    {"fixed_reserve", &StackProfile::fixedReserve},
    {"gpu_reserve", &StackProfile::gpuReserve},
    {"nccl_connection", &StackProfile::ncclConnection},
    {"optimizer_bytes_per_parameter", &StackProfile::optimizerBytesPerParameter}};

constexpr DescribedSetting kDescribedSettings[] = {
    {"attention", &Stack::attention},
    {"attention_elsewhere", &Stack::attentionElsewhere},
    {"selective_recompute", &Stack::selective},
    {"elementwise_factor", &Stack::elementwiseFactor},
    {"matmul_factor", &Stack::matmulFactor},
    {"f8_matmul_factor", &Stack::f8MatmulFactor},
    {"cast_bytes", &Stack::castBytes},
    {"context_exchange", &Stack::contextExchange},
    {"ring_bytes", &Stack::ringBytes},
    {"block_attention_efficiency", &Stack::blockAttentionEfficiency},
    {"gradient_accumulation", &Stack::gradientAccumulation},
    {"scatter_gather", &Stack::scatterGather},
    {"parameter_bytes", &Stack::parameterBytes},
    {"gradient_bytes", &Stack::gradientBytes},
    {"optimizer_bytes", &Stack::optimizerBytes},
    {"reduced_gradient_bytes", &Stack::reducedGradientBytes},
    {"gathered_parameter_bytes", &Stack::gatheredParameterBytes},
    {"bucket_bytes", &Stack::bucketBytes},
    {"autocast_bytes", &Stack::autocastBytes},
    {"bf16_gradient_bytes", &Stack::bf16GradientBytes},
    {"step_gradient_bytes", &Stack::stepGradientBytes},
    {"step_gradients_at_once", &Stack::stepGradientsAtOnce},
    {"f8_copy_bytes", &Stack::f8CopyBytes},
    {"gathers_f8", &Stack::gathersF8},
    {"gathers_f8_activations", &Stack::gathersF8Activations},
    {"optimizer_traffic", &Stack::optimizerTraffic},
    {"loss_bytes", &Stack::lossBytes},
    {"parameter_traffic", &Stack::parameterTraffic},
    {"logit_bytes", &Stack::logitBytes},
    {"eager_logit_bytes", &Stack::eagerLogitBytes},
    {"eager_layers", &Stack::eagerLayers},
    {"eager_norms", &Stack::eagerNorms},
    {"keeps_gathered_inputs", &Stack::keepsGatheredInputs},
    {"keeps_gathered_weights", &Stack::keepsGatheredWeights},
    {"working_layers", &Stack::workingLayers},
    {"keeps_f8", &Stack::keepsNarrow},
    {"pipeline_keeps_whole", &Stack::pipelineKeepsWhole},
    {"post_validation", &Stack::postValidation},
    {"replica_reduction", &Stack::replicaReduction},
    {"sharded_port_efficiency", &Stack::shardedPortEfficiency},
    {"gradient_exposed", &Stack::gradientExposed},
    {"gather_exposed", &Stack::gatherExposed},
    {"tensor_parallel_exposed", &Stack::tensorParallelExposed},
    {"transfer_exposed", &Stack::transferExposed},
    {"hides_between_chunks", &Stack::hidesBetweenChunks},
    {"keeps_layer_buffers", &Stack::keepsLayerBuffers},
    {"loader_masks", &Stack::loaderMasks},
    {"host_exponent", &Stack::hostExponent},
    {"host_exposed", &Stack::hostExposed},
    {"host_growth", &Stack::hostGrowth},
    {"transfer_sync", &Stack::transferSync},
    {"whole_head_efficiency", &Stack::wholeHeadEfficiency},
    {"host_launch", &Stack::hostLaunch},
    {"host_backward", &Stack::hostBackward},
    {"host_microbatch", &Stack::hostMicrobatch},
    {"host_step", &Stack::hostStep},
    {"slowdown_per_doubling", &Stack::slowdownPerDoubling},
    {"faster_runs", &Stack::fasterRuns},
    {"slower_runs", &Stack::slowerRuns},
    {"faster_elsewhere", &Stack::fasterElsewhere},
    {"slower_elsewhere", &Stack::slowerElsewhere},
    {"reserve", &Stack::reserve},
    {"nccl_connection", &Stack::ncclConnection},
    {"fragmentation", &Stack::fragmentation},
    {"memory_doubt", &Stack::memoryDoubt}};

template <typename Settings, typename Owner>
void addSettings(ChangeLines& lines, const Settings& settings, const Owner& before,
                 const Owner& after) {
  for (const auto& setting : settings)
    std::visit(
        [&](auto member) { lines.add(setting.key, textOf(before.*member), textOf(after.*member)); },
        setting.member);
}

// What `mine` has and `others` has not, in the order of the names.
template <typename T>
void addOnly(ChangeLines& lines, const std::string& what, std::span<const spec::EnumName<T>> names,
             const std::vector<T>& mine, const std::vector<T>& others) {
  const auto has = [](const std::vector<T>& list, T value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  std::vector<std::string_view> only;
  for (const spec::EnumName<T>& entry : names)
    if (has(mine, entry.value) && !has(others, entry.value)) only.push_back(entry.name);
  if (!only.empty()) lines.addLine(fmt::format("{}: {}", what, fmt::join(only, ", ")));
}

}  // namespace

std::vector<std::string> stackChanges(const StackProfile& before, const StackProfile& after) {
  ChangeLines lines;
  lines.add("programs", std::string_view(before.ownPrograms ? "own" : "described"),
            std::string_view(after.ownPrograms ? "own" : "described"));
  if (before.ownPrograms && after.ownPrograms) addSettings(lines, kOwnSettings, before, after);
  if (!before.ownPrograms && !after.ownPrograms)
    addSettings(lines, kDescribedSettings, before.description, after.description);
  const auto comparedOn = [](const StackProfile& stack) {
    return fmt::format("{}", fmt::join(stack.description.comparedOn, ", "));
  };
  lines.add("compared_on", comparedOn(before), comparedOn(after));
  lines.add("vocab_multiple", before.vocabMultiple, after.vocabMultiple);
  lines.add("fp8_rows", before.settings.fp8Rows, after.settings.fp8Rows);
  lines.add("fp8_columns", before.settings.fp8Columns, after.settings.fp8Columns);
  lines.add("compute_capability", before.computeCapability, after.computeCapability);
  addOnly(lines, "choices only before", spec::kChoices, before.choices, after.choices);
  addOnly(lines, "choices only after", spec::kChoices, after.choices, before.choices);
  addOnly(lines, "precisions only before", spec::kPrecisions, before.precisions, after.precisions);
  addOnly(lines, "precisions only after", spec::kPrecisions, after.precisions, before.precisions);
  return lines.take();
}

std::vector<std::string_view> stackSettingKeys() {
  std::vector<std::string_view> keys = {"vocab_multiple", "compute_capability", "fp8_rows",
                                        "fp8_columns", "compared_on"};
  for (const OwnSetting& setting : kOwnSettings) keys.push_back(setting.key);
  for (const DescribedSetting& setting : kDescribedSettings) keys.push_back(setting.key);
  return keys;
}

}  // namespace trireme::planner
