#include "runtime/executor/deferred_zeros.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace trireme::runtime {
namespace {

constexpr char kOld = 7, kTaken = 9;

TEST(DeferredZeros, AreWrittenWhereAsked) {
  ThreadPool pool(2);
  DeferredZeros zeros(pool);
  std::vector<char> memory(10, kOld);
  zeros.add(memory.data(), 4);
  zeros.add(memory.data() + 6, 3);
  EXPECT_EQ(memory, std::vector<char>(10, kOld));
  zeros.write(memory.data() + 2, 5);
  EXPECT_EQ(memory, (std::vector<char>{7, 7, 0, 0, 7, 7, 0, 7, 7, 7}));
  zeros.writeRangeOf(memory.data() + 6);
  EXPECT_EQ(memory, (std::vector<char>{7, 7, 0, 0, 7, 7, 0, 0, 0, 7}));
  zeros.writeRangeOf(memory.data() + 9);
  zeros.writeAll();
  EXPECT_EQ(memory, (std::vector<char>{0, 0, 0, 0, 7, 7, 0, 0, 0, 7}));
  EXPECT_TRUE(zeros.empty());
}

TEST(DeferredZeros, AreTakenOnceAndAsAWhole) {
  ThreadPool pool(1);
  DeferredZeros zeros(pool);
  std::vector<char> memory(10, kOld);
  zeros.add(memory.data(), 8);
  EXPECT_FALSE(zeros.take(memory.data() + 6, 4)) << "half of it is not zero";
  EXPECT_TRUE(zeros.take(memory.data() + 2, 3));
  EXPECT_FALSE(zeros.take(memory.data() + 2, 3));
  EXPECT_FALSE(zeros.take(memory.data() + 4, 2));
  zeros.writeAll();
  EXPECT_EQ(memory, (std::vector<char>{0, 0, 7, 7, 7, 0, 0, 0, 7, 7}));
}

// Against memory that is set to zero at once. A taker writes all that it takes; who is refused
// reads, so that zeros are written first.
TEST(DeferredZeros, EqualZerosWrittenAtOnce) {
  constexpr int kSize = 200, kRange = 50;  // ranges are the quarters
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  ThreadPool pool(2);
  int taken = 0;
  for (int trial = 0; trial < 200; ++trial) {
    DeferredZeros zeros(pool);
    std::vector<char> memory(kSize, kOld), expected = memory;
    for (int operation = 0; operation < 60; ++operation) {
      const int begin = below(kSize), size = 1 + below(std::min(20, kSize - begin));
      char* at = memory.data() + begin;
      switch (below(4)) {
        case 0: {
          const int range = begin / kRange * kRange;
          zeros.add(memory.data() + range, kRange);
          std::fill_n(expected.begin() + range, kRange, char{0});
          break;
        }
        case 1:
          if (zeros.take(at, size))
            ++taken;
          else
            zeros.write(at, size);
          std::fill_n(at, size, kTaken);
          std::fill_n(expected.begin() + begin, size, kTaken);
          break;
        case 2:
          zeros.write(at, size);
          for (int i = begin; i < begin + size; ++i) ASSERT_EQ(memory[i], expected[i]);
          break;
        default:
          zeros.writeRangeOf(at);
          for (int i = begin / kRange * kRange; i < begin / kRange * kRange + kRange; ++i)
            ASSERT_EQ(memory[i], expected[i]);
      }
    }
    zeros.writeAll();
    ASSERT_EQ(memory, expected);
  }
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace trireme::runtime
