// Names: torchtitan/config/job_config.py of v0.2.2 and commit 6404b932,
// torchtitan/config_manager.py of commit 0011fb90 (October 2024).
#include <algorithm>

#include "codegen/import/torchtitan.h"

namespace trireme::codegen {
namespace {

// Part of every run, and of no plan.
constexpr const char* kNeutralSettings[] = {"job",
                                            "profiling",
                                            "metrics",
                                            "checkpoint",
                                            "comm",
                                            "validation",
                                            "debug",
                                            "model.tokenizer_path",
                                            "model.hf_assets_path",
                                            "model.print_after_conversion",
                                            "optimizer.implementation",
                                            "optimizer.fused",
                                            "training.dataset",
                                            "training.dataset_path",
                                            "training.dataloader",
                                            "training.gc_freq",
                                            "training.gc_debug",
                                            "training.mixed_precision_reduce",
                                            "parallelism.enable_compiled_autograd",
                                            "parallelism.pipeline_parallel_microbatch_size",
                                            "parallelism.pipeline_parallel_microbatches",
                                            "parallelism.expert_tensor_parallel_degree",
                                            "parallelism.expert_parallel_comm_backend",
                                            "activation_checkpoint.preserve_rng_state",
                                            "activation_checkpoint.determinism_check",
                                            "activation_checkpoint.memory_budget",
                                            "compile.backend"};

// What would be priced wrongly when it is on.
constexpr const char* kRefusedSettings[] = {"optimizer.early_step_in_backward",
                                            "training.enable_cpu_offload",
                                            "parallelism.disable_loss_parallel",
                                            "fault_tolerance.enable",
                                            "quantize.linear.float8.emulate",
                                            "memory_estimation.enable",
                                            "liger_kernel.enable_fused_linear_cross_entropy"};

// FSDP gathers 1 byte of a parameter instead of 2; weights are cast once more.
constexpr const char* kUncounted[] = {
    "quantize.linear.float8.enable_fsdp_float8_all_gather",
    "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp",
    "quantize.linear.float8.force_recompute_fp8_weight_in_bwd"};

constexpr std::pair<const char*, const char*> kOlder[] = {
    {"training.batch_size", "training.local_batch_size"},
    {"training.compile", "compile.enable"},
    {"training.seed", "debug.seed"},
    {"training.deterministic", "debug.deterministic"},
    {"training.warmup_steps", "lr_scheduler.warmup_steps"},
    {"lr_scheduler.lr_min", "lr_scheduler.min_lr_factor"},
    {"memory_estimation.enabled", "memory_estimation.enable"},
    {"training.tensor_parallel_degree", "parallelism.tensor_parallel_degree"},
    {"training.data_parallel_degree", "parallelism.data_parallel_shard_degree"},
    {"training.data_parallel_shard_degree", "parallelism.data_parallel_shard_degree"},
    {"training.data_parallel_replicate_degree", "parallelism.data_parallel_replicate_degree"},
    {"training.fsdp_reshard_after_forward", "parallelism.fsdp_reshard_after_forward"},
    {"training.disable_loss_parallel", "parallelism.disable_loss_parallel"},
    {"training.enable_float8_linear", "float8.enable_float8_linear"}};

// Of tables that were moved as they are.
struct MovedTable {
  const char *older, *name;
  std::vector<const char*> keys;
};

const std::vector<MovedTable>& movedTables() {
  static const std::vector<MovedTable> kTables = {
      {"experimental.",
       "parallelism.",
       {"pipeline_parallel_degree", "pipeline_parallel_schedule", "pipeline_parallel_schedule_csv",
        "pipeline_parallel_split_points", "pipeline_parallel_microbatches",
        "context_parallel_degree", "context_parallel_rotate_method", "enable_async_tensor_parallel",
        "enable_compiled_autograd"}},
      {"float8.",
       "quantize.linear.float8.",
       {"recipe_name", "filter_fqns", "emulate", "enable_fsdp_float8_all_gather",
        "precompute_float8_dynamic_scale_for_fsdp", "force_recompute_fp8_weight_in_bwd"}}};
  return kTables;
}

// Settings of 2024 that have one value that can be priced.
void checkGone(Config& config) {
  if (!config.isOn("training.enable_loss_parallel", true))
    config.fail("training.enable_loss_parallel", "is off: that cannot be priced");
  config.choice("training.data_parallel_type", {"fsdp"}, "fsdp");
  config.choice("model.norm_type", {"rmsnorm", "fused_rmsnorm", "compiled_rmsnorm"}, "rmsnorm");
  for (const char* part : {"input", "weight", "grad_output"})
    config.choice(std::string("float8.scaling_type_") + part, {"dynamic"}, "dynamic");
}

}  // namespace

void nameTorchtitanSettings(Config& config) {
  for (const auto& [older, name] : kOlder) config.acceptAs(older, name);
  for (const MovedTable& table : movedTables())
    for (const char* key : table.keys)
      config.acceptAs(std::string(table.older) + key, std::string(table.name) + key);
  for (const char* name : kNeutralSettings) config.passOver(name);
  for (const char* name : kRefusedSettings)
    if (config.isOn(name, false)) config.fail(name, "cannot be priced");
  checkGone(config);
}

bool hasLayoutOf2024(const Config& config) {
  const auto isElsewhere = [&](const char* kind) {
    const std::string name = std::string("parallelism.") + kind + "_degree";
    return config.spelled(name) != name;
  };
  const char* const kKinds[] = {"tensor_parallel", "pipeline_parallel", "context_parallel",
                                "data_parallel_replicate", "data_parallel_shard"};
  return std::any_of(std::begin(kKinds), std::end(kKinds), isElsewhere);
}

std::vector<std::string> uncountedOfFp8(Config& config) {
  std::vector<std::string> names;
  for (const char* name : kUncounted)
    if (config.isOn(name, false)) names.push_back(config.spelled(name));
  return names;
}

std::vector<std::string> namesIn(const spec::Node& node) {
  std::vector<std::string> names;
  for (const spec::Node& item : node.items) names.push_back(item.text);
  for (size_t begin = 0; begin < node.text.size();) {
    const size_t end = std::min(node.text.find(',', begin), node.text.size());
    if (end > begin) names.push_back(node.text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

}  // namespace trireme::codegen
