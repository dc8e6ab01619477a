#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/base/rng.h"
#include "runtime/kernels/bf16.h"
#include "tests/runtime/comm/run_ranks.h"

namespace trireme::runtime {
namespace {

using std::chrono::seconds;

// Element i of rank r's input: small, signed, and not exactly representable sums.
template <typename T>
T inputElement(int32_t rank, int64_t i) {
  const uint32_t word = randomWord({7, 7}, static_cast<uint64_t>(rank), static_cast<uint64_t>(i));
  const double value = static_cast<double>(word) / 4294967296.0 - 0.4;
  if constexpr (std::is_same_v<T, int32_t>)
    return static_cast<int32_t>(word) / 16;
  else
    return narrow<T>(static_cast<SumOf<T>>(value));
}

// The contract, written down: ((m0 op m1) op m2) ..., 16 bits in f32 and rounded once.
template <typename T>
T expected(const std::vector<int32_t>& group, int64_t i, program::ReduceOp op) {
  using A = SumOf<T>;
  const auto widened = [&](int32_t rank) { return widen(inputElement<T>(rank, i)); };
  A result = widened(group[0]);
  for (size_t m = 1; m < group.size(); ++m)
    result = op == program::ReduceOp::kSum ? static_cast<A>(result + widened(group[m]))
                                           : std::max<A>(result, widened(group[m]));
  return narrow<T>(result);
}

template <typename T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T>
struct TypeOf;
template <>
struct TypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct TypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct TypeOf<Bf16> {
  static constexpr DType value = DType::kBf16;
};
template <>
struct TypeOf<F16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct TypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};

template <typename T>
class Collectives : public ::testing::Test {};
using Types = ::testing::Types<double, float, Bf16, F16, int32_t>;
TYPED_TEST_SUITE(Collectives, Types);

TYPED_TEST(Collectives, AllReduceIsTheSumAndTheMaximumInGroupOrder) {
  using T = TypeParam;
  for (int32_t n = 1; n <= 8; ++n)
    for (const int64_t count : {1, 7, 129, 3001}) {
      std::vector<int32_t> group = ranksUpTo(n);
      std::reverse(group.begin(), group.end());  // an order that is not the ranks'
      ThreadWorld world(n, {group}, seconds(20));
      const auto statuses = runRanks(world, n, [&](Communicator& comm) -> Status {
        for (const auto op : {program::ReduceOp::kSum, program::ReduceOp::kMax}) {
          std::vector<T> data;
          for (int64_t i = 0; i < count; ++i) data.push_back(inputElement<T>(comm.rank(), i));
          TRIREME_RETURN_IF_ERROR(comm.allReduce(0, data.data(), count, TypeOf<T>::value, op));
          for (int64_t i = 0; i < count; ++i)
            if (!same(data[static_cast<size_t>(i)], expected<T>(group, i, op)))
              return internalError("differs at " + std::to_string(i));
        }
        return {};
      });
      for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << n << status.message();
    }
}

// `mine` apart from `all`, at its place in it, at its start, and across two parts.
TYPED_TEST(Collectives, ReduceScatterAndAllGatherAgreeWithAllReduceHoweverTheyOverlap) {
  using T = TypeParam;
  for (int32_t n = 1; n <= 8; ++n)
    for (const int64_t count : {1, 5, 333})
      for (int place = 0; place < 4; ++place) {
        ThreadWorld world(n, {ranksUpTo(n)}, seconds(20));
        const auto statuses = runRanks(world, n, [&](Communicator& comm) -> Status {
          const int64_t total = n * count, own = comm.rank() * count;
          std::vector<T> memory(static_cast<size_t>(2 * total + count));
          T* all = memory.data() + count / 2;
          T* mine = place == 0   ? all + total
                    : place == 1 ? all + own
                    : place == 2 ? all
                                 : memory.data();
          for (int64_t i = 0; i < total; ++i) all[i] = inputElement<T>(comm.rank(), i);
          TRIREME_RETURN_IF_ERROR(
              comm.reduceScatter(0, all, mine, count, TypeOf<T>::value, program::ReduceOp::kSum));
          for (int64_t i = 0; i < count; ++i)
            if (!same(mine[i], expected<T>(ranksUpTo(n), own + i, program::ReduceOp::kSum)))
              return internalError("scattered part differs");
          TRIREME_RETURN_IF_ERROR(comm.allGather(0, mine, all, count, TypeOf<T>::value));
          for (int64_t i = 0; i < total; ++i)
            if (!same(all[i], expected<T>(ranksUpTo(n), i, program::ReduceOp::kSum)))
              return internalError("gathered whole differs");
          return {};
        });
        for (const Status& status : statuses)
          ASSERT_TRUE(status.ok()) << n << " " << count << " " << place << status.message();
      }
}

// Two groups that share ranks, back to back, so that a rank runs ahead of its peers all the time.
TEST(AllReduce, AThousandInARowInCrossingGroupsStayApart) {
  for (const int32_t n : {2, 4, 8}) {
    std::vector<std::vector<int32_t>> groups = {ranksUpTo(n)};
    for (int32_t pair = 0; pair < n / 2; ++pair) groups.push_back({pair, pair + n / 2});
    ThreadWorld world(n, groups, seconds(60));
    const auto statuses = runRanks(world, n, [&](Communicator& comm) -> Status {
      for (int32_t round = 0; round < 1000; ++round) {
        double world[3] = {1.0 * round, 1.0 * comm.rank(), 1};
        TRIREME_RETURN_IF_ERROR(comm.allReduce(0, world, 3, DType::kF64, program::ReduceOp::kSum));
        if (world[0] != 1.0 * round * n || world[1] != n * (n - 1) / 2 || world[2] != n)
          return internalError("wrong sum over the world");
        int32_t pair = round + comm.rank();
        const int32_t other = (comm.rank() + n / 2) % n;
        TRIREME_RETURN_IF_ERROR(comm.allReduce(1 + comm.rank() % (n / 2), &pair, 1, DType::kI32,
                                               program::ReduceOp::kMax));
        if (pair != round + std::max(comm.rank(), other)) return internalError("wrong maximum");
      }
      return {};
    });
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
  }
}

TEST(AllReduce, AMaximumDoesNotHideANan) {
  ThreadWorld world(2, {{0, 1}}, seconds(20));
  runRanks(world, 2, [&](Communicator& comm) -> Status {
    float value = comm.rank() == 0 ? 1.0f : std::numeric_limits<float>::quiet_NaN();
    TRIREME_RETURN_IF_ERROR(comm.allReduce(0, &value, 1, DType::kF32, program::ReduceOp::kMax));
    EXPECT_TRUE(std::isnan(value));
    return {};
  });
}

TEST(Collective, MembersThatDisagreeAreRefusedAndBothAreNamed) {
  ThreadWorld world(2, {{0, 1}}, seconds(20));
  const auto statuses = runRanks(world, 2, [&](Communicator& comm) {
    double data[4] = {};
    return comm.allReduce(0, data, 3 + comm.rank(), DType::kF64, program::ReduceOp::kSum);
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "members of a group differ: rank 0 calls all_reduce of 3 f64 elements, "
              "rank 1 calls all_reduce of 4 f64 elements");
  }
}

TEST(Collective, AMissingMemberIsNamedAfterTheTimeout) {
  ThreadWorld world(3, {{0, 1, 2}}, std::chrono::milliseconds(200));
  const auto begin = std::chrono::steady_clock::now();
  const auto statuses = runRanks(world, 3, [&](Communicator& comm) -> Status {
    double data = 0;
    if (comm.rank() == 1) return {};  // never comes
    return comm.allReduce(0, &data, 1, DType::kF64, program::ReduceOp::kSum);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
  for (const int32_t rank : {0, 2}) {
    const Status& status = statuses[static_cast<size_t>(rank)];
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("rank " + std::to_string(rank) + ", waiting for rank 1"),
              std::string::npos)
        << status.message();
  }
}

TEST(Collective, AFailedMemberEndsTheWaitAtOnceWithItsReason) {
  ThreadWorld world(2, {{0, 1}}, seconds(60));
  const auto begin = std::chrono::steady_clock::now();
  const auto statuses = runRanks(world, 2, [&](Communicator& comm) -> Status {
    double data = 0;
    if (comm.rank() == 1) return unavailable("the power went out");
    return comm.allReduce(0, &data, 1, DType::kF64, program::ReduceOp::kSum);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
  EXPECT_EQ(statuses[0].code(), StatusCode::kUnavailable);
  EXPECT_EQ(statuses[0].message(),
            "rank 0, waiting for rank 1: gave up (rank 1 failed: the power went out)");
}

}  // namespace
}  // namespace trireme::runtime
