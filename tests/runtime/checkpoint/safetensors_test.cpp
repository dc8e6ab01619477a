#include "runtime/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include "ir/base/rng.h"
#include "runtime/state/elements.h"

namespace trireme::runtime {
namespace {

SafetensorsHeader example() {
  SafetensorsHeader header;
  header.metadata["step"] = "7";
  header.tensors = {{"b", DType::kF32, {2, 3}, 0, 24}, {"a", DType::kBf16, {5}, 24, 34}};
  return header;
}

std::string jsonOf(const SafetensorsHeader& header) { return formatHeader(header).substr(8); }

std::string headerError(const std::string& json, int64_t dataBytes) {
  const auto header = parseHeader(json, dataBytes);
  EXPECT_FALSE(header.has_value()) << json;
  if (header.has_value()) return "";
  EXPECT_EQ(header.error().code(), StatusCode::kInvalidArgument);
  return header.error().message();
}

TEST(Safetensors, AHeaderRoundTrips) {
  const auto parsed = parseHeader(jsonOf(example()), 34);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  EXPECT_EQ(parsed->tensors, example().tensors);
  EXPECT_EQ(parsed->metadata, example().metadata);
  EXPECT_EQ(formatHeader(example()).size() % 8, 0u);
}

TEST(Safetensors, ScalarsAndEmptyTensorsAreTensors) {
  SafetensorsHeader header;
  header.tensors = {{"empty", DType::kF32, {0, 3}, 0, 0}, {"scalar", DType::kF64, {}, 0, 8}};
  const auto parsed = parseHeader(jsonOf(header), 8);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  EXPECT_EQ(parsed->tensors, header.tensors);
}

// Of types that are not converted the size is known, so that what is beside them can be read.
TEST(Safetensors, OtherTypesHaveNameAndSize) {
  SafetensorsHeader header;
  header.tensors = {{"mask", DType::kF32, {2, 3}, 0, 6, "BOOL"},
                    {"ids", DType::kF32, {2}, 6, 22, "I64"},
                    {"w", DType::kF32, {1}, 22, 26}};
  const auto parsed = parseHeader(jsonOf(header), 26);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  EXPECT_EQ(parsed->tensors, header.tensors);
  header.tensors[0].end = 7;
  EXPECT_EQ(headerError(jsonOf(header), 26),
            "tensor mask: data_offsets do not fit shape and dtype");
}

TEST(Safetensors, WhatDoesNotFitIsRefusedByName) {
  const auto tensor = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
           offsets + "}}";
  };
  EXPECT_EQ(headerError(tensor("F33", "[1]", "[0,4]"), 4), "tensor w: unknown dtype");
  EXPECT_EQ(headerError(tensor("F32", "[-1]", "[0,4]"), 4), "tensor w: a dim is not a count");
  EXPECT_EQ(headerError(tensor("F32", "[1.0]", "[0,4]"), 4), "tensor w: a dim is not a count");
  EXPECT_EQ(headerError(tensor("F32", "7", "[0,4]"), 4), "tensor w: shape is not a list");
  EXPECT_EQ(headerError(tensor("F32", "[1]", "[4,0]"), 4),
            "tensor w: data_offsets are not a range");
  EXPECT_EQ(headerError(tensor("F32", "[1]", "[0]"), 4), "tensor w: data_offsets are not a range");
  EXPECT_EQ(headerError(tensor("F32", "[2]", "[0,4]"), 4),
            "tensor w: data_offsets do not fit shape and dtype");
  EXPECT_EQ(headerError(tensor("F32", "[4611686018427387904]", "[0,4]"), 4),
            "tensor w: a dim is not a count");
  EXPECT_EQ(headerError(tensor("F32", "[1073741824,1073741824,1073741824]", "[0,4]"), 4),
            "tensor w: data_offsets do not fit shape and dtype");
  EXPECT_EQ(headerError(tensor("F32", "[1]", "[0,4]"), 3),
            "tensor w: truncated: lies beyond the end of the file");
  EXPECT_EQ(headerError(tensor("F32", "[1]", "[0,4]"), 5), "1 bytes follow the last tensor");
  EXPECT_EQ(headerError(tensor("F32", "[1]", "[4,8]"), 8),
            "tensor w: overlaps another or leaves a gap");
  EXPECT_EQ(headerError(R"({"w":3})", 0), "tensor w: needs dtype, shape and data_offsets");
  EXPECT_EQ(headerError(R"({"__metadata__":{"a":1}})", 0), "__metadata__: a is not a string");
  EXPECT_EQ(headerError("[1,2]", 0), "the header is not a JSON object");
  EXPECT_EQ(headerError("", 0), "the header is not a JSON object");
  EXPECT_EQ(headerError(std::string(1 << 20, '['), 0), "the header is nested too deep");
}

// Any single changed byte either still parses or is refused; it never crashes (run under ASan).
TEST(Safetensors, AnyDamageToTheHeaderIsSurvived) {
  const std::string good = jsonOf(example());
  for (size_t i = 0; i < good.size(); ++i)
    for (uint32_t k = 0; k < 16; ++k) {
      std::string bad = good;
      bad[i] = static_cast<char>(randomWord({1, 2}, i, k));
      (void)parseHeader(bad, 34);
      (void)parseHeader(bad.substr(0, i), 34);
    }
}

TEST(Elements, HalvesAreRead) {
  const uint16_t halves[] = {0x3555, 0x3800};  // (1 + 341 / 1024) / 4, 1 / 2
  EXPECT_EQ(loadElement(halves, DType::kF16, 0), 1365.0 / 4096);
  EXPECT_EQ(loadElement(halves, DType::kF16, 1), 0.5);
}

}  // namespace
}  // namespace trireme::runtime
