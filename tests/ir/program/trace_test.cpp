#include "ir/program/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/program_builder.h"

namespace trireme::program {
namespace {

// One process per rank, one thread per stream, times in microseconds.
TEST(PerfettoJson, NamesProcessesThreadsAndSlices) {
  const Program p = trireme::testing::buildPipeline({1, 2, 1, 1, 1, 2});
  TraceEvent e;
  e.rank = 1;
  e.segment = 2;
  e.chunk = 0;
  e.microbatch = 1;
  e.layer = 0;
  e.beginSeconds = 0.001;
  e.endSeconds = 0.0035;
  const auto json = nlohmann::json::parse(toPerfettoJson(p, {e}));
  const auto& events = json["traceEvents"];
  ASSERT_EQ(events.size(), 1 + kNumStreams + 1);
  EXPECT_EQ(events[0]["args"]["name"], "rank 1 (pp 1 dp 0 tp 0)");
  EXPECT_EQ(events[1]["args"]["name"], "compute");
  const auto& slice = events.back();
  EXPECT_EQ(slice["name"], "layer.forward");
  EXPECT_EQ(slice["pid"], 1);
  EXPECT_EQ(slice["args"]["step"], 1);  // People count from 1.
  EXPECT_EQ(slice["ts"], 1000);
  EXPECT_EQ(slice["dur"], 2500);
  EXPECT_EQ(slice["args"]["task"], "F0.1");
}

}  // namespace
}  // namespace trireme::program
