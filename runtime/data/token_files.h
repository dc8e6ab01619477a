// Training samples from files of tokens: text whose bytes are tokens, plain arrays of integers, or
// Megatron-LM datasets.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "runtime/data/data_source.h"
#include "runtime/data/sample_order.h"
#include "runtime/data/token_type.h"

namespace trireme::runtime {

struct TokenFilesOptions {
  uint64_t seed = 0;
  int64_t vocabSize = 256;
  int64_t sequenceLength = 1;
  SampleOrder order = SampleOrder::kRandom;
  TokenType type = TokenType::kU8;  // of files that do not say it themselves
  // Bytes that are held against the vocabulary before training begins: a second's work, or what the
  // disk takes for it. Of more than that the same share of every file is, from its beginning; all
  // of a terabyte would be minutes at every start. Tokens behind it are checked when they are
  // drawn.
  int64_t checkedBytes = int64_t{1} << 32;
  // Of so many processes, each of which checks as many bytes, part of all.
  int32_t part = 0, numParts = 1;
  // Called meanwhile with the bytes that are done, and all that will be.
  std::function<void(int64_t done, int64_t all)> whileChecking;
};

class TokenFiles final : public DataSource {
 public:
  // The files in this order, as one run of tokens. X.idx stands for the Megatron dataset X.idx and
  // X.bin, whose documents follow each other; any other file is an array of `type`. Sizes are taken
  // now; files must not shrink.
  // kInvalidArgument: no file, one that is missing, unreadable, not a regular file, empty or not a
  //   whole number of tokens; an index that does not fit its data; fewer than sequenceLength + 1
  //   tokens; a token outside the vocabulary (says where) among those that are checked.
  static Result<std::unique_ptr<TokenFiles>> open(const std::vector<std::string>& paths,
                                                  const TokenFilesOptions& options);
  ~TokenFiles() override;

  // kInvalidArgument: as DataSource; also if a file has shrunk since. Names file and place of a
  // token outside the vocabulary.
  Status sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                int32_t* labels) override;

  // "57344 tokens in random order, fingerprint 0123456789abcdef": of every file the type, the size
  // and both ends (4 KiB). Wherever the files lie.
  std::string identity() const override { return identity_; }
  int64_t totalTokens() const { return totalTokens_; }
  // Where sample `index` starts. Requires length < totalTokens().
  int64_t positionOf(uint64_t index, int64_t length) const {
    return samplePosition(options_.order, options_.seed, index, length, totalTokens_);
  }

 private:
  struct File {
    std::string path;
    int fd = -1;
    TokenType type = TokenType::kU8;
    int64_t begin = 0, size = 0;  // tokens, within the whole
  };
  TokenFiles() = default;
  Status add(const std::string& path);
  Status addDataset(const std::string& indexPath);
  // Opens a file and returns its size in bytes.
  Result<int64_t> openFile(const std::string& path, TokenType type);
  Status tooShort(int64_t length) const;
  // Tokens [position, position + count); the range must lie within the whole.
  Status read(int64_t position, int64_t count, int64_t* tokens) const;
  Status checkTokens() const;
  // Tokens [begin, end) of a file, in blocks; `done` is told the bytes of each.
  Status checkTokens(const File& file, int64_t begin, int64_t end,
                     const std::function<void(int64_t)>& done) const;
  bool mayHoldOthers(const File& file) const;
  Result<std::string> identify() const;
  Status refuse(int64_t position, int64_t token) const;

  TokenFilesOptions options_;
  std::vector<File> files_;
  int64_t totalTokens_ = 0;
  std::string identity_;
};

}  // namespace trireme::runtime
