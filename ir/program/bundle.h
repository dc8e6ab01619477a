// A compiled program on disk: a folder that codegen writes and the runtime loads.
//
//   manifest.json   format version, target, checksums of the other files, model and plan names
//   program.bin     serialize(Program)
//   kernels.json    CompiledSegment per segment
//   kernels.so      generated host code (absent if nothing was generated)
//   kernels.ptx     generated GPU code (absent if nothing was generated)
//   kernels.cubin   the same, assembled for the target (absent if there was no ptxas); of a bundle
//                   for several, one file for each: kernels.sm_80.cubin, kernels.sm_90.cubin
//   plan.yaml       the plan and its training settings, for people and for `run --resume`
//   model.yaml      the model
//   listing.txt     printListing(Program)
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/program.h"
#include "ir/program/target.h"

namespace trireme::program {

// What a generated kernel gets besides its operands. The layout is the ABI between generated code
// and the runtime: append only, and raise kBundleVersion when it changes. On a GPU a kernel has one
// parameter, this and behind it the operands' pointers; warps, or blocks of KernelCall::warps
// warps, take turns with [0, extent), however many there are. keys[i] = makeRngKey(seed, step,
// layer, RngStream(i)).
struct KernelContext {
  uint64_t firstSample = 0;
  uint64_t tpIndex = 0;
  RngKey keys[8];
};
// Works on [begin, end) of the kernel's iteration space (KernelCall::extent); calls with disjoint
// ranges may run on different threads at once and the result does not depend on the split.
using GeneratedKernel = void (*)(const KernelContext* context, void* const* operands, int64_t begin,
                                 int64_t end);

enum class KernelCallKind : uint8_t { kGenerated, kLibrary };

struct KernelCall {
  KernelCallKind kind = KernelCallKind::kLibrary;
  std::string symbol;             // kGenerated: exported by kernels.so, kernels.ptx
  std::vector<int32_t> operands;  // kGenerated: segment operand of each argument
  int64_t extent = 0;             // kGenerated: the iteration space is [0, extent)
  int64_t grain = 1;              // kGenerated: do not split finer than this
  int32_t warps = 1;              // kGenerated, on a GPU: for one of [0, extent), in one block
  SegmentOp op;                   // kLibrary: executed by runtime/kernels
};

inline constexpr int32_t kMaxWarps = 32;  // of a block

struct CompiledSegment {
  std::vector<KernelCall> calls;
};

// The newest that can be read. A bundle says the oldest that has what it needs, so that older
// runtimes read it: 1, and 2 for several targets.
inline constexpr int kBundleVersion = 2;

// kernels.ptx, assembled.
struct Cubin {
  std::string target;  // "sm_90"
  std::string bytes;
};

struct Bundle {
  std::string name;  // the model's
  Target target;
  Program program;
  std::vector<CompiledSegment> kernels;  // one per program.segments
  std::string planText, modelText;
  std::string summary;        // the plan in a line; empty in bundles of older versions
  std::string sharedObject;   // bytes of kernels.so; empty: none
  std::string ptx;            // kernels.ptx, for ptxTarget() of the targets; empty: none
  std::vector<Cubin> cubins;  // at most one per target, in their order
};

// Whether the folder's manifest is that of a bundle, perhaps a damaged or a newer one.
bool isBundle(const std::string& folder);

// Writes the folder atomically: into `folder`.partial.*, then renamed. An existing bundle of that
// name, or an empty folder, is replaced only once the new one is complete; any other folder is
// refused. Several may write the same one at once: it is always whole, and in the end the last
// one's. kInvalidArgument: another folder is there. kResourceExhausted: disk full.
Status writeBundle(const Bundle& bundle, const std::string& folder);

// Whether writeBundle() would refuse the place, asked before there is a bundle.
// kInvalidArgument: another folder is there, or a bundle that holds other files.
Status checkReplaceable(const std::string& folder);

// Everything but the shared object's bytes (the runtime opens the file itself).
// kInvalidArgument: not a bundle, truncated, corrupted (which file), or newer than kBundleVersion.
Result<Bundle> readBundle(const std::string& folder);

}  // namespace trireme::program
