// The files that checkpoints are kept in: an interface, so that a test can fill the disk.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ir/base/status.h"

namespace trireme::runtime {

// Closed on destruction.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  // kResourceExhausted: the disk is full. kUnavailable: any other failure of the device.
  virtual Status write(int64_t offset, const char* bytes, int64_t count) = 0;
  // Returns when everything written is on the device; the same errors.
  virtual Status sync() = 0;
};

class InputFile {
 public:
  virtual ~InputFile() = default;
  virtual int64_t size() const = 0;
  // Exactly `count` bytes. kInvalidArgument: the file ends before. kUnavailable: the device failed.
  virtual Status read(int64_t offset, char* bytes, int64_t count) const = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // A new file, or a device. kInvalidArgument: the path is there already, or cannot be written.
  // kResourceExhausted: no room.
  virtual Result<std::unique_ptr<OutputFile>> create(const std::string& path) = 0;
  // kInvalidArgument: missing, unreadable, or not a regular file.
  virtual Result<std::unique_ptr<InputFile>> open(const std::string& path) = 0;
  // Atomic, and on the device when it returns.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  // Failures do not matter.
  virtual void remove(const std::string& path) = 0;
};

// The end of the name of a file that is not finished, or never was.
inline constexpr std::string_view kUnfinished = ".tmp";

// Writes a file beside `path` by `write` and renames it, so that `path` is the old file or the new
// one, never anything else. Its name, `path`.*.tmp, is nobody else's, so that of several that
// replace a file the last one wins. After an error, which is that of `write` or of the file system,
// `path` is as it was and the other file is gone.
Status replaceFile(const std::string& path, FileSystem& files,
                   const std::function<Status(OutputFile&)>& write);

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override;
  Result<std::unique_ptr<InputFile>> open(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
};

}  // namespace trireme::runtime
