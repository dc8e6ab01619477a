#include "cli/calibrate/measured.h"

#include <charconv>
#include <chrono>
#include <ctime>

namespace trireme::cli {

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm day{};
  gmtime_r(&now, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

double roundedTo4Digits(double value) {
  const std::string text = fmt::format("{:.3e}", value);
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

spec::CollectiveKind collectiveOf(runtime::Exchange exchange) {
  switch (exchange) {
    case runtime::Exchange::kAllReduce:
      return spec::CollectiveKind::kAllReduce;
    case runtime::Exchange::kAllGather:
      return spec::CollectiveKind::kAllGather;
    case runtime::Exchange::kReduceScatter:
      return spec::CollectiveKind::kReduceScatter;
    case runtime::Exchange::kSend:
      break;
  }
  return spec::CollectiveKind::kSend;
}

Result<spec::CollectiveCurve> measureCurve(
    runtime::Exchange exchange, int64_t group, const std::vector<int64_t>& sizes,
    const std::string& source, const std::function<Result<Seconds>(int64_t bytes)>& timeOf) {
  const auto n = static_cast<double>(group);
  const double factor =
      (exchange == runtime::Exchange::kAllReduce ? 2 : 1) * (n - 1) / n;  // CollectiveKind
  spec::CollectiveCurve curve{collectiveOf(exchange), group, {}, source};
  for (const int64_t size : sizes) {
    const int64_t multiple = 4 * group;
    const int64_t bytes = (size + multiple - 1) / multiple * multiple;
    TRIREME_ASSIGN_OR_RETURN(const Seconds time, timeOf(bytes));
    const Bytes payload(static_cast<double>(bytes));
    curve.points.push_back({payload, rounded(payload * factor / time)});
  }
  return curve;
}

}  // namespace trireme::cli
