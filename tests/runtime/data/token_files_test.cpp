#include "runtime/data/token_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <tuple>

namespace trireme::runtime {
namespace {

class TokenFilesTest : public ::testing::Test {
 protected:
  TokenFilesTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("token_files_" + std::to_string(getpid()) + "_" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~TokenFilesTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string errorOf(const std::vector<std::string>& paths,
                             const TokenFilesOptions& options) {
    const auto files = TokenFiles::open(paths, options);
    EXPECT_FALSE(files.has_value());
    if (files.has_value()) return "";
    EXPECT_EQ(files.error().code(), StatusCode::kInvalidArgument);
    return files.error().message();
  }

  std::filesystem::path folder_;
};

std::vector<int32_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

// "abcdefgh" + "ij": windows of 3 start at 0, 3 and 6; the last label of window 2 is 'j'.
TEST_F(TokenFilesTest, SequentialWindowsCrossFilesAndStartAgain) {
  const std::vector<std::string> paths = {write("a", "abcdefgh"), write("b", "ij")};
  TokenFilesOptions options;
  options.sequenceLength = 3;
  options.order = SampleOrder::kSequential;
  auto files = TokenFiles::open(paths, options);
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

// The same bytes elsewhere are the same data; another end, type, order or cut into files is not.
TEST_F(TokenFilesTest, IdentityIsThatOfTheSamples) {
  const std::string text(10000, 'a');
  const auto identityOf = [&](const std::vector<std::string>& paths, TokenFilesOptions options) {
    const auto files = TokenFiles::open(paths, options);
    EXPECT_TRUE(files.has_value());
    return files.has_value() ? (*files)->identity() : "";
  };
  const std::string file = write("a", text), copy = write("b", text);
  const std::string identity = identityOf({file}, {});
  EXPECT_TRUE(identity.starts_with("10000 tokens in random order, fingerprint ")) << identity;
  EXPECT_EQ(identityOf({copy}, {}), identity);
  EXPECT_NE(identityOf({write("c", text.substr(1) + "b")}, {}), identity);
  EXPECT_NE(identityOf({write("d", text + "a")}, {}), identity);
  EXPECT_NE(identityOf({file}, {.order = SampleOrder::kShuffled}), identity);
  EXPECT_NE(identityOf({file}, {.vocabSize = 1 << 16, .type = TokenType::kU16}), identity);
}

TEST_F(TokenFilesTest, TheStrideLaysSamplesOutAsColumns) {
  const std::string path = write("a", "abcdefg");
  TokenFilesOptions options;
  options.sequenceLength = 3;
  options.order = SampleOrder::kSequential;
  auto files = TokenFiles::open({path}, options);
  ASSERT_TRUE(files.has_value());
  std::vector<int32_t> tokens(6);
  for (uint64_t i : {0, 1}) ASSERT_TRUE((*files)->sample(i, 3, 2, tokens.data() + i, nullptr).ok());
  EXPECT_EQ(tokens, bytes("adbecf"));
}

// A text longer than the block that is read at a time.
TEST_F(TokenFilesTest, RandomSamplesAreAFunctionOfSeedAndIndexAndReachBothEnds) {
  std::string text;
  for (int i = 0; i < 9000; ++i) text += static_cast<char>(i % 251);
  const std::string path = write("a", text);
  TokenFilesOptions options;
  options.seed = 5;
  options.sequenceLength = 8996;  // starts 0 .. 3
  auto files = TokenFiles::open({path}, options);
  auto again = TokenFiles::open({path}, options);
  options.seed = 6;
  auto other = TokenFiles::open({path}, options);
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

TEST_F(TokenFilesTest, UnusableFilesAreRefusedByName) {
  TokenFilesOptions options;
  options.sequenceLength = 4;
  const std::string good = write("good", "abcdefgh"), empty = write("empty", "");
  const std::string missing = folder_ / "missing";
  EXPECT_EQ(errorOf({}, options), "no data file");
  EXPECT_EQ(errorOf({good, empty}, options), "data file " + empty + ": empty");
  EXPECT_EQ(errorOf({missing}, options), "data file " + missing + ": No such file or directory");
  EXPECT_EQ(errorOf({folder_.string()}, options),
            "data file " + folder_.string() + ": not a regular file");
}

TEST_F(TokenFilesTest, ATextOfExactlyOneSampleAndItsLastLabelIsEnough) {
  TokenFilesOptions options;
  options.sequenceLength = 4;
  EXPECT_EQ(errorOf({write("four", "abcd")}, options),
            "the data is too short: 4 bytes, and a sample of 4 tokens needs 5");
  EXPECT_TRUE(TokenFiles::open({write("five", "abcde")}, options).has_value());
}

TEST_F(TokenFilesTest, AByteOutsideTheVocabularyIsRefusedWithFileAndPosition) {
  TokenFilesOptions options;
  options.vocabSize = 128;
  options.sequenceLength = 2;
  const std::string good = write("good", "abc"), bad = write("bad", "abc\x80z");
  EXPECT_EQ(errorOf({good, bad}, options),
            "data file " + bad + ", byte 3: 128 is not in the vocabulary of 128");
}

TEST_F(TokenFilesTest, AFileThatShrinksIsAnErrorNotACrash) {
  TokenFilesOptions options;
  options.sequenceLength = 4;
  options.order = SampleOrder::kSequential;
  const std::string path = write("a", "abcdefghijkl");
  auto files = TokenFiles::open({path}, options);
  ASSERT_TRUE(files.has_value());
  std::filesystem::resize_file(path, 2);
  std::vector<int32_t> tokens(4);
  EXPECT_EQ((*files)->sample(1, 4, 1, tokens.data(), nullptr).message(),
            "data file " + path + ": shrunk while in use");
}

template <typename T>
std::string array(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// X.idx of one document with sequences of these lengths, as indexed_dataset.py writes it.
std::string indexOf(uint8_t type, int64_t tokenBytes, const std::vector<int32_t>& lengths) {
  std::vector<int64_t> places, documents = {0, static_cast<int64_t>(lengths.size())};
  int64_t at = 0;
  for (const int32_t length : lengths) {
    places.push_back(at);
    at += length * tokenBytes;
  }
  return std::string("MMIDIDX\0\0", 9) + array<uint64_t>({1}) + static_cast<char>(type) +
         array<uint64_t>({lengths.size(), documents.size()}) + array(lengths) + array(places) +
         array(documents);
}

TEST_F(TokenFilesTest, IntegersOfEveryTypeAreRead) {
  TokenFilesOptions options;
  options.sequenceLength = 3;
  options.order = SampleOrder::kSequential;
  options.vocabSize = 70000;
  const std::vector<int64_t> tokens = {1, 200, 30000, 4};
  const std::pair<TokenType, std::string> files[] = {
      {TokenType::kU16, array<uint16_t>({1, 200, 30000, 4})},
      {TokenType::kI16, array<int16_t>({1, 200, 30000, 4})},
      {TokenType::kI32, array<int32_t>({1, 200, 30000, 4})},
      {TokenType::kI64, array(tokens)}};
  for (const auto& [type, content] : files) {
    options.type = type;
    auto data = TokenFiles::open({write("tokens", content)}, options);
    ASSERT_TRUE(data.has_value()) << data.error().message();
    std::vector<int32_t> t(3), l(3);
    ASSERT_TRUE((*data)->sample(0, 3, 1, t.data(), l.data()).ok());
    EXPECT_EQ(t, (std::vector<int32_t>{1, 200, 30000})) << tokenTypeName(type);
    EXPECT_EQ(l, (std::vector<int32_t>{200, 30000, 4})) << tokenTypeName(type);
  }
}

TEST_F(TokenFilesTest, MegatronDatasetsFollowEachOther) {
  TokenFilesOptions options;
  options.sequenceLength = 5;
  options.order = SampleOrder::kSequential;
  options.vocabSize = 100000;
  write("a.bin", array<uint16_t>({1, 2, 65535, 4}));
  write("b.bin", array<int32_t>({70000, 6}));
  const std::string a = write("a.idx", indexOf(8, 2, {3, 1})),
                    b = write("b.idx", indexOf(4, 4, {2}));
  auto data = TokenFiles::open({a, b}, options);
  ASSERT_TRUE(data.has_value()) << data.error().message();
  EXPECT_EQ((*data)->totalTokens(), 6);
  std::vector<int32_t> t(5), l(5);
  ASSERT_TRUE((*data)->sample(0, 5, 1, t.data(), l.data()).ok());
  EXPECT_EQ(t, (std::vector<int32_t>{1, 2, 65535, 4, 70000}));
  EXPECT_EQ(l, (std::vector<int32_t>{2, 65535, 4, 70000, 6}));
}

TEST_F(TokenFilesTest, DamagedDatasetsAreRefused) {
  TokenFilesOptions options;
  const std::string good = indexOf(8, 2, {3, 1}), data = array<uint16_t>({1, 2, 3, 4});
  const auto refusal = [&](const std::string& index, const std::string& bin) {
    const std::string path = write("d.idx", index);
    write("d.bin", bin);
    return errorOf({path}, options);
  };
  EXPECT_NE(refusal("nothing", data).find("d.idx: not the index of a Megatron dataset"),
            std::string::npos);
  EXPECT_NE(refusal(good.substr(0, good.size() - 1), data).find("do not hold an index of 2"),
            std::string::npos);
  std::string changed = good;
  changed[9] = 2;
  EXPECT_NE(refusal(changed, data).find("index of version 2, this reads 1"), std::string::npos);
  changed = good;
  changed[17] = 7;
  EXPECT_NE(refusal(changed, data).find("type 7 holds no tokens"), std::string::npos);
  changed = good;
  changed[25] = '\x7f';  // 2^62 sequences and more
  EXPECT_NE(refusal(changed, data).find("do not hold an index of"), std::string::npos);
  EXPECT_NE(refusal(good, data.substr(2)).find("d.bin: 6 bytes, but "), std::string::npos);
  EXPECT_NE(refusal(good, data.substr(1)).find("7 bytes are no whole number of uint16"),
            std::string::npos);
  std::filesystem::remove(folder_ / "d.bin");
  EXPECT_NE(errorOf({folder_ / "d.idx"}, options).find("d.bin: No such file"), std::string::npos);
}

// Before training begins or, behind the tokens that are checked then, when it is drawn.
TEST_F(TokenFilesTest, ATokenOutsideTheVocabularyIsRefusedWhereItIs) {
  TokenFilesOptions options;
  options.type = TokenType::kI32;
  options.sequenceLength = 2;
  options.order = SampleOrder::kSequential;
  for (const int32_t bad : {-1, 256}) {
    const std::string path = write("t", array<int32_t>({1, bad, 3}));
    const std::string message = "data file " + path + ", token 1: " + std::to_string(bad) +
                                " is not in the vocabulary of 256";
    options.checkedBytes = 2 * 4;
    EXPECT_EQ(errorOf({path}, options), message);
    options.checkedBytes = 1 * 4;
    auto data = TokenFiles::open({path}, options);
    ASSERT_TRUE(data.has_value());
    std::vector<int32_t> tokens(2);
    EXPECT_EQ((*data)->sample(0, 2, 1, tokens.data(), nullptr).message(), message);
  }
}

// Of 8 + 16 tokens 12 are: the first 4 and the first 8. Text of a vocabulary that has all bytes is
// left out.
TEST_F(TokenFilesTest, OfMoreThanIsCheckedTheSameShareOfEveryFileIs) {
  const auto fileWith = [&](size_t size, size_t bad) {
    std::vector<int16_t> tokens(size, 7);
    if (bad < size) tokens[bad] = -1;
    return write("t" + std::to_string(size), array(tokens));
  };
  for (const auto& [first, second, isFound] : std::vector<std::tuple<size_t, size_t, bool>>{
           {3, 16, true}, {4, 16, false}, {8, 7, true}, {8, 8, false}}) {
    TokenFilesOptions options;
    options.type = TokenType::kI16;
    options.checkedBytes = 12 * 2;
    int64_t done = 0, all = 0;
    options.whileChecking = [&](int64_t now, int64_t of) { done = now, all = of; };
    EXPECT_NE(TokenFiles::open({fileWith(8, first), fileWith(16, second)}, options).has_value(),
              isFound);
    EXPECT_EQ(all, 24);
    if (!isFound) {
      EXPECT_EQ(done, 24);
    }
  }
  TokenFilesOptions bytes;
  bytes.whileChecking = [](int64_t, int64_t) { ADD_FAILURE() << "every byte is a token"; };
  EXPECT_TRUE(TokenFiles::open({write("text", "abc")}, bytes).has_value());
}

// Longer than the block that is read at a time, and of no multiple of the parts, which are all that
// a process may check.
TEST_F(TokenFilesTest, ProcessesCheckAPartEach) {
  TokenFilesOptions options;
  options.type = TokenType::kI32;
  options.numParts = 3;
  const size_t size = 100'001;
  options.checkedBytes = 4 * (size / 3 + 1);
  for (const size_t bad : {size_t{0}, size / 3 - 1, size / 3, 2 * size / 3, size - 1}) {
    std::vector<int32_t> tokens(size, 255);
    tokens[bad] = 256;
    const std::string path = write("t", array(tokens));
    std::vector<std::string> found;
    for (options.part = 0; options.part < 3; ++options.part)
      if (const auto opened = TokenFiles::open({path}, options); !opened.has_value())
        found.push_back(opened.error().message());
    EXPECT_EQ(found,
              (std::vector<std::string>{"data file " + path + ", token " + std::to_string(bad) +
                                        ": 256 is not in the vocabulary of 256"}));
  }
}

TEST(TokenType, NegativeTokensAreNeverWithinAVocabulary) {
  const auto isWithin = [](TokenType type, const std::string& data, int64_t vocabSize) {
    return tokensAreWithin(type, data.data(), std::ssize(data) / tokenBytes(type), vocabSize);
  };
  const int64_t most = INT32_MAX;
  EXPECT_TRUE(isWithin(TokenType::kU8, array<uint8_t>({0, 255}), 256));
  EXPECT_FALSE(isWithin(TokenType::kU8, array<uint8_t>({255, 0}), 255));
  EXPECT_TRUE(isWithin(TokenType::kU16, array<uint16_t>({0, 65535}), 65536));
  EXPECT_FALSE(isWithin(TokenType::kU16, array<uint16_t>({65535, 0}), 65535));
  EXPECT_TRUE(isWithin(TokenType::kI16, array<int16_t>({0, 32767}), most));
  EXPECT_FALSE(isWithin(TokenType::kI16, array<int16_t>({-1, 0}), most));
  EXPECT_FALSE(isWithin(TokenType::kI16, array<int16_t>({INT16_MIN, 0}), most));
  EXPECT_TRUE(isWithin(TokenType::kI32, array<int32_t>({0, 69999}), 70000));
  EXPECT_FALSE(isWithin(TokenType::kI32, array<int32_t>({70000, 0}), 70000));
  EXPECT_FALSE(isWithin(TokenType::kI32, array<int32_t>({-1, 0}), most));
  EXPECT_TRUE(isWithin(TokenType::kI64, array<int64_t>({0, 69999}), 70000));
  EXPECT_FALSE(isWithin(TokenType::kI64, array<int64_t>({int64_t{1} << 32, 0}), 70000));
  EXPECT_FALSE(isWithin(TokenType::kI64, array<int64_t>({INT64_MIN, 0}), 70000));
}

// In a vocabulary of 65536 every uint16 is a token, in one of 65535 all but the last.
TEST_F(TokenFilesTest, TheLastTokenOfATypeMayBeOutsideTheVocabulary) {
  TokenFilesOptions options;
  options.type = TokenType::kU16;
  options.sequenceLength = 1;
  const std::string path = write("t", array<uint16_t>({1, 65535}));
  options.vocabSize = 65536;
  EXPECT_TRUE(TokenFiles::open({path}, options).has_value());
  options.vocabSize = 65535;
  EXPECT_EQ(errorOf({path}, options),
            "data file " + path + ", token 1: 65535 is not in the vocabulary of 65535");
}

// 10 windows of 7 and a rest: each once per epoch, in another order each time and for each seed.
TEST(SampleOrder, ShuffledVisitsEveryWindowOncePerEpoch) {
  for (const int64_t windows : {1, 2, 3, 10, 1000, 4096}) {
    const int64_t total = windows * 7 + 4;
    std::vector<std::vector<int64_t>> epochs;
    for (const uint64_t seed : {1, 2})
      for (uint64_t epoch = 0; epoch < 2; ++epoch) {
        std::vector<int64_t> starts;
        for (int64_t i = 0; i < windows; ++i)
          starts.push_back(samplePosition(
              SampleOrder::kShuffled, seed,
              epoch * static_cast<uint64_t>(windows) + static_cast<uint64_t>(i), 7, total));
        epochs.push_back(starts);
        std::sort(starts.begin(), starts.end());
        for (int64_t i = 0; i < windows; ++i) ASSERT_EQ(starts[static_cast<size_t>(i)], 7 * i);
      }
    if (windows < 10) continue;
    for (size_t i = 0; i < epochs.size(); ++i)
      for (size_t k = 0; k < i; ++k) EXPECT_NE(epochs[i], epochs[k]) << windows;
  }
}

// A window may come at any place: its mean place over 1,000 epochs of 100 windows is 49.5, with a
// standard deviation of 28.9 / sqrt(1000) = 0.91.
TEST(SampleOrder, ShuffledFavoursNoPlace) {
  for (const uint64_t place : {0, 50, 99}) {
    double sum = 0;
    for (uint64_t epoch = 0; epoch < 1000; ++epoch)
      sum += static_cast<double>(
          samplePosition(SampleOrder::kShuffled, 9, epoch * 100 + place, 1, 101));
    EXPECT_NEAR(sum / 1000, 49.5, 4) << place;
  }
}

}  // namespace
}  // namespace trireme::runtime
