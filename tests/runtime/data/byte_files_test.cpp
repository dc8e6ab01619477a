#include "runtime/data/byte_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace trireme::runtime {
namespace {

class ByteFilesTest : public testing::Test {
 protected:
  ByteFilesTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("byte_files_" + std::to_string(getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~ByteFilesTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string errorOf(const std::vector<std::string>& paths,
                             const ByteFilesOptions& options) {
    const auto files = ByteFiles::open(paths, options);
    EXPECT_FALSE(files.has_value());
    if (files.has_value()) return "";
    EXPECT_EQ(files.error().code(), StatusCode::kInvalidArgument);
    return files.error().message();
  }

  std::filesystem::path folder_;
};

std::vector<int32_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

// "abcdefgh" + "ij": windows of 3 start at 0, 3 and 6; the last label of window 2 is 'j'.
TEST_F(ByteFilesTest, SequentialWindowsCrossFilesAndStartAgain) {
  const std::vector<std::string> paths = {write("a", "abcdefgh"), write("b", "ij")};
  ByteFilesOptions options;
  options.sequenceLength = 3;
  options.order = SampleOrder::kSequential;
  auto files = ByteFiles::open(paths, options);
  ASSERT_TRUE(files.has_value()) << files.error().message();
  const std::string tokens[] = {"abc", "def", "ghi", "abc"};
  const std::string labels[] = {"bcd", "efg", "hij", "bcd"};
  for (uint64_t i = 0; i < 4; ++i) {
    std::vector<int32_t> t(3), l(3);
    ASSERT_TRUE((*files)->sample(i, 3, 1, t.data(), l.data()).ok());
    EXPECT_EQ(t, bytes(tokens[i]));
    EXPECT_EQ(l, bytes(labels[i]));
  }
}

TEST_F(ByteFilesTest, TheStrideLaysSamplesOutAsColumns) {
  const std::string path = write("a", "abcdefg");
  ByteFilesOptions options;
  options.sequenceLength = 3;
  options.order = SampleOrder::kSequential;
  auto files = ByteFiles::open({path}, options);
  ASSERT_TRUE(files.has_value());
  std::vector<int32_t> tokens(6);
  for (uint64_t i : {0, 1}) ASSERT_TRUE((*files)->sample(i, 3, 2, tokens.data() + i, nullptr).ok());
  EXPECT_EQ(tokens, bytes("adbecf"));
}

// A text longer than the block that is read at a time.
TEST_F(ByteFilesTest, RandomSamplesAreAFunctionOfSeedAndIndexAndReachBothEnds) {
  std::string text;
  for (int i = 0; i < 9000; ++i) text += static_cast<char>(i % 251);
  const std::string path = write("a", text);
  ByteFilesOptions options;
  options.seed = 5;
  options.sequenceLength = 8996;  // starts 0 .. 3
  auto files = ByteFiles::open({path}, options);
  auto again = ByteFiles::open({path}, options);
  options.seed = 6;
  auto other = ByteFiles::open({path}, options);
  int counts[4] = {}, differences = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    const int64_t start = (*files)->positionOf(i, 8996);
    ASSERT_GE(start, 0);
    ASSERT_LT(start, 4);
    ++counts[start];
    EXPECT_EQ(start, (*again)->positionOf(i, 8996));
    differences += start != (*other)->positionOf(i, 8996);
  }
  for (int count : counts) EXPECT_GT(count, 60);  // 100 expected, 8.7 standard deviation
  EXPECT_GT(differences, 200);
  std::vector<int32_t> tokens(8996), labels(8996);
  ASSERT_TRUE((*files)->sample(7, 8996, 1, tokens.data(), labels.data()).ok());
  const int64_t start = (*files)->positionOf(7, 8996);
  for (int64_t s = 0; s < 8996; ++s) {
    ASSERT_EQ(tokens[static_cast<size_t>(s)], (start + s) % 251);
    ASSERT_EQ(labels[static_cast<size_t>(s)], (start + s + 1) % 251);
  }
}

TEST_F(ByteFilesTest, UnusableFilesAreRefusedByName) {
  ByteFilesOptions options;
  options.sequenceLength = 4;
  const std::string good = write("good", "abcdefgh"), empty = write("empty", "");
  const std::string missing = folder_ / "missing";
  EXPECT_EQ(errorOf({}, options), "no data file");
  EXPECT_EQ(errorOf({good, empty}, options), "data file " + empty + ": empty");
  EXPECT_EQ(errorOf({missing}, options), "data file " + missing + ": No such file or directory");
  EXPECT_EQ(errorOf({folder_.string()}, options),
            "data file " + folder_.string() + ": not a regular file");
}

TEST_F(ByteFilesTest, ATextOfExactlyOneSampleAndItsLastLabelIsEnough) {
  ByteFilesOptions options;
  options.sequenceLength = 4;
  EXPECT_EQ(errorOf({write("four", "abcd")}, options),
            "the data is too short: 4 bytes, and a sample of 4 tokens needs 5");
  EXPECT_TRUE(ByteFiles::open({write("five", "abcde")}, options).has_value());
}

TEST_F(ByteFilesTest, AByteOutsideTheVocabularyIsRefusedWithFileAndPosition) {
  ByteFilesOptions options;
  options.vocabSize = 128;
  options.sequenceLength = 2;
  const std::string good = write("good", "abc"), bad = write("bad", "abc\x80z");
  EXPECT_EQ(errorOf({good, bad}, options),
            "data file " + bad + ", byte 3: 128 is not in the vocabulary of 128");
}

TEST_F(ByteFilesTest, AFileThatShrinksIsAnErrorNotACrash) {
  ByteFilesOptions options;
  options.sequenceLength = 4;
  options.order = SampleOrder::kSequential;
  const std::string path = write("a", "abcdefghijkl");
  auto files = ByteFiles::open({path}, options);
  ASSERT_TRUE(files.has_value());
  std::filesystem::resize_file(path, 2);
  std::vector<int32_t> tokens(4);
  EXPECT_EQ((*files)->sample(1, 4, 1, tokens.data(), nullptr).message(),
            "data file " + path + ": shrunk while in use");
}

}  // namespace
}  // namespace trireme::runtime
