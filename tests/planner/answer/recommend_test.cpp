#include "planner/answer/recommend.h"

#include <gmock/gmock.h>

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;

// The answer takes 10 s when it is played; a runner-up that takes 9.5 s then is told, one that is
// as good as equal is not, and of those that were not played nothing is known.
TEST(OvertakenLine, TellsOfARunnerUpThatIsFasterTaskByTask) {
  Recommendation r;
  r.path.simulated = Seconds(10);
  EXPECT_EQ(overtakenLine(r), "");
  r.result.runnersUp.resize(3);
  r.result.runnersUp[2].plan.tp = 4;
  EXPECT_EQ(overtakenLine(r), "");
  r.result.runnersUp[0].simulated = Seconds(9.99);
  r.result.runnersUp[1].simulated = Seconds(12);
  EXPECT_EQ(overtakenLine(r), "");
  r.result.runnersUp[2].simulated = Seconds(9.5);
  EXPECT_THAT(overtakenLine(r),
              HasSubstr("task by task a runner-up takes 5.0 % less, 9.500 s: tp 4"));
}

}  // namespace
}  // namespace trireme::planner
