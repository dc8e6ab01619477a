// Algorithms that were timed, as text: a line each, in a file per kind of GPU and library, and the
// same lines between ranks.
//
//   trireme 1: algorithms of cuBLASLt on NVIDIA H100 80GB HBM3, compute capability 9.0, ...
//   matmul of 2048 tokens, ...<tab>12.3 us<tab>4194304<tab>0600...<tab>9ae0daaf
//
// After the product (Matmul::key): the time, for people; bytes of the workspace; the algorithm's 64
// bytes; a CRC-32C of all before.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "runtime/checkpoint/file_system.h"
#include "runtime/device/cuda/matmul_timing.h"

namespace trireme::runtime::cuda {

using TimedAlgorithms = std::map<std::string, TimedAlgorithm>;  // by Matmul::key()

std::string printTimed(const std::string& key, const TimedAlgorithm& timed);
// kInvalidArgument: no such line, or a damaged one.
Result<TimedAlgorithms::value_type> parseTimed(const std::string& line);

struct MatmulCache {
  TimedAlgorithms timed;
  std::string note;  // what was wrong with the file and is done about it; empty: nothing
};

// The file in `folder` for GPUs and libraries of this kind, which is any line of text.
std::string matmulCachePath(const std::string& folder, const std::string& kind);
// A missing file is an empty cache; so is, with a note, one of another kind or that cannot be read.
// Damaged lines are left out, with a note.
MatmulCache readMatmulCache(const std::string& path, const std::string& kind, FileSystem& files);
// Creates the folder; replaces the file atomically. Errors: those of replaceFile(); kUnavailable:
// the folder cannot be created.
Status writeMatmulCache(const std::string& path, const std::string& kind,
                        const TimedAlgorithms& timed, FileSystem& files);

}  // namespace trireme::runtime::cuda
