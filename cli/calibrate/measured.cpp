#include "cli/calibrate/measured.h"

#include <charconv>

namespace trireme::cli {

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

spec::CollectivePoint curvePoint(runtime::Exchange exchange, int64_t group, int64_t bytes,
                                 Seconds time) {
  const auto n = static_cast<double>(group);
  const double factor =
      (exchange == runtime::Exchange::kAllReduce ? 2 : 1) * (n - 1) / n;  // CollectiveKind
  const Bytes payload(static_cast<double>(bytes));
  return {payload, rounded(payload * factor / time)};
}

}  // namespace trireme::cli
