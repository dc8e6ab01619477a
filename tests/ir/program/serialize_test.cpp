#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ir/program/checksum.h"
#include "ir/program/text.h"
#include "tests/support/program_builder.h"

namespace trireme::program {
namespace {

using ::testing::HasSubstr;

Program interleavedSample() { return trireme::testing::buildPipeline({2, 2, 2, 2, 2, 4, true}); }

std::string errorOfBytes(const std::string& bytes) {
  const auto result = deserialize(bytes);
  return result ? "" : result.error().message();
}

std::string withHeader(uint32_t version, const std::string& payload) {
  const auto number = [](uint64_t value, size_t bytes) {
    std::string text;
    for (size_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
    return text;
  };
  return "TRIRPROG" + number(version, 4) + number(payload.size(), 8) + number(crc32c(payload), 4) +
         payload;
}

// The check value of CRC-32C (RFC 3720, appendix B.4: 32 zero bytes give 0x8A9136AA).
TEST(Checksum, MatchesPublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Serialize, RoundTripsExactly) {
  const Program program = interleavedSample();
  const std::string bytes = serialize(program);
  const auto back = deserialize(bytes);
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(serialize(*back), bytes);
  EXPECT_EQ(printListing(*back), printListing(program));
  EXPECT_EQ(back->roles[1].tasks, program.roles[1].tasks);
  EXPECT_EQ(back->roles[1].bodies[2].instructions, program.roles[1].bodies[2].instructions);
  EXPECT_EQ(back->segments[5].ops, program.segments[5].ops);
  EXPECT_EQ(back->ranks[5].group, program.ranks[5].group);
  EXPECT_EQ(back->training.seed, program.training.seed);
}

TEST(Serialize, KeepsExtremeNumbers) {
  Program program = interleavedSample();
  program.training.epsilon = -0.0;
  program.training.learningRate = 1e-310;
  program.training.seed = UINT64_MAX;
  program.roles[0].arenaBytes = INT64_MIN;
  const auto back = deserialize(serialize(program));
  ASSERT_TRUE(back.has_value());
  EXPECT_TRUE(std::signbit(back->training.epsilon));
  EXPECT_EQ(back->training.learningRate, 1e-310);
  EXPECT_EQ(back->training.seed, UINT64_MAX);
  EXPECT_EQ(back->roles[0].arenaBytes, INT64_MIN);
}

// Version 1 had no loss scaling: three numbers of eight bytes less at the end of the training,
// which four empty lists follow.
TEST(Deserialize, ReadsVersion1) {
  Program program;
  program.training.clipNorm = 0.5;
  program.training.stateDType = DType::kF64;
  const std::string now = serialize(program);
  constexpr size_t kHeader = 24, kLists = 16, kNew = 24;
  std::string payload = now.substr(kHeader);
  payload.erase(payload.size() - kLists - kNew, kNew);
  const auto back = deserialize(withHeader(1, payload));
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(serialize(*back), now);
}

Program withScaledRotary(const RopeScaling& scaling) {
  Program program;
  Segment& segment = program.segments.emplace_back();
  segment.ops.push_back({OpKind::kRotary, {.headSize = 4, .ropeTheta = 7, .ropeScaling = scaling}});
  return program;
}

TEST(Serialize, KeepsTheScalingOfRotaryPositions) {
  const RopeScaling llama3{RopeScalingKind::kLlama3, 8, 1, 4, 8192};
  const auto back = deserialize(serialize(withScaledRotary(llama3)));
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(back->segments[0].ops[0].attributes.ropeScaling, llama3);
}

// The scaling: a kind and four numbers of eight bytes. Version 2 had none; there is no fourth kind.
TEST(Deserialize, ReadsVersion2AndRefusesUnknownScalings) {
  const std::string marked = serialize(withScaledRotary({RopeScalingKind::kLinear, 0x1.234p+5}));
  constexpr size_t kHeader = 24, kScaling = 1 + 4 * 8;
  std::string payload = marked.substr(kHeader);
  const size_t factor = payload.find(std::string("\0\0\0\0\0\x34\x42\x40", 8));
  ASSERT_NE(factor, std::string::npos);
  std::string unknown = payload;
  unknown[factor - 1] = 3;
  EXPECT_THAT(errorOfBytes(withHeader(3, unknown)), HasSubstr("unknown enumerator 3"));
  payload.erase(factor - 1, kScaling);
  const auto back = deserialize(withHeader(2, payload));
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(serialize(*back), serialize(withScaledRotary({})));
}

TEST(Deserialize, RefusesEveryTruncation) {
  const std::string bytes = serialize(trireme::testing::buildPipeline({1, 1, 1, 1, 1, 1}));
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(deserialize(bytes.substr(0, n)).has_value()) << n << " of " << bytes.size();
  EXPECT_THAT(errorOfBytes(bytes.substr(0, 10)), HasSubstr("truncated"));
  EXPECT_THAT(errorOfBytes(bytes.substr(0, bytes.size() - 1)), HasSubstr("truncated"));
}

// A flip of any bit is found: in the magic, version, length and checksum, and by it in the payload.
TEST(Deserialize, RefusesEveryFlippedBit) {
  std::string bytes = serialize(trireme::testing::buildPipeline({1, 1, 1, 1, 1, 1}));
  for (size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; bit += i < 24 ? 1 : 7) {
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      EXPECT_FALSE(deserialize(bytes).has_value()) << "byte " << i << " bit " << bit;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
    }
}

TEST(Deserialize, SaysWhatIsWrong) {
  const std::string bytes = serialize(interleavedSample());
  EXPECT_THAT(errorOfBytes("#!/bin/sh"), HasSubstr("not a program"));
  EXPECT_THAT(errorOfBytes(bytes + "x"), HasSubstr("behind the end"));
  std::string newer = bytes;
  newer[8] = 99;
  EXPECT_THAT(errorOfBytes(newer), HasSubstr("newer"));
  std::string damaged = bytes;
  damaged[bytes.size() / 2] ^= 1;
  EXPECT_THAT(errorOfBytes(damaged), HasSubstr("checksum"));
}

// A list that claims 2^32 - 1 elements behind a right checksum.
TEST(Deserialize, DoesNotBelieveCounts) {
  std::string bytes = serialize(interleavedSample());
  const std::string payload(bytes.size() - 24, '\xFF');
  const uint32_t crc = crc32c(payload);
  bytes = bytes.substr(0, 20);
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(crc >> (8 * i)));
  EXPECT_THAT(errorOfBytes(bytes + payload), HasSubstr("ends inside a field"));
}

}  // namespace
}  // namespace trireme::program
