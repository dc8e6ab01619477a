// The report as text.
#include <fmt/format.h>

#include <algorithm>

#include "cost_models/validation/report.h"

namespace trireme::cost {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kName = 38;
constexpr size_t kMostReasons = 8;
constexpr size_t kMostSweeps = 5;

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string signedPercent(double share) { return fmt::format("{:+.1f} %", 100 * share); }

// Exactly `width` characters: filled up, or without the middle, as names of a kind often differ at
// their ends. Never cuts within a character. Requires width > 2.
std::string fit(const std::string& text, size_t width) {
  std::vector<size_t> starts;  // of its characters
  for (size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) starts.push_back(i);
  if (starts.size() <= width) return text + std::string(width - starts.size(), ' ');
  const size_t end = (width - 2) / 2, begin = width - 2 - end;
  return text.substr(0, starts[begin]) + ".." + text.substr(starts[starts.size() - end]);
}

std::string familyLine(const std::string& name, const ErrorSummary& e, const std::string& worstId) {
  if (e.count == 0) return fmt::format("  {} {:>5}\n", fit(name, kName), 0);
  return fmt::format("  {} {:>5} {:>8} {:>8} {:>8} {:>8}  {} {}\n", fit(name, kName), e.count,
                     percent(e.medianAbsolute), percent(e.meanAbsolute), percent(e.p90Absolute),
                     signedPercent(e.meanSigned), signedPercent(e.worst), worstId);
}

std::string familiesTable(const ValidationReport& report) {
  std::string text = fmt::format(
      "error of step time, (predicted - measured) / measured\n"
      "  {} {:>5} {:>8} {:>8} {:>8} {:>8}  {}\n",
      fit("file, stack and source", kName), "rows", "median", "mean", "p90", "signed", "worst");
  std::string heading;
  for (const Family& family : report.families) {
    const std::string group = fmt::format("{}, {}", family.file, family.stack);
    if (group != heading) text += fmt::format("  {}\n", fit(group, kWidth - 2));
    heading = group;
    text += familyLine("  " + family.source, family.errors, family.worstId);
  }
  return text + familyLine("overall", report.overall.errors, report.overall.worstId);
}

std::string orderLine(const std::string& name, const OrderSummary& order) {
  const auto correlation = [&](double value) {
    return order.numRanked > 0 ? fmt::format("{:.3f}", value) : std::string("-");
  };
  return fmt::format("  {} {:>6} {:>7} {:>8} {:>8} {:>8} {:>8}\n", fit(name, kName),
                     order.numSweeps, order.numLayouts, correlation(order.meanSpearman),
                     correlation(order.leastSpearman), percent(order.meanRegret),
                     percent(order.mostRegret));
}

// Families without a sweep are left out.
std::string orderTable(const ValidationReport& report) {
  std::string text = fmt::format(
      "order within sweeps, of two layouts or more; Spearman's correlation of three or more\n"
      "  {} {:>6} {:>7} {:>8} {:>8} {:>8} {:>8}\n",
      fit("file, stack and source", kName), "sweeps", "layouts", "Spearman", "least", "regret",
      "most");
  std::string heading;
  for (const Family& family : report.families) {
    if (family.order.numSweeps == 0) continue;
    const std::string group = fmt::format("{}, {}", family.file, family.stack);
    if (group != heading) text += fmt::format("  {}\n", fit(group, kWidth - 2));
    heading = group;
    text += orderLine("  " + family.source, family.order);
  }
  return text + orderLine("overall", report.overall.order);
}

std::string sweepsText(const ValidationReport& report) {
  if (report.sweeps.empty()) return "";
  std::string text = orderTable(report);
  std::vector<const Sweep*> worst;
  for (const Sweep& sweep : report.sweeps)
    if (sweep.regret > 0 || sweep.spearman.value_or(1) < 1) worst.push_back(&sweep);
  std::stable_sort(worst.begin(), worst.end(),
                   [](const Sweep* a, const Sweep* b) { return a->regret > b->regret; });
  worst.resize(std::min(worst.size(), kMostSweeps));
  for (const Sweep* sweep : worst)
    text += fmt::format("    regret {:>7}, Spearman {:>6}: {}\n", percent(sweep->regret),
                        sweep->spearman ? fmt::format("{:.3f}", *sweep->spearman) : "-",
                        fit(fmt::format("{} layouts of {}", sweep->numLayouts, sweep->name), 62));
  return text;
}

std::string reasonsText(const char* title, const std::vector<Reason>& reasons) {
  if (reasons.empty()) return "";
  std::string text = fmt::format("{}\n", title);
  for (size_t i = 0; i < std::min(reasons.size(), kMostReasons); ++i)
    text += fmt::format("  {:>5}  {}\n", reasons[i].count, fit(reasons[i].text, kWidth - 9));
  if (reasons.size() > kMostReasons)
    text += fmt::format("         and {} more\n", reasons.size() - kMostReasons);
  return text;
}

// Without the spaces that fit() leaves at the ends of lines.
std::string trimLines(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n')
      while (result.ends_with(' ')) result.pop_back();
    result += c;
  }
  return result;
}

}  // namespace

std::string toTable(const ValidationReport& report) {
  std::string text =
      fmt::format("rows          {}, of which {} are scored and {} of these skipped\n",
                  report.numRows, report.numScored, report.overall.numSkipped);
  text += familiesTable(report);
  text += sweepsText(report);
  if (report.memory.count > 0)
    text +=
        fmt::format("peak memory   {} rows: median {}, mean {}, p90 {}, signed {}, worst {} {}\n",
                    report.memory.count, percent(report.memory.medianAbsolute),
                    percent(report.memory.meanAbsolute), percent(report.memory.p90Absolute),
                    signedPercent(report.memory.meanSigned), signedPercent(report.memory.worst),
                    report.memoryWorstId);
  if (report.numUntimed > 0)
    text += fmt::format(
        "untimed       {} of the scored rows, in no error: a time is an iter_time_s or\n"
        "              follows from tokens_per_s_per_gpu\n",
        report.numUntimed);
  if (report.numRan > 0)
    text += fmt::format("fits          {} of the {} rows that ran\n", report.numFit, report.numRan);
  if (report.numInterval > 0)
    text += fmt::format(
        "intervals     hold {} of {} times, {}; mean half-width {} of the measured times\n",
        report.numWithin, report.numInterval,
        percent(static_cast<double>(report.numWithin) / static_cast<double>(report.numInterval)),
        percent(report.meanHalfWidth));
  text += reasonsText("assumed, in scored rows", report.assumptions);
  text += reasonsText("skipped scored rows", report.skipped);
  return trimLines(text);
}

}  // namespace trireme::cost
