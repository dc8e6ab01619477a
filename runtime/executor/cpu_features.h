// Whether this machine can run code that was compiled for a target.
#pragma once
#include "ir/base/status.h"
#include "ir/program/bundle.h"

namespace trireme::runtime {

// Names are compared without '_', '-' and '.', because LLVM and Linux spell them differently
// ("avx512bf16", "avx512_bf16").
// kInvalidArgument: another architecture, or a feature is missing (names it).
Status checkTarget(const program::Target& target);

}  // namespace trireme::runtime
