// Bytes and programs that nobody meant: deserialize, verifyProgram, simulation by play and the
// listing answer with a value or an error, never with a crash, a hang or a large allocation.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ir/program/checksum.h"
#include "ir/program/text.h"
#include "ir/program/verify.h"
#include "tests/support/mutate.h"
#include "tests/support/program_builder.h"

namespace trireme::program {
namespace {

constexpr size_t kHeader = 24;  // magic, version, length, checksum

std::string seedBytes() {
  return serialize(trireme::testing::buildPipeline({2, 2, 2, 2, 2, 4, true}));
}

// Makes length and checksum fit the payload, so that the damage reaches the fields.
void repair(std::string& bytes) {
  const std::string payload = bytes.substr(kHeader);
  const uint64_t size = payload.size();
  const uint32_t crc = crc32c(payload);
  for (size_t i = 0; i < 8; ++i) bytes[12 + i] = static_cast<char>(size >> (8 * i));
  for (size_t i = 0; i < 4; ++i) bytes[20 + i] = static_cast<char>(crc >> (8 * i));
}

// One to eight edits: flipped bits, extreme numbers, moved, removed and repeated stretches.
void damage(std::string& bytes, std::mt19937_64& rng) {
  const int edits = 1 + static_cast<int>(rng() % 8);
  for (int e = 0; e < edits && bytes.size() > kHeader + 16; ++e) {
    const size_t at = kHeader + rng() % (bytes.size() - kHeader - 9);
    const size_t length = 1 + rng() % 8;
    switch (rng() % 5) {
      case 0:
        bytes[at] ^= static_cast<char>(1 << rng() % 8);
        break;
      case 1:
        std::fill_n(bytes.begin() + static_cast<int64_t>(at), length, '\xFF');
        break;
      case 2:
        std::fill_n(bytes.begin() + static_cast<int64_t>(at), length, '\0');
        break;
      case 3:
        bytes.erase(at, length);
        break;
      default:
        bytes.insert(at, bytes.substr(at, length));
    }
  }
}

TEST(ProgramFuzz, DamagedBytesAreRefusedOrVerified) {
  std::mt19937_64 rng(11);
  const std::string seed = seedBytes();
  int read = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = seed;
    damage(bytes, rng);
    if (rng() % 8 != 0) repair(bytes);
    const auto program = deserialize(bytes);
    if (!program) continue;
    ++read;
    EXPECT_EQ(serialize(*program), bytes);
    static_cast<void>(verifyProgram(*program));
    if (i % 50 == 0) static_cast<void>(printListing(*program));
  }
  EXPECT_GT(read, 100);  // else the loop tests nothing but the reader
}

TEST(ProgramFuzz, RandomBytesAreRefused) {
  std::mt19937_64 rng(12);
  const std::string seed = seedBytes();
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = seed.substr(0, kHeader + rng() % 200);
    for (size_t b = kHeader; b < bytes.size(); ++b) bytes[b] = static_cast<char>(rng());
    repair(bytes);
    EXPECT_FALSE(deserialize(bytes).has_value());
  }
}

// Numbers of a verified program, set to what nobody computes with.
TEST(ProgramFuzz, ExtremeNumbersAreRefusedOrHarmless) {
  std::mt19937_64 rng(13);
  const std::string seed = seedBytes();
  constexpr int64_t kExtremes[] = {-1,
                                   0,
                                   1,
                                   63,
                                   64,
                                   INT32_MAX,
                                   INT32_MIN,
                                   INT64_MAX,
                                   INT64_MIN,
                                   int64_t{1} << 49,
                                   int64_t{1} << 24};
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = seed;
    const int64_t value = kExtremes[rng() % std::size(kExtremes)];
    const size_t width = rng() % 2 == 0 ? 4 : 8;
    const size_t at = kHeader + rng() % (bytes.size() - kHeader - width);
    for (size_t b = 0; b < width; ++b) bytes[at + b] = static_cast<char>(value >> (8 * b));
    repair(bytes);
    const auto program = deserialize(bytes);
    if (program) static_cast<void>(verifyProgram(*program));
  }
}

TEST(ProgramFuzz, ChainsOfMutationsAreJudgedWithoutCrash) {
  std::mt19937_64 rng(14);
  const Program seed = trireme::testing::buildPipeline({1, 2, 2, 2, 2, 4});
  for (int i = 0; i < 1000; ++i) {
    Program program = seed;
    const int length = 1 + static_cast<int>(rng() % 6);
    for (int m = 0; m < length; ++m) {
      const auto& roles = program.roles;
      const bool usable = std::all_of(roles.begin(), roles.end(), [](const Role& role) {
        return !role.tasks.empty() &&
               std::all_of(role.tasks.begin(), role.tasks.end(), [&](const TaskRecord& t) {
                 return t.body >= 0 && t.body < static_cast<int32_t>(role.bodies.size()) &&
                        t.chunk < static_cast<int32_t>(role.chunks.size());
               });
      });
      if (usable) static_cast<void>(trireme::testing::mutate(program, rng));
    }
    static_cast<void>(verifyProgram(program));
  }
}

}  // namespace
}  // namespace trireme::program
