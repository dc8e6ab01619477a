// A row and what is shipped give a time with its interval.
#include "cost_models/validation/predict.h"

#include <gtest/gtest.h>

#include "cost_models/validation/mapping.h"
#include "tests/cost_models/validation/rows.h"

namespace trireme::cost {
namespace {

// Table 2 of SC21: 39.42 s were measured.
TEST(Predict, TheTimeOfAPublishedRunLiesInItsInterval) {
  const Result<Catalogue> shipped = loadCatalogue("", "");
  ASSERT_TRUE(shipped.has_value()) << shipped.error().message();
  const Result<Prediction> found = predict(gptRow(), *shipped);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  ASSERT_TRUE(found->interval.has_value());
  EXPECT_LT(found->interval->low, found->step);
  EXPECT_GT(found->interval->high, found->step);
  EXPECT_LE(found->interval->low, Seconds(39.42));
  EXPECT_GE(found->interval->high, Seconds(39.42));
  EXPECT_TRUE(found->fits);
}

// Published peaks are those of allocators, which count no context and no buffers of NCCL.
TEST(Predict, ThePeakIsWhatTheAllocatorHolds) {
  const Result<Catalogue> shipped = loadCatalogue("", "");
  ASSERT_TRUE(shipped.has_value()) << shipped.error().message();
  const Result<RunQuery> query = queryOf(gptRow(), *shipped);
  ASSERT_TRUE(query.has_value()) << query.error().message();
  const Result<Estimate> whole = estimate(query->model, query->plan, query->cluster, query->stack);
  ASSERT_TRUE(whole.has_value()) << whole.error().message();
  const Result<Prediction> found = predict(gptRow(), *shipped);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_GT(whole->memory.reserve, Bytes(double{1 << 29}));
  EXPECT_EQ(found->memory, whole->memory.total() - whole->memory.reserve);
}

// Nobody has published runs of Trireme's own programs, so there is nothing to count.
TEST(Predict, OwnProgramsHaveNoInterval) {
  const Result<Catalogue> shipped = loadCatalogue("", "");
  ASSERT_TRUE(shipped.has_value()) << shipped.error().message();
  Row row = gptRow();
  row.stack = "trireme";
  row.precision = "bf16";
  const Result<Prediction> found = predict(row, *shipped);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_FALSE(found->interval.has_value());
}

}  // namespace
}  // namespace trireme::cost
