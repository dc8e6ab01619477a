// Damaged manifests and kernels.json of bundles, with checksums that fit them again, so that the
// damage reaches the fields: a bundle, or an error that names the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ir/program/bundle.h"
#include "ir/program/checksum.h"
#include "ir/program/kernels_json.h"
#include "tests/support/damaged_text.h"
#include "tests/support/program_builder.h"

namespace trireme::program {
namespace {

namespace fs = std::filesystem;

const char* const kJsonBytes = "0123456789-+.eE:,[]{}\"\\ ntfu\x01\x7f\xc3\xff";
const char* const kJsonNumbers[] = {"-1",
                                    "0",
                                    "0.5",
                                    "32",
                                    "2147483648",
                                    "9223372036854775807",
                                    "-9223372036854775808",
                                    "18446744073709551616",
                                    "1e999",
                                    "null",
                                    "\"1\"",
                                    "[]",
                                    "{}"};

// Every op of a small pipeline by the library, and a generated kernel.
Bundle bundleToDamage() {
  Bundle bundle;
  bundle.name = "damaged";
  bundle.target = {"x86-64", {"avx2", "fma"}};
  bundle.program = trireme::testing::buildPipeline({2, 2, 1, 1, 2, 2});
  for (const Segment& segment : bundle.program.segments) {
    CompiledSegment& compiled = bundle.kernels.emplace_back();
    for (const SegmentOp& op : segment.ops) compiled.calls.emplace_back().op = op;
  }
  KernelCall generated{KernelCallKind::kGenerated, "k0", {0, 1, 2}, 32, 8, 32, {}};
  bundle.kernels[0].calls.push_back(generated);
  bundle.planText = "tp: 2\n";
  bundle.modelText = "name: damaged\n";
  bundle.summary = "tp 2, pp 2";
  return bundle;
}

void expectOperandsInside(const KernelCall& call, const Segment& segment) {
  const std::vector<int32_t>* lists[] = {&call.operands, &call.op.inputs, &call.op.outputs};
  for (const std::vector<int32_t>* list : lists)
    for (const int32_t operand : *list) {
      EXPECT_GE(operand, 0);
      EXPECT_LT(operand, static_cast<int64_t>(segment.operands.size()));
    }
}

TEST(BundleFuzz, KernelsFitTheirSegmentsOrAreRefused) {
  const Bundle bundle = bundleToDamage();
  const std::string valid = printKernels(bundle.kernels);
  ASSERT_TRUE(parseKernels(valid, bundle.program).has_value());
  int numRead = 0, numRefused = 0;
  const auto check = [&](const std::string& text) {
    const auto kernels = parseKernels(text, bundle.program);
    if (!kernels.has_value()) {
      ++numRefused;
      EXPECT_EQ(kernels.error().code(), StatusCode::kInvalidArgument);
      EXPECT_FALSE(kernels.error().message().empty());
      return;
    }
    ++numRead;
    ASSERT_EQ(kernels->size(), bundle.program.segments.size());
    for (size_t s = 0; s < kernels->size(); ++s)
      for (const KernelCall& call : (*kernels)[s].calls)
        expectOperandsInside(call, bundle.program.segments[s]);
    // What was read is written in the form that is read.
    const std::string written = printKernels(*kernels);
    const auto again = parseKernels(written, bundle.program);
    ASSERT_TRUE(again.has_value()) << again.error().message();
    EXPECT_EQ(printKernels(*again), written);
  };
  damageBytes(valid, kJsonBytes, 500, 2, check);
  // The calls of one segment: a text with all of them is long, and read anew for each number.
  Bundle small = bundle;
  for (size_t s = 1; s < small.kernels.size(); ++s) small.kernels[s].calls.clear();
  damageNumbers(printKernels(small.kernels), kJsonNumbers, check);
  endEarly(printKernels(small.kernels), 7, check);
  EXPECT_GT(numRead, 50);
  EXPECT_GT(numRefused, 500);
}

// A bundle in a folder of its own whose manifest is written over.
class ManifestFuzz : public ::testing::Test {
 protected:
  ManifestFuzz()
      : folder_((fs::temp_directory_path() / ("manifest_fuzz." + std::to_string(::getpid())))
                    .string()) {
    fs::remove_all(folder_);
    EXPECT_TRUE(writeBundle(bundleToDamage(), folder_).ok());
    std::ifstream in(folder_ + "/manifest.json", std::ios::binary);
    manifest_ = {std::istreambuf_iterator<char>(in), {}};
  }
  ~ManifestFuzz() override { fs::remove_all(folder_); }

  // With the checksum of what is there, if it is an object at all: crc32c of the text without it.
  static std::string repaired(const std::string& text) {
    nlohmann::json manifest = nlohmann::json::parse(text, nullptr, false);
    if (!manifest.is_object()) return text;
    manifest.erase("crc32c");
    const auto dump = [&] {
      return manifest.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
    };
    manifest["crc32c"] = crc32c(dump());
    return dump();
  }

  void check(const std::string& text) {
    std::ofstream(folder_ + "/manifest.json", std::ios::binary) << repaired(text);
    const auto bundle = readBundle(folder_);
    if (bundle.has_value()) {
      ++numRead_;
      EXPECT_FALSE(bundle->program.roles.empty());
      return;
    }
    ++numRefused_;
    EXPECT_EQ(bundle.error().code(), StatusCode::kInvalidArgument) << bundle.error().message();
    EXPECT_THAT(bundle.error().message(), ::testing::AnyOf(::testing::HasSubstr("corrupted: "),
                                                           ::testing::HasSubstr("is truncated: "),
                                                           ::testing::HasSubstr("not a bundle: "),
                                                           ::testing::HasSubstr("newer than"),
                                                           ::testing::HasSubstr("cannot read")))
        << text;
  }

  std::string folder_, manifest_;
  int numRead_ = 0, numRefused_ = 0;
};

TEST_F(ManifestFuzz, FieldsAreReadOrRefusedByName) {
  ASSERT_EQ(repaired(manifest_) + "\n", manifest_);
  const auto damaged = [&](const std::string& text) { check(text); };
  damageNumbers(manifest_, kJsonNumbers, damaged);
  damageBytes(manifest_, kJsonBytes, 600, 3, damaged);
  damageLines(manifest_, 4, damaged);
  endEarly(manifest_, 16, damaged);
  // Each value by one of another type.
  const nlohmann::json good = nlohmann::json::parse(manifest_).flatten();
  for (const auto& [pointer, value] : good.items())
    for (const nlohmann::json& other : {nlohmann::json(), nlohmann::json(7), nlohmann::json("x"),
                                        nlohmann::json::array(), nlohmann::json(true)}) {
      nlohmann::json changed = nlohmann::json::parse(manifest_);
      changed[nlohmann::json::json_pointer(pointer)] = other;
      check(changed.dump());
    }
  EXPECT_GT(numRead_, 20);
  EXPECT_GT(numRefused_, 200);
}

}  // namespace
}  // namespace trireme::program
