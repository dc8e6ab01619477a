// The choices of a plan that software may lack, for whoever compares a plan with what a stack or
// another program can do.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ir/plan/plan.h"
#include "ir/spec/stack_profile.h"

namespace trireme::plan {

struct ChoiceUse {
  spec::StackChoice choice = spec::StackChoice::kTensorParallel;
  std::string value;    // what the plan says: "cp 2", "schedule gpipe"
  std::string nearest;  // the value that every program has: "cp 1", "schedule 1f1b"
};

// Those that the plan uses.
std::vector<ChoiceUse> choicesUsed(const Plan& plan);

// Devices of a host where nobody says it.
inline constexpr int64_t kUsualHost = 8;

// Ranks on every host that has any, if those are alike, as launchers want them: all on one host,
// whole hosts, or the same share of the fewest hosts that hold them, with whole groups of tp. None:
// some host has fewer than others.
//
//   hosts of 8, 16 ranks: 8      12 ranks by 2: 6 on each of two      12 by 4, or 20 by 2: none
std::optional<int64_t> ranksPerHost(int64_t ranks, int64_t tp, int64_t host);
std::optional<int64_t> ranksPerHost(const Plan& plan);
// Devices of each host of `host` that ranks go to, so that they are alike on so many devices, of
// whose hosts the last may have fewer: all or, with whole groups of tp, fewer. None: nothing does.
//
//   hosts of 8, 24 devices, tp 1: 15 ranks take 5 of each, 12 take 8, as 6 on each of two
std::optional<int64_t> alikeOfHost(int64_t ranks, int64_t tp, int64_t host, int64_t devices);

// What breaks a rule of a program, and what does not; none if the plan obeys.
struct RuleBreach {
  std::string value, nearest;
};
std::optional<RuleBreach> breachOf(const Plan& plan, spec::StackRule rule);

// Of fp8: the first size of a layer's products, by the widths on one of tp ranks, that is no
// multiple of what the software multiplies (StackSettings::fp8Rows, fp8Columns); none in other
// precisions.
struct Fp8Misfit {
  std::string what;  // "ffn / tp"
  int64_t size = 0, multiple = 1;
};
std::optional<Fp8Misfit> fp8Misfit(const spec::ModelSpec& model, spec::Precision precision,
                                   int64_t tp, const spec::StackSettings& settings);
// The same of the tokens of a pass. With sequence parallelism a rank brings its own part into fp8,
// before it is gathered.
bool hasFp8Tokens(int64_t tokensOfRank, spec::Precision precision,
                  const spec::StackSettings& settings);
// Both of a plan: what is not so, and the nearest.
std::optional<RuleBreach> fp8Breach(const Plan& plan, const spec::ModelSpec& model,
                                    const spec::StackSettings& settings);

// Whether software that has both has the rank order together with the state sharding. Megatron's
// FSDP, by which Megatron-Core and NeMo share gradients and parameters, takes the default order
// alone.
bool rankOrderGoesWithSharding(const Plan& plan);

}  // namespace trireme::plan
