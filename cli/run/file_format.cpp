#include "cli/run/file_format.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string_view>

namespace trireme::cli {
namespace {

using namespace std::literals;

struct Format {
  std::string_view start;  // first bytes, long enough for no array of tokens to begin so
  const char* what;
  const char* advice;  // {}: the path
};
constexpr const char* kAsTokens = "write its text or its tokens alone to a file, and give that";
constexpr Format kFormats[] = {
    {"\x93NUMPY"sv, "a NumPy file with a header",
     "write the array alone, numpy.load('{}').tofile('tokens.bin'), and give that with --tokens, "
     "such as --tokens uint16"},
    {"PK\x03\x04"sv, "a zip archive (as .npz and .pt are)", kAsTokens},
    {"\x1f\x8b\x08"sv, "compressed by gzip", "unpack it: gunzip {}"},
    {"\x28\xb5\x2f\xfd"sv, "compressed by zstd", "unpack it: unzstd {}"},
    {"\xfd"
     "7zXZ\0"sv,
     "compressed by xz", "unpack it: unxz {}"},
    {"PAR1"sv, "a Parquet file", kAsTokens},
    {"ARROW1"sv, "an Arrow file", kAsTokens},
    {"\x89HDF\r\n"sv, "an HDF5 file", kAsTokens}};

// Eight bytes of length below 2^32, then JSON.
bool isSafetensors(std::string_view start) {
  return start.size() >= 10 && start.substr(4, 4) == "\0\0\0\0"sv && start.substr(8, 2) == "{\"";
}

Status refuseData(const std::string& path, const char* what, const std::string& advice) {
  return invalidArgument(
      fmt::format("--data {}: is {}, and would be trained on as it lies; {}", path, what, advice));
}

}  // namespace

Status checkPlainData(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return {};  // a pipe is not to be read from
  std::string start(16, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(file.gcount()));
  for (const Format& format : kFormats)
    if (start.starts_with(format.start))
      return refuseData(path, format.what, fmt::format(fmt::runtime(format.advice), path));
  if (isSafetensors(start)) return refuseData(path, "a safetensors file", kAsTokens);
  return {};
}

}  // namespace trireme::cli
