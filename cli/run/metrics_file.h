// One JSON object per step and line:
//   {"step":0,"loss":5.61,"grad_norm":3.2,"lr":0.0001,"seconds":0.21,"tokens_per_second":19504.7}
#pragma once
#include <cstdio>
#include <memory>
#include <string>

#include "ir/base/status.h"
#include "runtime/session.h"

namespace trireme::cli {

class MetricsFile {
 public:
  // `append`: continue the file of an interrupted run; else start it anew. An empty path: write
  // nothing. kUnavailable: the file cannot be opened.
  static Result<MetricsFile> open(const std::string& path, bool append);

  // The line is on its way to the disk when this returns. kResourceExhausted: the disk is full.
  Status write(const runtime::StepResult& step, int64_t tokens);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace trireme::cli
