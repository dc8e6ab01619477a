// Damaged headers of safetensors files and damaged indexes of several: values that fit the file, or
// an error that says what does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/checkpoint/foreign.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/support/damaged_text.h"

namespace trireme::runtime {
namespace {

const char* const kWeightBytes = "0123456789-+.eE:,[]{}\"\\/ ntfuFBI\x01\x7f\xc3\xff";
const char* const kWeightNumbers[] = {"-1",
                                      "0",
                                      "1",
                                      "0.5",
                                      "4",
                                      "2147483648",
                                      "9223372036854775807",
                                      "9223372036854775808",
                                      "18446744073709551616",
                                      "1e999",
                                      "null",
                                      "\"1\"",
                                      "[]"};

// 2 x 3 floats, 5 of 2 bytes, a scalar and nothing.
SafetensorsHeader headerToDamage() {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}, {"step", "7"}};
  header.tensors = {{"empty", DType::kF32, {0, 3}, 0, 0},
                    {"b", DType::kF32, {2, 3}, 0, 24},
                    {"a", DType::kBf16, {5}, 24, 34},
                    {"scalar", DType::kF64, {}, 34, 42}};
  return header;
}

TEST(SafetensorsFuzz, TensorsTileTheDataOrTheHeaderIsRefused) {
  constexpr int64_t kDataBytes = 42;
  const std::string valid = formatHeader(headerToDamage()).substr(8);
  int numRead = 0, numRefused = 0;
  const auto check = [&](const std::string& text) {
    const auto header = parseHeader(text, kDataBytes);
    if (!header.has_value()) {
      ++numRefused;
      EXPECT_EQ(header.error().code(), StatusCode::kInvalidArgument);
      EXPECT_FALSE(header.error().message().empty());
      return;
    }
    ++numRead;
    int64_t at = 0;
    for (const TensorEntry& tensor : header->tensors) {
      EXPECT_EQ(tensor.begin, at) << text;
      int64_t elements = 1;
      for (const int64_t dim : tensor.dims) elements *= dim;
      EXPECT_EQ(tensor.end - tensor.begin, elements * tensor.elementBytes()) << text;
      at = tensor.end;
    }
    EXPECT_EQ(at, kDataBytes) << text;
  };
  damageBytes(valid, kWeightBytes, 8000, 3, check);
  damageNumbers(valid, kWeightNumbers, check);
  endEarly(valid, 1, check);
  // A tensor per line: one that is lost leaves a gap, one that stands twice is one.
  std::string lines = valid;
  for (size_t at = 0; (at = lines.find("},\"", at)) != std::string::npos; ++at)
    lines.insert(at + 2, 1, '\n');
  damageLines(lines, 1, check);
  EXPECT_GT(numRead, 200);
  EXPECT_GT(numRefused, 3000);
}

// A file of bytes, and a disk of such files that cannot be written.
class TextFile final : public InputFile {
 public:
  explicit TextFile(const std::string& bytes) : bytes_(bytes) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  Status read(int64_t offset, char* bytes, int64_t count) const override {
    if (offset + count > size()) return invalidArgument("truncated");
    std::memcpy(bytes, bytes_.data() + offset, static_cast<size_t>(count));
    return {};
  }

 private:
  const std::string& bytes_;
};

class ReadOnlyFiles final : public FileSystem {
 public:
  std::map<std::string, std::string> files;
  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override {
    return Error(invalidArgument(path + ": cannot write"));
  }
  Result<std::unique_ptr<InputFile>> open(const std::string& path) override {
    const auto found = files.find(path);
    if (found == files.end()) return Error(invalidArgument(path + ": no such file"));
    return std::make_unique<TextFile>(found->second);
  }
  Status rename(const std::string& from, const std::string&) override {
    return invalidArgument(from + ": cannot write");
  }
  void remove(const std::string&) override {}
};

std::string fileOf(const std::vector<TensorEntry>& tensors) {
  SafetensorsHeader header;
  header.tensors = tensors;
  return formatHeader(header) + std::string(static_cast<size_t>(tensors.back().end), '\0');
}

// The model asks for one tensor more than there is, so that an index that is accepted ends with its
// name, and nothing is loaded.
TEST(IndexFuzz, EveryTensorIsInItsFileOrTheIndexIsRefused) {
  const std::string valid = R"({
  "metadata": {"total_size": 20},
  "weight_map": {
    "wte.weight": "one.safetensors",
    "h.0.bias": "two.safetensors",
    "h.1.bias": "two.safetensors"
  }
})";
  ReadOnlyFiles disk;
  disk.files["m/one.safetensors"] = fileOf({{"wte.weight", DType::kF32, {3}, 0, 12}});
  disk.files["m/two.safetensors"] =
      fileOf({{"h.0.bias", DType::kF32, {1}, 0, 4}, {"h.1.bias", DType::kF32, {1}, 4, 8}});
  ForeignWeights weights;
  weights.tensors = {{.name = "missing", .rows = 1}};
  const std::string accepted = "m/x.safetensors.index.json: no tensor missing";
  int numRead = 0, numRefused = 0;
  const auto check = [&](const std::string& text) {
    disk.files["m/x.safetensors.index.json"] = text;
    const Status status = loadForeignWeights({}, weights, "m/x.safetensors.index.json", disk);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), ::testing::StartsWith("m/"));
    if (status.message() != accepted) {
      ++numRefused;
      return;
    }
    ++numRead;
    const nlohmann::json index = nlohmann::json::parse(text);
    for (const auto& [tensor, file] : index.at("weight_map").items())
      EXPECT_NE(disk.files["m/" + file.get<std::string>()].find('"' + tensor + '"'),
                std::string::npos)
          << text;
  };
  check(valid);
  EXPECT_EQ(numRead, 1);
  damageBytes(valid, kWeightBytes, 5000, 3, check);
  damageNumbers(valid, kWeightNumbers, check);
  damageLines(valid, 1, check);
  endEarly(valid, 1, check);
  EXPECT_GT(numRead, 100);
  EXPECT_GT(numRefused, 3000);
}

}  // namespace
}  // namespace trireme::runtime
