#include "ir/program/interval_map.h"

#include <gtest/gtest.h>

#include <random>

namespace trireme::program {
namespace {

TEST(IntervalMap, LaterAssignmentsCutEarlierOnes) {
  IntervalMap<char> map;
  map.assign({0, 10}, 'a');
  map.assign({4, 6}, 'b');
  std::string seen;
  map.visit({2, 12}, [&](Span piece, const char* state) {
    seen += std::to_string(piece.begin) + (state ? *state : '-') + std::to_string(piece.end) + " ";
  });
  EXPECT_EQ(seen, "2a4 4b6 6a10 10-12 ");
}

// Against one cell per byte.
TEST(IntervalMap, AgreesWithAnArray) {
  std::mt19937_64 rng(3);
  IntervalMap<int> map;
  std::vector<int> cells(64, -1);
  for (int i = 0; i < 2000; ++i) {
    const int64_t begin = static_cast<int64_t>(rng() % 64),
                  end = begin + static_cast<int64_t>(rng() % 16);
    const Span span{begin, std::min<int64_t>(end, 64)};
    if (i % 2 == 0) {
      map.assign(span, i);
      for (int64_t b = span.begin; b < span.end; ++b) cells[static_cast<size_t>(b)] = i;
    }
    int64_t at = span.begin;
    map.visit(span, [&](Span piece, const int* state) {
      EXPECT_EQ(piece.begin, at);
      for (; at < piece.end; ++at) EXPECT_EQ(state ? *state : -1, cells[static_cast<size_t>(at)]);
    });
    EXPECT_EQ(at, span.end);
  }
}

}  // namespace
}  // namespace trireme::program
