#include "cli/run/metrics_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

namespace trireme::cli {

Result<MetricsFile> MetricsFile::open(const std::string& path, bool append) {
  MetricsFile metrics;
  if (path.empty()) return metrics;
  metrics.path_ = path;
  metrics.file_.reset(std::fopen(path.c_str(), append ? "ae" : "we"));
  if (!metrics.file_)
    return Error(unavailable(fmt::format("{}: cannot write: {}", path, std::strerror(errno))));
  return metrics;
}

Status MetricsFile::write(const runtime::StepResult& step, int64_t tokens) {
  if (!file_) return {};
  const nlohmann::ordered_json line = {
      {"step", step.step},
      {"loss", step.loss},
      {"grad_norm", step.gradNorm},
      {"lr", step.learningRate},
      {"seconds", step.seconds},
      {"tokens_per_second", static_cast<double>(tokens) / step.seconds}};
  const std::string text = line.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
      std::fflush(file_.get()) == 0)
    return {};
  return resourceExhausted(fmt::format("{}: cannot write: {}", path_, std::strerror(errno)));
}

}  // namespace trireme::cli
