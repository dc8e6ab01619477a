// One JSON object per step and line; steps count from 1:
//   {"step":1,"loss":5.61,"grad_norm":3.2,"lr":0.0001,"seconds":0.21,"tokens_per_second":19504.7}
// and in fp16 "loss_scale" and "skipped_steps", so far; "grad_norm" of a skipped step is null.
#pragma once
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "runtime/session.h"

namespace trireme::cli {

// For a run from the start. kInvalidArgument: the file has something in it, which the run would
// lose.
Status checkNewMetrics(const std::string& path);

// For a run from the start that may have begun before, but saved nothing into `folder`, where it
// first does after step `firstSaved`. kInvalidArgument: the file has that step, so that something
// was saved, or the metrics are another run's.
Status checkNothingSaved(const std::string& path, const std::string& folder, int64_t firstSaved);

// What is left of a metrics file for a run that resumes after step `after`.
struct KeptMetrics {
  std::string text;
  int64_t numRemoved = 0;     // lines of later steps
  bool isLastCutOff = false;  // so the last line is gone as well
  bool hasZeros = false;      // at its end, which are gone too
  // What should stand before step `after` + 1, if the file had anything in it, and does not: "no
  // lines of steps 3 to 4", "step 7 behind step 8".
  std::vector<std::string> gaps;
};
// kInvalidArgument: "line 3 is no line of metrics".
Result<KeptMetrics> keepUntil(const std::string& text, int64_t after);

class MetricsFile {
 public:
  // An empty path: write nothing. kUnavailable: the file cannot be opened.
  // Starts the file anew or, with `resumeAfter`, continues that of an interrupted run: lines of
  // steps after `resumeAfter` go away, because the run does these steps again, and a last one that
  // was cut off. kept() says how many, without the text. kInvalidArgument: a line is none of
  // metrics.
  static Result<MetricsFile> open(const std::string& path, std::optional<int64_t> resumeAfter);

  // The line is on its way to the disk when this returns. kResourceExhausted: the disk is full.
  Status write(const runtime::StepResult& step, int64_t tokens);

  const KeptMetrics& kept() const { return kept_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  KeptMetrics kept_;
};

}  // namespace trireme::cli
