// Weights of other software: --init-from and `trireme export-weights`. Only with a code generator.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "ir/program/checksum.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/cli/command.h"

#if TRIREME_HAVE_MLIR
namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

class Weights : public CommandTest {
 protected:
  // The tiny model after one step, in "ckpt".
  void train() {
    bundle = compile("tiny", {"--gpus", "1"});
    expectSuccess(run(bundle, {"--steps", "1", "--save", path("ckpt")}));
  }
  // The same as Hugging Face weights in "hf", whose file is read.
  void trainAndExport() {
    train();
    expectSuccess(runTrireme({"export-weights", path("ckpt"), "--model", model, "-o", path("hf")}));
    const std::string file = path("hf/model.safetensors");
    runtime::PosixFileSystem files;
    header = *runtime::readHeader(**files.open(file));
    data = readAll(file).substr(static_cast<size_t>(header.dataOffset));
  }
  Outcome begin() { return run(bundle, {"--steps", "1", "--init-from", path("hf")}); }

  std::string bundle, data;
  runtime::SafetensorsHeader header;
};

// The first value is one of a matrix. In place of it come 70,000, beyond fp16, and infinity.
TEST_F(Weights, ThatAPrecisionDoesNotHoldAreRefused) {
  train();
  const std::string good = readAll(path("ckpt/step-00000001.safetensors"));
  runtime::PosixFileSystem files;
  const auto with = [&](float value) {
    auto header = *runtime::readHeader(**files.open(path("ckpt/step-00000001.safetensors")));
    std::string bytes = good.substr(static_cast<size_t>(header.dataOffset));
    std::memcpy(bytes.data(), &value, sizeof(value));
    const auto size = static_cast<size_t>(header.tensors[0].end);
    header.metadata["crc32c"].replace(
        0, 8, fmt::format("{:08x}", program::crc32c(bytes.substr(0, size))));
    header.metadata["version"] = "1";  // whose headers have no checksum
    header.metadata.erase("header_crc32c");
    return write("odd.safetensors", runtime::formatHeader(header) + bytes);
  };
  const auto exportIt = [&](const std::string& checkpoint, const std::string& precision) {
    return runTrireme({"export-weights", checkpoint, "--model", model, "--precision", precision,
                       "-o", path("hf")});
  };
  const std::string large = with(70000);
  expectRefusal(exportIt(large, "fp16"), 1,
                {"odd.safetensors: tensor embedding.word.weight, element 0: 70000 is beyond the "
                 "numbers of f16; f32 and bf16 hold it"});
  EXPECT_FALSE(fs::exists(path("hf")));
  for (const char* precision : {"fp32", "bf16"}) expectSuccess(exportIt(large, precision));
  fs::remove_all(path("hf"));
  for (const float value : {HUGE_VALF, std::nanf("")})
    for (const char* precision : {"fp32", "bf16", "fp16"})
      expectRefusal(exportIt(with(value), precision), 1,
                    {std::isnan(value) ? ", element 0: nan" : ", element 0: inf",
                     "the training had diverged; give an earlier checkpoint"});
}

// What a file holds beside the weights may be of any type; a weight may not.
TEST_F(Weights, MayLieBesideMasksOfOtherTypes) {
  trainAndExport();
  const auto at = static_cast<int64_t>(data.size());
  header.tensors.push_back({"h.0.attn.bias", DType::kF32, {1, 1, 4, 4}, at, at + 16, "U8"});
  write("hf/model.safetensors", formatHeader(header) + data + std::string(16, '\1'));
  expectSuccess(begin());
  for (runtime::TensorEntry& tensor : header.tensors)
    if (tensor.name.ends_with("ln_f.bias")) tensor.otherType = "U32";
  write("hf/model.safetensors", formatHeader(header) + data + std::string(16, '\1'));
  expectRefusal(begin(), 1, {"ln_f.bias is U32; F64, F32, BF16 and F16 are read"});
}

// What embeds words and what gives their scores is one tensor of a tied model: a file may have it
// twice, but not two tensors in its place.
TEST_F(Weights, OfATiedModelHaveNoHeadOfTheirOwn) {
  trainAndExport();
  const runtime::TensorEntry words = header.tensors.front();
  ASSERT_EQ(words.name, "transformer.wte.weight");
  const std::string table = data.substr(0, static_cast<size_t>(words.end));
  const auto at = static_cast<int64_t>(data.size());
  header.tensors.push_back({"lm_head.weight", words.dtype, words.dims, at, at + words.end});
  const std::string start = formatHeader(header) + data;
  write("hf/model.safetensors", start + table);
  expectSuccess(begin());
  write("hf/model.safetensors", start + std::string(table.size(), '\0'));
  expectRefusal(
      begin(), 1,
      {"tensor lm_head.weight differs from transformer.wte.weight", "tied_embeddings: false"});
}

// Of an export of ours the next takes the place; nothing else is overwritten or mixed with it.
TEST_F(Weights, ThatAreExportedReplaceNobodyElses) {
  train();
  const auto exportTo = [&](const char* folder) {
    return runTrireme({"export-weights", path("ckpt"), "--model", model, "-o", path(folder)});
  };
  expectSuccess(exportTo("hf"));
  expectSuccess(exportTo("hf"));
  for (const char* name : {"model.safetensors", "config.json", "model.safetensors.index.json"}) {
    const std::string folder = std::string("of-others-with-") + name;
    fs::create_directory(path(folder));
    write(folder + "/" + name, "something");
    expectRefusal(
        exportTo(folder.c_str()), 1,
        {std::string(": has ") + name + ", which is not known to be of trireme export-weights"});
    EXPECT_EQ(readAll(path(folder + "/" + name)), "something");
  }
}

}  // namespace
}  // namespace trireme::cli
#endif
