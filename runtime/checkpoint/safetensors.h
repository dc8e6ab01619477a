// The safetensors container: 8 bytes of little-endian length, a JSON header, then the tensors'
// bytes without gaps. https://github.com/huggingface/safetensors
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "runtime/checkpoint/file_system.h"

namespace trireme::runtime {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  int64_t begin = 0, end = 0;  // bytes, from the start of the data
  // The file's name of a type that is no DType, such as "U8": only the size of its values is known.
  std::string otherType;
  int64_t elementBytes() const;
  bool operator==(const TensorEntry&) const = default;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  int64_t dataOffset = 0;            // where the data starts in the file
};

// A header larger than this is refused: nobody's is, and a parser must not be led to allocate.
inline constexpr int64_t kMaxHeaderBytes = int64_t{16} << 20;

// Length prefix and JSON, padded with spaces to a multiple of 8.
std::string formatHeader(const SafetensorsHeader& header);

// The JSON text of a file that has `dataBytes` of data. Safe on any input.
// kInvalidArgument: not JSON, nested deeper than any header is, of the wrong form, of a type that
// safetensors does not have, or offsets that do not tile the data (names the tensor).
Result<SafetensorsHeader> parseHeader(std::string_view json, int64_t dataBytes);

// kInvalidArgument: truncated or as parseHeader(); or an error of the device.
Result<SafetensorsHeader> readHeader(const InputFile& file);

// Tells files of one run from those of another without reading them whole: of the header and the
// first KiB of every tensor. Errors: those of the device.
Result<uint32_t> fingerprintOf(const InputFile& file, const SafetensorsHeader& header);

}  // namespace trireme::runtime
