// kernels.json: how each segment is executed. Internal to ir/program.
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/bundle.h"

namespace trireme::program {

std::string printKernels(const std::vector<CompiledSegment>& kernels);

// kInvalidArgument: not of that form, or a call that does not fit its segment.
Result<std::vector<CompiledSegment>> parseKernels(const std::string& text, const Program& program);

}  // namespace trireme::program
