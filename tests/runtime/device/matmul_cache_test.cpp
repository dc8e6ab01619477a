#include "runtime/device/cuda/matmul_cache.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace trireme::runtime::cuda {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kKind =
    "NVIDIA H100 80GB HBM3, compute capability 9.0, cuBLASLt 130100, driver 1";

TimedAlgorithm timed(uint64_t word, double microseconds) {
  return {{.words = {word, 2, 3, 4, 5, 6, 7, 0xFEDCBA9876543210}, .workspaceBytes = 4096},
          Seconds(1e-6 * microseconds)};
}

TEST(MatmulCache, ALineShowsProductTimeWorkspaceAndAlgorithm) {
  const std::string line = printTimed("matmul of 8 tokens", timed(1, 12.34));
  EXPECT_THAT(line, ::testing::StartsWith(
                        "matmul of 8 tokens\t12.3 us\t4096\t"
                        "00000000000000010000000000000002000000000000000300000000000000040000000000"
                        "00000500000000000000060000000000000007fedcba9876543210\t"));
  const auto parsed = parseTimed(line);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  EXPECT_EQ(parsed->first, "matmul of 8 tokens");
  EXPECT_EQ(parsed->second.algorithm, timed(1, 0).algorithm);
  EXPECT_NEAR(parsed->second.time.count(), 12.3e-6, 1e-12);
}

TEST(MatmulCache, ALineWithAnyDamageIsRefused) {
  const std::string line = printTimed("matmul", timed(1, 12));
  for (size_t i = 0; i < line.size(); ++i) {
    EXPECT_FALSE(parseTimed(line.substr(0, i)).has_value()) << i;
    std::string changed = line;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(parseTimed(changed).has_value()) << changed;
  }
  EXPECT_FALSE(parseTimed(line + "0").has_value());
}

class MatmulCacheFile : public ::testing::Test {
 protected:
  MatmulCacheFile()
      : folder_(
            (fs::temp_directory_path() / ("trireme-matmuls-" + std::to_string(getpid()))).string()),
        path_(matmulCachePath(folder_ + "/below", kKind)) {}
  ~MatmulCacheFile() override { fs::remove_all(folder_); }

  std::string text() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  void setText(const std::string& text) const { std::ofstream(path_) << text; }
  MatmulCache read() { return readMatmulCache(path_, kKind, files_); }

  std::string folder_, path_;
  PosixFileSystem files_;
  const TimedAlgorithms two_ = {{"a", timed(1, 10)}, {"b", timed(2, 20)}};
};

TEST_F(MatmulCacheFile, IsNamedAfterGpuAndVersions) {
  EXPECT_EQ(path_, folder_ +
                       "/below/matmul-NVIDIA-H100-80GB-HBM3-compute-capability-9.0-cuBLASLt-"
                       "130100-driver-1.txt");
}

TEST_F(MatmulCacheFile, ComesBackAsItWasWritten) {
  EXPECT_TRUE(read().timed.empty());
  EXPECT_EQ(read().note, "");
  ASSERT_EQ(writeMatmulCache(path_, kKind, two_, files_).message(), "");
  const MatmulCache cache = read();
  EXPECT_EQ(cache.note, "");
  ASSERT_EQ(cache.timed.size(), 2u);
  EXPECT_EQ(cache.timed.at("a").algorithm, two_.at("a").algorithm);
  EXPECT_EQ(cache.timed.at("b").algorithm, two_.at("b").algorithm);
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path_).parent_path()), {}), 1);
}

TEST_F(MatmulCacheFile, DamagedLinesAreLeftOutAndCounted) {
  ASSERT_EQ(writeMatmulCache(path_, kKind, two_, files_).message(), "");
  std::string damaged = text();
  damaged[damaged.find("\nb") + 10] ^= 1;
  setText(damaged + "scribble\n");
  const MatmulCache cache = read();
  EXPECT_EQ(cache.note, path_ + ": damaged lines left out: 2");
  ASSERT_EQ(cache.timed.size(), 1u);
  EXPECT_TRUE(cache.timed.contains("a"));
}

TEST_F(MatmulCacheFile, OfAnotherKindIsNotUsed) {
  ASSERT_EQ(writeMatmulCache(path_, "another GPU", two_, files_).message(), "");
  EXPECT_TRUE(read().timed.empty());
  EXPECT_THAT(read().note, HasSubstr("is not of NVIDIA H100"));
  setText("");
  EXPECT_THAT(read().note, HasSubstr("timed anew"));
}

TEST_F(MatmulCacheFile, AFolderThatCannotBeMadeIsNamed) {
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/below") << "a file";
  const Status status = writeMatmulCache(path_, kKind, two_, files_);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(folder_ + "/below: "));
}

}  // namespace
}  // namespace trireme::runtime::cuda
