// Initial values and their places do not depend on tp, dp or sharding.
#include <gtest/gtest.h>

#include <cmath>

#include "ir/base/rng.h"
#include "runtime/session.h"
#include "tests/runtime/executor/counting_data.h"
#include "tests/runtime/executor/state_program.h"

namespace trireme::runtime {
namespace {

std::unique_ptr<Session> stateSession(const StateOptions& options) {
  auto session = Session::create(stateBundle(options), {});
  EXPECT_TRUE(session.has_value()) << session.error().message();
  return std::move(*session);
}

TEST(Initialize, DrawsTheSameLogicalTensorsUnderAnyPlan) {
  const auto reference = stateSession({})->gatherParameters();
  ASSERT_EQ(reference.size(), 5u);
  for (const int32_t tp : {1, 2, 4})
    for (const int32_t dp : {1, 3})
      for (const bool sharded : {false, true})
        for (const bool bf16 : {false, true}) {
          const auto session = stateSession({tp, dp, sharded, bf16});
          const auto got = session->gatherParameters();
          ASSERT_EQ(got.size(), reference.size());
          for (size_t i = 0; i < got.size(); ++i) {
            EXPECT_EQ(got[i].name, reference[i].name);
            EXPECT_EQ(got[i].dims, reference[i].dims);
            EXPECT_EQ(got[i].values, reference[i].values) << got[i].name << " tp " << tp;
          }
        }
}

// Element (r, c) of the logical [6, 5] embedding is draw number 5 r + c of tensor 0.
TEST(Initialize, UsesTheGlobalElementNumberOfTheUnpaddedTensor) {
  const auto tensors = stateSession({.tp = 4})->gatherParameters();
  EXPECT_EQ(tensors[0].name, "embedding");
  ASSERT_EQ(tensors[0].values.size(), 30u);
  const RngKey key = makeRngKey(kStateSeed, 0, 0, RngStream::kInit);
  for (size_t i = 0; i < 30; ++i)
    EXPECT_EQ(tensors[0].values[i], static_cast<float>(0.5 * randomNormal(key, 0, i)));
  for (double gamma : tensors[4].values) EXPECT_EQ(gamma, 1);
}

// Every weight is its own gradient, so the norm is that of all weights: a part that is counted
// twice or not at all would show.
TEST(SumSquares, CountsEveryLogicalElementOnceUnderAnySharding) {
  double expected = 0;
  for (const NamedTensor& tensor : stateSession({})->gatherParameters())
    for (double value : tensor.values) expected += value * value;
  for (const int32_t tp : {1, 2, 4})
    for (const int32_t dp : {1, 2, 3, 5})
      for (const bool sharded : {false, true}) {
        const auto session = stateSession({tp, dp, sharded});
        CountingData data;
        const auto result = session->step(data);
        ASSERT_TRUE(result.has_value()) << result.error().message();
        EXPECT_NEAR(result->gradNorm, std::sqrt(expected), 1e-9)
            << "tp " << tp << " dp " << dp << (sharded ? " sharded" : "");
      }
}

}  // namespace
}  // namespace trireme::runtime
