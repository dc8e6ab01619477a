// The programs that others train with, and what they can do of all that a plan can say.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/plan/plan.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::codegen {

enum class Framework : uint8_t { kMegatron, kNemo, kTorchtitan, kDeepspeed, kAccelerate };

struct FrameworkInfo {
  std::string_view name;   // megatron, nemo, torchtitan, deepspeed, accelerate
  std::string_view title;  // "Megatron-LM"
  std::string_view stack;  // the shipped stack profile that prices it
  std::span<const spec::StackChoice> choices;
  std::span<const spec::Precision> precisions;
  std::span<const spec::Fp8Recipe> recipes;  // its own choice first
  std::span<const spec::StackRule> rules;
  bool padsVocabulary;
};

const FrameworkInfo& infoOf(Framework framework);
std::string_view frameworkName(Framework framework);

// What a framework cannot express, and what it can instead.
struct Misfit {
  std::string choice;   // "schedule gpipe"
  std::string nearest;  // "schedule 1f1b"
};

// Of the model and the training settings, whatever the plan. Requires them verified.
std::vector<Misfit> misfitsOf(const spec::ModelSpec& model, const spec::TrainingSpec& training,
                              Framework framework);
// Of everything. Requires plan::verifyPlan(plan, model).
std::vector<Misfit> misfitsOf(const plan::Plan& plan, const spec::ModelSpec& model,
                              Framework framework);

// Ok, or kInvalidArgument: names the framework, every misfit and the nearest choices.
Status statusOf(const std::vector<Misfit>& misfits, Framework framework);

// Of the choices alone, whether or not the plan is legal.
std::vector<Misfit> misfitsOf(const plan::Plan& plan, Framework framework);
// Of the software that the plan is for: fp8 with other scales than the framework's, or
// with products that it does not multiply.
std::vector<Misfit> misfitsOf(const plan::Plan& plan, const spec::ModelSpec& model,
                              const spec::StackSettings& settings, Framework framework);

// The stack with those of its choices and precisions that the framework has as well, for a search
// among plans that it can express; fp8 only with a recipe of the framework, and a padded vocabulary
// only if the framework pads; and with the framework's rules. kInvalidArgument: they
// share no precision.
Result<spec::StackProfile> restrictedTo(spec::StackProfile stack, Framework framework);
// The same for what a file of the framework is held against: with the choices of the stack that its
// plan makes, too, and without the rules that it breaks, since scripts do what files have no word
// for (tensor parallelism of DeepSpeed).
Result<spec::StackProfile> restrictedTo(const spec::StackProfile& stack, Framework framework,
                                        const plan::Plan& plan);

// The scaling of rotary positions of Llama 3.1 (apply_scaling() of meta-llama/llama-models). Also
// of RotaryEmbedding in Megatron-Core, but for the factor, which is its --rope-scaling-factor; and
// of every Llama 3 of torchtitan (RoPEScalingArgs in torchtitan/models/llama3/model/args.py, commit
// 08039091).
inline constexpr RopeScaling kLlama31Scaling{RopeScalingKind::kLlama3, 8, 1, 4, 8192};

// The name of a model as torchtitan defines it ("70B" of llama3); empty if it has none. Without
// scaling it is still called so: that torchtitan scales is a note of the export.
std::string torchtitanFlavor(const spec::ModelSpec& model);

}  // namespace trireme::codegen
