// A plan from the command line of Megatron-LM's pretrain_gpt.py, or a script with it.
//
// Flags as in megatron/training/arguments.py, commit 000c4ac2, with the defaults that it gives.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/plan/plan.h"
#include "ir/spec/model_spec.h"

namespace trireme::codegen {

struct Imported {
  plan::Plan plan;                    // legal: plan::verifyPlan
  std::vector<std::string> unpriced;  // flags that say nothing of the plan, or that are not known
};

// Whether the text has a command line of Megatron-LM: it names --micro-batch-size.
bool isMegatron(const std::string& text);

// The ranks are those of torchrun in the same text (--nnodes x --nproc-per-node), or `numDevices`.
//
// kInvalidArgument, with file and line: a value makes no sense; the model differs from `model`, or
// has parts that a ModelSpec cannot say (experts, windows...); a flag that the plan needs is
// missing; the plan breaks a rule of verifyPlan.
Result<Imported> importMegatron(const std::string& text, const std::string& file,
                                const spec::ModelSpec& model, int64_t numDevices);

}  // namespace trireme::codegen
