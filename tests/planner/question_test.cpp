#include "planner/question.h"

#include <gtest/gtest.h>

#include "ir/spec/load.h"

namespace trireme::planner {
namespace {

TEST(OwnStack, IsTheShippedProfile) {
  spec::StackProfile shipped = spec::loadStack("trireme").value();
  shipped.sources.clear();
  EXPECT_EQ(ownStack(), shipped);
}

}  // namespace
}  // namespace trireme::planner
