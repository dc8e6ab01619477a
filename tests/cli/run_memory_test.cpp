// What a run takes is what was planned: the memory of the process is that of its arenas.
#include <gmock/gmock.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ir/program/bundle.h"
#include "ir/program/workspace.h"
#include "tests/cli/command.h"

#if TRIREME_HAVE_MLIR
namespace trireme::cli {
namespace {

// Bytes.
struct Memory {
  double peak = 0, arenas = 0;
  double idle = 0;  // workspace of threads that the run does not have
};

double idleWorkspace(const std::string& bundle) {
  const auto read = program::readBundle(bundle);
  if (!read) throw std::runtime_error(read.error().message());
  double bytes = 0;
  for (const program::RankInfo& rank : read->program.ranks) {
    const program::Role& role = read->program.roles[static_cast<size_t>(rank.role)];
    const int64_t workspace = role.buffers[static_cast<size_t>(role.workspace)].bytes();
    bytes += static_cast<double>(program::idleWorkspaceBytes(workspace, 1));
  }
  return bytes;
}

class RunMemory : public CommandTest {
 protected:
  RunMemory() {
    cluster = write("cluster.yaml", replaced(kTinyCluster, "64 MiB", "4 GiB"));
    training = write("train.yaml", replaced(kTinyTraining, "length: 16", "length: 64"));
  }

  // 9.5 million parameters of 16 bytes, or 50 thousand.
  Memory trained(const std::string& name, bool large, const std::vector<std::string>& pins) {
    std::string spec = replaced(kTinyModel, "max_sequence: 16", "max_sequence: 64");
    if (large) {
      spec = replaced(spec, "layers: 4", "layers: 12");
      spec = replaced(spec, "hidden_size: 32", "hidden_size: 256");
      spec = replaced(spec, "ffn_size: 64", "ffn_size: 1024");
    }
    model = write(name + ".yaml", spec);
    const std::string bundle = compile(name, pins);
    const Outcome outcome = run(bundle, {"--steps", "2", "--threads", "1", "--json"});
    expectSuccess(outcome);
    const nlohmann::json report = nlohmann::json::parse(outcome.out);
    return {report.at("processPeakBytes"), report.at("arenaBytes"), idleWorkspace(bundle)};
  }
};

// Besides its arenas a process holds the program and its libraries, tables, and the bundle: 67 to
// 79 MiB, nearly all of it code. It is measured with a model that needs next to nothing under the
// same plan, so that the build's own size does not count. Pages that nobody touches are not
// memory: less is taken by the workspace of threads that one rank does not have here.
TEST_F(RunMemory, IsThatOfTheArenas) {
#if TRIREME_SANITIZED
  GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
  constexpr double kMiB = 1 << 20;
  for (const char* line : {
           "--tp 1 --pp 1 --dp 1 --recompute none",
           "--tp 1 --pp 1 --dp 2 --recompute full --state-sharding none",
           "--tp 4 --pp 1 --dp 2 --recompute selective --sequence-parallel on",
           "--tp 2 --pp 2 --dp 2 --schedule 1f1b --state-sharding optimizer",
           "--tp 1 --pp 4 --dp 1 --schedule gpipe --microbatch 1 --state-sharding none",
           "--tp 2 --pp 2 --dp 1 --schedule interleaved --virtual-stages 2 --sequence-parallel off",
       }) {
    std::istringstream words(line);
    const std::vector<std::string> pins{std::istream_iterator<std::string>(words), {}};
    const Memory tiny = trained("small", false, pins), large = trained("large", true, pins);
    const double constant = tiny.peak - (tiny.arenas - tiny.idle);
    const double expected = large.arenas - large.idle + constant;
    std::printf(
        "%s: arenas %.1f MiB, of that idle %.1f MiB, process %.1f MiB, constant "
        "%.1f MiB: %+.1f %%\n",
        line, large.arenas / kMiB, large.idle / kMiB, large.peak / kMiB, constant / kMiB,
        100 * (large.peak / expected - 1));
    EXPECT_GT(large.arenas, 150 * kMiB) << line;
    EXPECT_LT(constant, 128 * kMiB) << line;
    EXPECT_GT(large.peak, 0.95 * expected) << line;
    EXPECT_LT(large.peak, 1.05 * expected) << line;
  }
}

}  // namespace
}  // namespace trireme::cli
#endif
