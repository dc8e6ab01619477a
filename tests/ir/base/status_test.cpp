#include "ir/base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace trireme {
namespace {

Status passes() { return {}; }
Status fails() { return invalidArgument("no such thing"); }
Result<int> gives(int value) { return value; }
Result<int> refuses() { return Error(infeasible("does not fit")); }

TEST(Status, DefaultIsOk) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().message(), "");
}

TEST(Status, ContextComesFirstAndKeepsTheCode) {
  const Status status = fails().withContext("stage 2").withContext("plan.yaml:14");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "plan.yaml:14: stage 2: no such thing");
}

TEST(Status, ContextLeavesASuccessAlone) {
  const Status status = passes().withContext("anything");
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.message(), "");
}

TEST(Status, EveryCodeHasItsOwnName) {
  EXPECT_EQ(statusCodeName(StatusCode::kOk), "ok");
  EXPECT_EQ(statusCodeName(invalidArgument("").code()), "invalid argument");
  EXPECT_EQ(statusCodeName(infeasible("").code()), "infeasible");
  EXPECT_EQ(statusCodeName(resourceExhausted("").code()), "resource exhausted");
  EXPECT_EQ(statusCodeName(unavailable("").code()), "unavailable");
  EXPECT_EQ(statusCodeName(internalError("").code()), "internal error");
}

Status stopsAt(bool failing, bool* reachedEnd) {
  TRIREME_RETURN_IF_ERROR(failing ? fails() : passes());
  *reachedEnd = true;
  return {};
}

TEST(ReturnIfError, ReturnsTheErrorAtOnce) {
  bool reachedEnd = false;
  EXPECT_EQ(stopsAt(true, &reachedEnd).message(), "no such thing");
  EXPECT_FALSE(reachedEnd);
}

TEST(ReturnIfError, GoesOnAfterASuccess) {
  bool reachedEnd = false;
  EXPECT_TRUE(stopsAt(false, &reachedEnd).ok());
  EXPECT_TRUE(reachedEnd);
}

Result<std::string> fromStatus() {
  TRIREME_RETURN_IF_ERROR(fails());
  return "unreachable";
}

TEST(ReturnIfError, ServesFunctionsThatReturnAResult) {
  ASSERT_FALSE(fromStatus().has_value());
  EXPECT_EQ(fromStatus().error().message(), "no such thing");
}

Result<int> sum(bool failing) {
  TRIREME_ASSIGN_OR_RETURN(const int a, gives(2));
  TRIREME_ASSIGN_OR_RETURN(const int b, failing ? refuses() : gives(3));
  return a + b;
}

Status consume() {
  TRIREME_ASSIGN_OR_RETURN(const int value, refuses());
  return value > 0 ? passes() : fails();
}

TEST(AssignOrReturn, GivesTheValue) { EXPECT_EQ(sum(false).value(), 5); }

TEST(AssignOrReturn, ReturnsTheErrorWithItsCode) {
  ASSERT_FALSE(sum(true).has_value());
  EXPECT_EQ(sum(true).error().code(), StatusCode::kInfeasible);
  EXPECT_EQ(consume().code(), StatusCode::kInfeasible);
}

Result<int> unbox() {
  TRIREME_ASSIGN_OR_RETURN(const std::unique_ptr<int> box,
                           Result<std::unique_ptr<int>>(std::make_unique<int>(7)));
  return *box;
}

TEST(AssignOrReturn, MovesValuesThatCannotBeCopied) { EXPECT_EQ(unbox().value(), 7); }

TEST(CheckDeathTest, NamesTheConditionAndThePlace) {
  EXPECT_DEATH(TRIREME_CHECK(1 + 1 == 3), "status_test.cpp:[0-9]+: check failed: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace trireme
