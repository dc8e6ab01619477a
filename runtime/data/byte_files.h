// Training samples from raw files: a token is a byte.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "runtime/data/data_source.h"

namespace trireme::runtime {

enum class SampleOrder : uint8_t {
  kRandom,      // sample i starts anywhere: drawn from (seed, i)
  kSequential,  // sample i is window i of the text; from the start again after the last whole one
};

struct ByteFilesOptions {
  uint64_t seed = 0;
  int64_t vocabSize = 256;
  int64_t sequenceLength = 1;
  SampleOrder order = SampleOrder::kRandom;
};

class ByteFiles final : public DataSource {
 public:
  // The files in this order, as one text. Their sizes are taken now; they must not shrink.
  // kInvalidArgument: no file, one that is missing, unreadable, not a regular file or empty; a text
  //   shorter than sequenceLength + 1; a byte outside the vocabulary (says where).
  static Result<std::unique_ptr<ByteFiles>> open(const std::vector<std::string>& paths,
                                                 const ByteFilesOptions& options);
  ~ByteFiles() override;

  // kInvalidArgument: as DataSource; also if a file has shrunk since.
  Status sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                int32_t* labels) override;

  int64_t totalBytes() const { return totalBytes_; }
  // Where sample `index` starts in the text. Requires length < totalBytes().
  int64_t positionOf(uint64_t index, int64_t length) const;

 private:
  struct File {
    std::string path;
    int fd = -1;
    int64_t begin = 0, size = 0;  // within the text
  };
  ByteFiles() = default;
  Status add(const std::string& path);
  // Bytes [position, position + count) of the text; the range must lie within it.
  Status read(int64_t position, int64_t count, uint8_t* bytes) const;
  Status checkVocabulary() const;
  Status refuse(int64_t position, uint8_t byte) const;

  ByteFilesOptions options_;
  std::vector<File> files_;
  int64_t totalBytes_ = 0;
};

}  // namespace trireme::runtime
