// The measurement files themselves, in the folder that TRIREME_REFERENCE names: every file with
// rows is read, and nearly every scored row says enough to be predicted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "cost_models/validation/mapping.h"
#include "ir/spec/load.h"

namespace trireme::cost {
namespace {

namespace fs = std::filesystem;

std::string readAll(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<Row> readReference(const std::string& folder) {
  std::vector<Row> rows;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".csv") continue;
    const std::string text = readAll(entry.path());
    if (!text.starts_with("id,stack,scored,")) continue;  // tables of other things
    const Result<RowFile> file = parseRows(text, entry.path().filename().string());
    EXPECT_TRUE(file.has_value()) << file.error().message();
    if (file.has_value()) rows.insert(rows.end(), file->rows.begin(), file->rows.end());
  }
  return rows;
}

// Machines of up to 16 for every GPU and, for every stack that the rows name, a profile that trains
// in every precision.
Catalogue everyName(const std::vector<Row>& rows) {
  std::set<std::string> gpus, stacks;
  for (const Row& row : rows) gpus.insert(row.gpu), stacks.insert(row.stack);
  Catalogue catalogue;
  for (const std::string& gpu : gpus) {
    spec::ClusterSpec cluster;
    cluster.name = cluster.device.name = gpu;
    cluster.numDevices = 64;
    cluster.tiers.push_back({"nvlink", 16, BytesPerSecond(300e9), Seconds(1e-6)});
    cluster.tiers.push_back({"ib", 64, BytesPerSecond(25e9), Seconds(1e-5)});
    catalogue.clusters.push_back(std::move(cluster));
  }
  for (const std::string& stack : stacks) {
    catalogue.stacks.emplace_back();
    catalogue.stacks.back().name = stack;
    catalogue.stacks.back().precisions.push_back(spec::Precision::kFp8);
  }
  return catalogue;
}

TEST(Reference, NearlyEveryScoredRowSaysEnough) {
  const char* const folder = std::getenv("TRIREME_REFERENCE");
  if (!folder) GTEST_SKIP() << "TRIREME_REFERENCE names no folder";
  const std::vector<Row> rows = readReference(folder);
  ASSERT_FALSE(rows.empty());
  const Catalogue catalogue = everyName(rows);
  int numScored = 0, numSkipped = 0;
  std::map<std::string, int> reasons;
  for (const Row& row : rows) {
    const Result<RunQuery> query = queryOf(row, catalogue);
    if (!row.scored) continue;
    ++numScored;
    EXPECT_TRUE(measuredSeconds(row).has_value()) << row.id;
    if (query.has_value()) continue;
    ++numSkipped;
    ++reasons[query.error().message()];
  }
  for (const auto& [reason, count] : reasons) fmt::print("{:>4}  {}\n", count, reason);
  fmt::print("{} of {} scored rows skipped\n", numSkipped, numScored);
  EXPECT_LE(numSkipped, 0.02 * numScored);
}

// Of every profile with an interval the GPUs of the runs that it was compared with, but for those
// with a caution; and, where all files are there, no others.
TEST(ComparedOn, AreTheGpusOfTheRuns) {
  const std::string root = TRIREME_SOURCE_DIR;
  std::vector<Row> rows = readReference(root + "/cost_models/validation");
  EXPECT_GT(rows.size(), 200u);
  const char* const folder = std::getenv("TRIREME_REFERENCE");
  if (folder)
    for (Row& row : readReference(folder)) rows.push_back(std::move(row));
  const auto catalogue = loadCatalogue(root + "/examples/clusters", root + "/examples/stacks");
  ASSERT_TRUE(catalogue.has_value());
  std::map<std::string, std::set<std::string>> devices;
  for (const Row& row : rows) {
    const Result<RunQuery> query = queryOf(row, *catalogue);
    if (!query.has_value() || !measuredSeconds(row)) continue;
    const spec::DeviceSpec& device = query->cluster.device;
    devices[query->stack.name].insert(device.name);
    if (query->stack.description.fasterRuns == 0 || !device.caution.empty()) continue;
    EXPECT_TRUE(query->stack.description.isComparedOn(device.name))
        << row.id << ": " << query->stack.name << " on " << device.name;
  }
  if (!folder) return;
  for (const auto& [stack, seen] : devices) {
    const spec::StackDescription description = spec::loadStack(stack)->description;
    for (const std::string& name : description.comparedOn)
      EXPECT_TRUE(std::any_of(
          seen.begin(), seen.end(),
          [&](const std::string& device) { return (device + "-").starts_with(name + "-"); }))
          << stack << ": " << name;
  }
}

}  // namespace
}  // namespace trireme::cost
