#include "cli/run/metrics_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "cli/write_file.h"

namespace trireme::cli {
namespace {

// Of a file that is not there nothing.
Result<KeptMetrics> keptOf(const std::string& path, int64_t after) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return KeptMetrics{};
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  Result<KeptMetrics> kept = keepUntil(text.str(), after);
  if (!kept.has_value()) return Error(kept.error().withContext(path));
  return kept;
}

// Leaves the lines that a resumed run goes on from, each with its end, and returns what they are.
Result<KeptMetrics> removeStepsAfter(const std::string& path, int64_t after) {
  TRIREME_ASSIGN_OR_RETURN(KeptMetrics kept, keptOf(path, after));
  if (std::error_code code; std::filesystem::is_regular_file(path, code) &&
                            std::filesystem::file_size(path, code) != kept.text.size())
    TRIREME_RETURN_IF_ERROR(writeFile(path, kept.text));
  kept.text.clear();
  return kept;
}

// A line of metrics that ends early: the run that wrote it ended within the line.
bool isCutOff(std::string_view line) {
  constexpr std::string_view kStart = "{\"step\":";
  return line.substr(0, kStart.size()) == kStart.substr(0, line.size());
}

Status notMetrics(int64_t line) {
  return invalidArgument(fmt::format(
      "line {} is no line of metrics, so --resume does not continue the file; give another", line));
}

// What a power failure leaves behind the last line that was written.
std::string withoutZeros(const std::string& text) {
  return text.substr(0, text.find_last_not_of('\0') + 1);
}

// Between the lines of two steps, if they do not follow each other.
std::string gapBetween(int64_t before, int64_t step) {
  if (step <= before) return fmt::format("step {} behind step {}", step, before);
  if (step == before + 1) return "";
  return step == before + 2 ? fmt::format("no line of step {}", before + 1)
                            : fmt::format("no lines of steps {} to {}", before + 1, step - 1);
}

}  // namespace

Result<KeptMetrics> keepUntil(const std::string& written, int64_t after) {
  const std::string text = withoutZeros(written);
  KeptMetrics kept;
  kept.hasZeros = text.size() < written.size();
  int64_t number = 0;
  std::optional<int64_t> last;
  const auto follow = [&](int64_t step) {
    if (const std::string gap = last ? gapBetween(*last, step) : ""; !gap.empty())
      kept.gaps.push_back(gap);
    last = step;
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t newline = std::min(text.find('\n', begin), text.size());
    ++number;
    const std::string line = text.substr(begin, newline - begin) + "\n";
    begin = newline + 1;
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (newline == text.size() && json.is_discarded() &&
        isCutOff(std::string_view(line).substr(0, line.size() - 1))) {
      kept.isLastCutOff = true;
      break;
    }
    const nlohmann::json step = json.is_object() ? json.value("step", nlohmann::json()) : json;
    if (!json.is_object() || !step.is_number_unsigned() || step.get<uint64_t>() > INT64_MAX)
      return Error(notMetrics(number));
    if (step.get<int64_t>() > after) {
      ++kept.numRemoved;
    } else {
      kept.text += line;
      follow(step.get<int64_t>());
    }
  }
  if (!last && !written.empty()) last = 0;
  if (last) follow(after + 1);
  return kept;
}

Status checkNewMetrics(const std::string& path) {
  std::error_code code;
  if (path.empty() || !std::filesystem::is_regular_file(path, code) ||
      std::filesystem::file_size(path, code) == 0)
    return {};
  return invalidArgument(
      fmt::format("--metrics {}: has something in it, and this run begins anew: give another file, "
                  "or go on with "
                  "--resume",
                  path));
}

Status checkNothingSaved(const std::string& path, const std::string& folder, int64_t firstSaved) {
  TRIREME_ASSIGN_OR_RETURN(const KeptMetrics before, keptOf(path, firstSaved - 1));
  if (before.numRemoved == 0) return {};
  return invalidArgument(
      fmt::format("--metrics {}: has step {} or later, after which {} would have a checkpoint, and "
                  "it has none: bring the folder back or, to begin anew, give another file",
                  path, firstSaved, folder));
}

Result<MetricsFile> MetricsFile::open(const std::string& path, std::optional<int64_t> resumeAfter) {
  MetricsFile metrics;
  if (path.empty()) return metrics;
  metrics.path_ = path;
  if (resumeAfter) {
    TRIREME_ASSIGN_OR_RETURN(metrics.kept_, removeStepsAfter(path, *resumeAfter));
  }
  metrics.file_.reset(std::fopen(path.c_str(), resumeAfter ? "ae" : "we"));
  if (!metrics.file_)
    return Error(unavailable(fmt::format("{}: cannot write: {}", path, std::strerror(errno))));
  return metrics;
}

Status MetricsFile::write(const runtime::StepResult& step, int64_t tokens) {
  if (!file_) return {};
  nlohmann::ordered_json line = {{"step", step.step + 1},
                                 {"loss", step.loss},
                                 {"grad_norm", step.gradNorm},
                                 {"lr", step.learningRate},
                                 {"seconds", step.seconds},
                                 {"tokens_per_second", static_cast<double>(tokens) / step.seconds}};
  if (step.scaled) {
    line["loss_scale"] = step.scaled->lossScale;
    line["skipped_steps"] = step.scaled->numSkipped;
  }
  const std::string text = line.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
      std::fflush(file_.get()) == 0)
    return {};
  return resourceExhausted(fmt::format("{}: cannot write: {}", path_, std::strerror(errno)));
}

}  // namespace trireme::cli
