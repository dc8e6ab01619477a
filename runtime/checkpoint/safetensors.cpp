#include "runtime/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "ir/program/checksum.h"

namespace trireme::runtime {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";
// In the order of DType.
constexpr std::array<std::string_view, 5> kTypeNames = {"F64", "F32", "BF16", "F16", "I32"};
struct OtherType {
  std::string_view name;
  int64_t bytes;
};
constexpr OtherType kOtherTypes[] = {{"BOOL", 1},    {"U8", 1},      {"I8", 1},  {"F8_E4M3", 1},
                                     {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"I16", 2}, {"U16", 2},
                                     {"U32", 4},     {"I64", 8},     {"U64", 8}, {"C64", 8}};
constexpr int kMaxDepth = 3;  // {tensor: {shape: [
constexpr int64_t kPrefix = 8;

// Depth of nesting, without parsing: brackets outside of strings.
bool tooDeep(std::string_view json) {
  int depth = 0;
  bool inString = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (inString && c == '\\')
      ++i;
    else if (c == '"')
      inString = !inString;
    else if (!inString && (c == '{' || c == '['))
      ++depth;
    else if (!inString && (c == '}' || c == ']'))
      --depth;
    if (depth > kMaxDepth) return true;
  }
  return false;
}

Status fault(std::string_view tensor, std::string_view what) {
  return invalidArgument(fmt::format("tensor {}: {}", tensor, what));
}

// Non-negative, and far from overflow.
bool readCount(const Json& json, int64_t& value) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > uint64_t{1} << 60) return false;
  value = static_cast<int64_t>(json.get<uint64_t>());
  return true;
}

// Bytes of a tensor; -1 if they overflow.
int64_t sizeOf(const TensorEntry& tensor) {
  int64_t bytes = tensor.elementBytes();
  for (int64_t dim : tensor.dims)
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return -1;
  return bytes;
}

const OtherType* findOtherType(std::string_view name) {
  for (const OtherType& type : kOtherTypes)
    if (type.name == name) return &type;
  return nullptr;
}

Status readType(const Json& json, TensorEntry& tensor) {
  if (!json.is_string()) return fault(tensor.name, "unknown dtype");
  const auto& name = json.get_ref<const std::string&>();
  const auto known = std::find(kTypeNames.begin(), kTypeNames.end(), name);
  if (known != kTypeNames.end())
    tensor.dtype = static_cast<DType>(known - kTypeNames.begin());
  else if (findOtherType(name) != nullptr)
    tensor.otherType = name;
  else
    return fault(tensor.name, "unknown dtype");
  return {};
}

Result<TensorEntry> parseTensor(const std::string& name, const Json& json) {
  TensorEntry tensor;
  tensor.name = name;
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets") || json.size() != 3)
    return Error(fault(name, "needs dtype, shape and data_offsets"));
  TRIREME_RETURN_IF_ERROR(readType(json["dtype"], tensor));
  const Json& shape = json["shape"];
  if (!shape.is_array()) return Error(fault(name, "shape is not a list"));
  for (const Json& dim : shape)
    if (!readCount(dim, tensor.dims.emplace_back()))
      return Error(fault(name, "a dim is not a count"));
  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !readCount(offsets[0], tensor.begin) ||
      !readCount(offsets[1], tensor.end) || tensor.begin > tensor.end)
    return Error(fault(name, "data_offsets are not a range"));
  if (sizeOf(tensor) != tensor.end - tensor.begin)
    return Error(fault(name, "data_offsets do not fit shape and dtype"));
  return tensor;
}

// Every byte of the data belongs to one tensor.
Status checkTiling(const SafetensorsHeader& header, int64_t dataBytes) {
  int64_t at = 0;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.begin != at) return fault(tensor.name, "overlaps another or leaves a gap");
    at = tensor.end;
    if (at > dataBytes) return fault(tensor.name, "truncated: lies beyond the end of the file");
  }
  if (at != dataBytes)
    return invalidArgument(fmt::format("{} bytes follow the last tensor", dataBytes - at));
  return {};
}

}  // namespace

int64_t TensorEntry::elementBytes() const {
  const OtherType* const other = findOtherType(otherType);
  return other == nullptr ? byteSize(dtype) : other->bytes;
}

std::string formatHeader(const SafetensorsHeader& header) {
  Json json;
  if (!header.metadata.empty()) json[kMetadata] = header.metadata;
  for (const TensorEntry& tensor : header.tensors)
    json[tensor.name] = {
        {"dtype", tensor.otherType.empty() ? kTypeNames[static_cast<size_t>(tensor.dtype)]
                                           : std::string_view(tensor.otherType)},
        {"shape", tensor.dims},
        {"data_offsets", {tensor.begin, tensor.end}}};
  // A name that is not UTF-8 is no reason to throw.
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + kPrefix - 1) / kPrefix * kPrefix, ' ');
  std::string result;
  for (int shift = 0; shift < 64; shift += 8)
    result += static_cast<char>((text.size() >> shift) & 0xFF);
  return result + text;
}

Result<SafetensorsHeader> parseHeader(std::string_view text, int64_t dataBytes) {
  if (tooDeep(text)) return Error(invalidArgument("the header is nested too deep"));
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Error(invalidArgument("the header is not a JSON object"));
  SafetensorsHeader header;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      if (!value.is_object()) return Error(invalidArgument("__metadata__ is not an object"));
      for (const auto& [key, entry] : value.items()) {
        if (!entry.is_string())
          return Error(invalidArgument(fmt::format("__metadata__: {} is not a string", key)));
        header.metadata[key] = entry.get<std::string>();
      }
      continue;
    }
    TRIREME_ASSIGN_OR_RETURN(TensorEntry tensor, parseTensor(name, value));
    header.tensors.push_back(std::move(tensor));
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  TRIREME_RETURN_IF_ERROR(checkTiling(header, dataBytes));
  return header;
}

Result<SafetensorsHeader> readHeader(const InputFile& file) {
  char prefix[kPrefix];
  if (file.size() < kPrefix) return Error(invalidArgument("truncated: no safetensors header"));
  TRIREME_RETURN_IF_ERROR(file.read(0, prefix, kPrefix));
  uint64_t length = 0;
  for (int i = 0; i < kPrefix; ++i) length |= uint64_t{static_cast<uint8_t>(prefix[i])} << (8 * i);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes))
    return Error(invalidArgument("not a safetensors file: the header would be too large"));
  const auto size = static_cast<int64_t>(length);
  if (size > file.size() - kPrefix)
    return Error(invalidArgument("truncated: the file ends within the header"));
  std::string json(length, '\0');
  TRIREME_RETURN_IF_ERROR(file.read(kPrefix, json.data(), size));
  TRIREME_ASSIGN_OR_RETURN(SafetensorsHeader header,
                           parseHeader(json, file.size() - kPrefix - size));
  header.dataOffset = kPrefix + size;
  return header;
}

Result<uint32_t> fingerprintOf(const InputFile& file, const SafetensorsHeader& header) {
  constexpr int64_t kPerTensor = 1024;
  std::string known(static_cast<size_t>(header.dataOffset), '\0');
  TRIREME_RETURN_IF_ERROR(file.read(0, known.data(), header.dataOffset));
  for (const TensorEntry& tensor : header.tensors) {
    const int64_t count = std::min(kPerTensor, tensor.end - tensor.begin);
    const size_t before = known.size();
    known.resize(before + static_cast<size_t>(count));
    TRIREME_RETURN_IF_ERROR(
        file.read(header.dataOffset + tensor.begin, known.data() + before, count));
  }
  return program::crc32c(known);
}

}  // namespace trireme::runtime
