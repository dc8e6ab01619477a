#include <array>

#include "codegen/export/export.h"

namespace trireme::codegen {
namespace {

struct Family {
  std::string_view begin;  // of the names of its profiles
  Framework framework;
  bool isAnother = false;  // than what files are written for: earlier, or of other authors
};

// The first that fits. Megatron-DeepSpeed is a program of its own that nothing is exported to.
constexpr std::array kFamilies = {Family{"megatron-core-2023", Framework::kMegatron, true},
                                  Family{"megatron-core", Framework::kMegatron},
                                  Family{"megatron-lm", Framework::kMegatron, true},
                                  Family{"nemo-2023", Framework::kNemo, true},
                                  Family{"nemo", Framework::kNemo},
                                  Family{"torchtitan-fsdp1", Framework::kTorchtitan, true},
                                  Family{"torchtitan", Framework::kTorchtitan},
                                  Family{"deepspeed", Framework::kDeepspeed},
                                  Family{"accelerate", Framework::kAccelerate},
                                  Family{"composer-fsdp", Framework::kAccelerate, true}};

const Family* familyOf(std::string_view stack) {
  for (const Family& family : kFamilies)
    if (stack.starts_with(family.begin)) return &family;
  return nullptr;
}

}  // namespace

std::optional<Framework> frameworkOfStack(std::string_view stack) {
  const Family* const family = familyOf(stack);
  return family ? std::optional(family->framework) : std::nullopt;
}

bool isOf(std::string_view stack, Framework framework) {
  const Family* const family = familyOf(stack);
  return family && family->framework == framework && !family->isAnother;
}

bool gathersF8(const plan::Plan& plan, const ExportOptions& options) {
  return plan.training.precision == spec::Precision::kFp8 && options.gathersF8 &&
         plan.stateSharding != plan::StateSharding::kNone;
}

// An own program has no such choice.
void setStack(const spec::StackProfile& stack, ExportOptions& options) {
  options.settings = stack.settings;
  if (stack.ownPrograms) return;
  options.gradientBytes = stack.description.gradientBytes;
  options.reducedGradientBytes = stack.description.reducedGradientBytes;
  options.gathersF8 = stack.description.gathersF8;
  options.overlapsTensorParallel = stack.description.tensorParallelExposed < 1;
  options.overlapsGradients = stack.description.gradientExposed < 1;
}

}  // namespace trireme::codegen
