// Checkpoints: the logical, unsharded tensors of a training run in one safetensors file.
//
//   <name>                      the parameter (the optimizer's master), state dtype
//   optimizer.moment1.<name>    first moment
//   optimizer.moment2.<name>    second moment
//
// Metadata: format, version, model, step (steps done), next_sample, the settings that an exact
// continuation depends on (seed, global_batch_size, sequence_length), data (DataSource::identity,
// if known), in fp16 loss_scale, good_steps, taken_steps and skipped_steps (program::LossScaling),
// crc32c, one checksum per tensor in the order of their bytes, and header_crc32c, of the header
// without it as formatHeader() writes it (version 1 may lack that). Nothing in it depends on the
// plan. A run in fp16 that continues one in another precision begins with the initial scale.
#pragma once
#include <cstdint>
#include <string>

#include "ir/base/status.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/state/gather.h"

namespace trireme::runtime {

inline constexpr int kCheckpointVersion = 2;

// Where a training is.
struct TrainedSoFar {
  int64_t stepsDone = 0;
  std::string data;                  // identity of what the steps were trained on; empty: not known
  program::LossScaling lossScaling;  // after those steps; unused where nothing is scaled
  // Of what was loaded: settings that its steps had otherwise, "clip_norm 0.5 instead of 1".
  std::vector<std::string> changes;
};

// Writes a file beside `path`, syncs it and renames it (replaceFile), so that `path` is the old
// file or the new one, never anything else. Holds one tensor in memory at a time.
// kResourceExhausted: the disk is full. kInvalidArgument: the path cannot be written,
// or a value is not finite (names its tensor).
// kUnavailable: the device failed. After any of them `path` is as it was and nothing is beside it.
Status saveCheckpoint(const TrainingState& state, const TrainedSoFar& progress,
                      const std::string& path, FileSystem& files);

// What another process than the one that writes does for it: gives its ranks' parts.
// kUnavailable: a rank failed.
Status contributeToCheckpoint(const TrainingState& state);

// Whether the file says that it is one, of whatever model and version.
bool isCheckpoint(const SafetensorsHeader& header);

// A whole checkpoint of a model with this fingerprint. kInvalidArgument: another kind of file, a
// newer version, another model, or damaged (names the tensor).
Status checkFile(const InputFile& file, const SafetensorsHeader& header, uint64_t modelFingerprint);

// Steps and fingerprint of a checkpoint, in words, without reading it whole: equal for the same
// file. Of one that cannot be read, why.
std::string describeCheckpoint(const std::string& path, FileSystem& files);

// Fills the arenas of all ranks and returns how far the training was. Everything is read and
// checked before the first arena is touched. kInvalidArgument: the file is missing, truncated,
// corrupt, of a newer version or of other training settings, or a tensor is missing, unknown, of
// another shape or type (names it). kUnavailable: the device failed while the arenas were being
// filled: they are undefined.
Result<TrainedSoFar> loadCheckpoint(const TrainingState& state, const std::string& path,
                                    FileSystem& files);

}  // namespace trireme::runtime
