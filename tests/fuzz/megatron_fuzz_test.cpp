// Damaged headers of Megatron indexes: an index that fits its file, or an error.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/data/megatron_index.h"
#include "tests/support/damaged_text.h"

namespace trireme::runtime {
namespace {

// 5 sequences and 2 documents of uint16: 34 + 12 * 5 + 8 * 2 bytes.
constexpr int64_t kFileBytes = 110;
std::string validHeader() {
  std::string header("MMIDIDX\0\0\1\0\0\0\0\0\0\0\10\5\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 34);
  return header;
}

TEST(MegatronFuzz, TheValidHeaderIsRead) {
  const auto index = parseMegatronIndex(validHeader(), kFileBytes);
  ASSERT_TRUE(index.has_value()) << index.error().message();
  EXPECT_EQ(index->numSequences, 5);
  EXPECT_EQ(index->numDocuments, 2);
  EXPECT_EQ(index->type, TokenType::kU16);
}

TEST(MegatronFuzz, BytesAreChangedInsertedAndRemoved) {
  const auto check = [](const std::string& header) {
    const auto index = parseMegatronIndex(header, kFileBytes);
    if (!index.has_value()) {
      EXPECT_EQ(index.error().code(), StatusCode::kInvalidArgument);
      return;
    }
    EXPECT_GE(index->numSequences, 0);
    EXPECT_GE(index->numDocuments, 0);
    EXPECT_EQ(kMegatronHeaderBytes + 12 * index->numSequences + 8 * index->numDocuments,
              kFileBytes);
  };
  damageBytes(validHeader(), std::string("\0\1\2\3\4\5\6\7\10\x7f\x80\xff", 12), 50000, 4, check);
}

// Counts whose sum of bytes would wrap around to the file's size.
TEST(MegatronFuzz, ExtremeCountsAreRefused) {
  const uint64_t counts[] = {0,
                             1,
                             uint64_t{1} << 31,
                             uint64_t{1} << 60,
                             uint64_t{1} << 63,
                             ~uint64_t{0},
                             (~uint64_t{0}) / 12,
                             (~uint64_t{0}) / 8};
  for (const uint64_t sequences : counts)
    for (const uint64_t documents : counts)
      for (const int64_t bytes : {int64_t{34}, kFileBytes, INT64_MAX}) {
        std::string header = validHeader();
        std::memcpy(header.data() + 18, &sequences, 8);
        std::memcpy(header.data() + 26, &documents, 8);
        const auto index = parseMegatronIndex(header, bytes);
        EXPECT_EQ(index.has_value(), sequences == 0 && documents == 0 && bytes == 34);
      }
}

}  // namespace
}  // namespace trireme::runtime
