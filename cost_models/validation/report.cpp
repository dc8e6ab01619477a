#include "cost_models/validation/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cost_models/validation/catalogue.h"

namespace trireme::cost {
namespace {

bool isCounted(const PredictedRow& row) { return row.row.scored && row.error().has_value(); }

void count(std::vector<Reason>& reasons, const std::string& text) {
  for (Reason& reason : reasons)
    if (reason.text == text) {
      ++reason.count;
      return;
    }
  reasons.push_back({text, 1});
}

void sortByCount(std::vector<Reason>& reasons) {
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const Reason& a, const Reason& b) { return a.count > b.count; });
}

using SweepKey =
    std::tuple<std::string, std::string, std::string, std::string, std::vector<int64_t>, double>;

SweepKey sweepOf(const Row& r) {
  return {r.model,
          r.gpu,
          profileNames(r).front(),
          r.precision,
          {r.gpus.value_or(0), r.globalBatch.value_or(0), r.seq.value_or(0), r.layers.value_or(0),
           r.hidden.value_or(0), r.heads.value_or(0), r.kvHeads.value_or(0), r.ffn.value_or(0),
           r.vocab.value_or(0), r.gpusPerNode.value_or(0)},
          r.interNodeGbpsPerGpu.value_or(0)};
}

std::string nameOf(const SweepKey& key) {
  const auto& [model, gpu, stack, precision, counts, gbps] = key;
  return fmt::format("{}, {} x {}, batch {}, seq {}, {}, {}", model, counts[0], gpu, counts[1],
                     counts[2], precision, stack);
}

using Layout = std::tuple<std::vector<int64_t>, std::string, std::string>;

Layout layoutOf(const Row& r) {
  std::vector<int64_t> numbers;
  for (const auto& degree : {r.tp, r.pp, r.dp, r.cp, r.ep, r.vp, r.zero, r.microBatch})
    numbers.push_back(degree.value_or(-1));
  numbers.push_back(r.seqParallel ? *r.seqParallel : -1);
  return {std::move(numbers), r.recompute, r.schedule};
}

struct LayoutTimes {
  std::vector<double> predicted, measured;
};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::vector<Sweep> sweepsAmong(const std::vector<const PredictedRow*>& counted) {
  std::map<SweepKey, std::map<Layout, LayoutTimes>> sweeps;
  for (const PredictedRow* row : counted) {
    LayoutTimes& times = sweeps[sweepOf(row->row)][layoutOf(row->row)];
    times.predicted.push_back(row->prediction->step.count());
    times.measured.push_back(*row->measured());
  }
  std::vector<Sweep> result;
  for (const auto& [key, layouts] : sweeps) {
    if (layouts.size() < 2) continue;
    std::vector<double> predicted, measured;
    for (const auto& [layout, times] : layouts) {
      predicted.push_back(mean(times.predicted));
      measured.push_back(mean(times.measured));
    }
    Sweep sweep{nameOf(key), static_cast<int64_t>(layouts.size()), std::nullopt,
                regret(predicted, measured)};
    if (layouts.size() >= 3) sweep.spearman = spearman(predicted, measured);
    result.push_back(std::move(sweep));
  }
  return result;
}

OrderSummary orderOf(const std::vector<Sweep>& sweeps) {
  OrderSummary order;
  std::vector<double> correlations, regrets;
  for (const Sweep& sweep : sweeps) {
    order.numLayouts += sweep.numLayouts;
    regrets.push_back(sweep.regret);
    if (sweep.spearman) correlations.push_back(*sweep.spearman);
  }
  order.numSweeps = static_cast<int64_t>(regrets.size());
  order.numRanked = static_cast<int64_t>(correlations.size());
  if (!regrets.empty()) {
    order.meanRegret = mean(regrets);
    order.mostRegret = *std::max_element(regrets.begin(), regrets.end());
  }
  if (!correlations.empty()) {
    order.meanSpearman = mean(correlations);
    order.leastSpearman = *std::min_element(correlations.begin(), correlations.end());
  }
  return order;
}

// Scored rows for which `isOne` holds.
template <typename Predicate>
Family familyOf(const std::vector<PredictedRow>& rows, const Predicate& isOne) {
  Family family;
  std::vector<double> errors;
  std::vector<const PredictedRow*> counted;
  for (const PredictedRow& row : rows) {
    if (!row.row.scored || !isOne(row)) continue;
    if (!row.prediction.has_value()) ++family.numSkipped;
    if (!isCounted(row)) continue;
    errors.push_back(*row.error());
    counted.push_back(&row);
  }
  family.errors = summarize(errors);
  family.order = orderOf(sweepsAmong(counted));
  if (family.errors.worstIndex >= 0)
    family.worstId = counted[static_cast<size_t>(family.errors.worstIndex)]->row.id;
  return family;
}

void addFamilies(const std::vector<PredictedRow>& rows, ValidationReport& report) {
  const auto key = [](const PredictedRow& r) {
    return std::tie(r.file, r.row.source, r.row.stack);
  };
  for (const PredictedRow& row : rows) {
    const bool isKnown =
        std::any_of(report.families.begin(), report.families.end(), [&](const Family& family) {
          return std::tie(family.file, family.source, family.stack) == key(row);
        });
    if (!row.row.scored || isKnown) continue;
    Family family = familyOf(rows, [&](const PredictedRow& r) { return key(r) == key(row); });
    std::tie(family.file, family.source, family.stack) = key(row);
    report.families.push_back(std::move(family));
  }
  report.overall = familyOf(rows, [](const PredictedRow&) { return true; });
}

void addSweeps(const std::vector<PredictedRow>& rows, ValidationReport& report) {
  std::vector<const PredictedRow*> counted;
  for (const PredictedRow& row : rows)
    if (isCounted(row)) counted.push_back(&row);
  report.sweeps = sweepsAmong(counted);
}

void addMemory(const std::vector<PredictedRow>& rows, ValidationReport& report) {
  std::vector<double> errors;
  std::vector<std::string> ids;
  for (const PredictedRow& row : rows) {
    const std::optional<double> measured = measuredPeakGib(row.row);
    if (!row.row.scored || !measured || !row.prediction.has_value()) continue;
    errors.push_back(row.prediction->memory.count() / (1 << 30) / *measured - 1);
    ids.push_back(row.row.id);
  }
  report.memory = summarize(errors);
  if (report.memory.worstIndex >= 0)
    report.memoryWorstId = ids[static_cast<size_t>(report.memory.worstIndex)];
}

void addCounts(const std::vector<PredictedRow>& rows, ValidationReport& report) {
  report.numRows = static_cast<int64_t>(rows.size());
  for (const PredictedRow& row : rows) {
    if (!row.row.scored) continue;
    ++report.numScored;
    if (!row.prediction.has_value()) {
      count(report.skipped, row.prediction.error().message());
      continue;
    }
    for (const std::string& text : row.prediction->assumptions) count(report.assumptions, text);
    const std::optional<double> measured = row.measured();
    if (!measured) {
      ++report.numUntimed;
      continue;
    }
    ++report.numRan;
    report.numFit += row.prediction->fits;
    if (const std::optional<Interval>& interval = row.prediction->interval) {
      ++report.numInterval;
      report.meanHalfWidth += (interval->high - interval->low).count() / 2 / *measured;
      report.numWithin += *measured >= interval->low.count() && *measured <= interval->high.count();
    }
  }
  if (report.numInterval > 0) report.meanHalfWidth /= static_cast<double>(report.numInterval);
  sortByCount(report.skipped);
  sortByCount(report.assumptions);
}

}  // namespace

std::optional<double> PredictedRow::error() const {
  const std::optional<double> time = measured();
  if (!time || !prediction.has_value()) return std::nullopt;
  return prediction->step.count() / *time - 1;
}

ValidationReport reportOn(const std::vector<PredictedRow>& rows) {
  ValidationReport report;
  addFamilies(rows, report);
  addSweeps(rows, report);
  addMemory(rows, report);
  addCounts(rows, report);
  return report;
}

const std::vector<std::string>& predictionHeader() {
  static const std::vector<std::string> kNames = {
      "predicted_s", "error_pct", "low_s",   "high_s",         "predicted_mem_gib",
      "fits",        "cluster",   "profile", "skipped_because"};
  return kNames;
}

std::string printRows(const std::vector<CsvRecord>& records,
                      const std::vector<PredictedRow>& rows) {
  TRIREME_CHECK(records.size() == rows.size());
  std::vector<std::string> cells = rowHeader();
  cells.insert(cells.end(), predictionHeader().begin(), predictionHeader().end());
  std::string text = printCsvRecord(cells);
  const auto number = [](std::optional<double> value) {
    return value ? fmt::format("{:.6g}", *value) : std::string();
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    cells.clear();
    for (const CsvCell& cell : records[i]) cells.push_back(cell.text);
    const PredictedRow& row = rows[i];
    if (row.prediction.has_value()) {
      const Prediction& p = *row.prediction;
      const auto& interval = p.interval;
      cells.push_back(number(p.step.count()));
      cells.push_back(row.error() ? number(100 * *row.error()) : "");
      cells.push_back(interval ? number(interval->low.count()) : "");
      cells.push_back(interval ? number(interval->high.count()) : "");
      cells.push_back(number(p.memory.count() / (1 << 30)));
      cells.push_back(p.fits ? "1" : "0");
      cells.push_back(p.cluster);
      cells.push_back(p.profile);
      cells.emplace_back();
    } else {
      cells.insert(cells.end(), predictionHeader().size() - 1, "");
      cells.push_back(row.prediction.error().message());
    }
    text += printCsvRecord(cells);
  }
  return text;
}

nlohmann::json toJson(const ValidationReport& report) {
  const auto errorsJson = [](const ErrorSummary& e, const std::string& worstId) {
    nlohmann::json json = {{"rows", e.count},
                           {"medianAbsolute", e.medianAbsolute},
                           {"meanAbsolute", e.meanAbsolute},
                           {"p90Absolute", e.p90Absolute},
                           {"meanSigned", e.meanSigned},
                           {"worst", e.worst},
                           {"worstId", worstId}};
    for (auto& [name, value] : json.items())  // of no rows there are no errors
      if (e.count == 0 && name != "rows") value = nullptr;
    return json;
  };
  const auto orderJson = [](const OrderSummary& o) {
    nlohmann::json json = {{"sweeps", o.numSweeps}, {"layouts", o.numLayouts}};
    json["ranked"] = o.numRanked;
    const auto orNull = [](bool is, double value) {
      return is ? nlohmann::json(value) : nlohmann::json();
    };
    json["meanSpearman"] = orNull(o.numRanked > 0, o.meanSpearman);
    json["leastSpearman"] = orNull(o.numRanked > 0, o.leastSpearman);
    json["meanRegret"] = orNull(o.numSweeps > 0, o.meanRegret);
    json["mostRegret"] = orNull(o.numSweeps > 0, o.mostRegret);
    return json;
  };
  const auto reasonsJson = [](const std::vector<Reason>& reasons) {
    nlohmann::json json = nlohmann::json::array();
    for (const Reason& r : reasons) json.push_back({{"text", r.text}, {"rows", r.count}});
    return json;
  };
  nlohmann::json json;
  json["families"] = nlohmann::json::array();
  for (const Family& family : report.families) {
    nlohmann::json f = errorsJson(family.errors, family.worstId);
    f["file"] = family.file;
    f["source"] = family.source;
    f["stack"] = family.stack;
    f["skipped"] = family.numSkipped;
    f["order"] = orderJson(family.order);
    json["families"].push_back(std::move(f));
  }
  json["overall"] = errorsJson(report.overall.errors, report.overall.worstId);
  json["overall"]["skipped"] = report.overall.numSkipped;
  json["overall"]["order"] = orderJson(report.overall.order);
  json["sweeps"] = nlohmann::json::array();
  for (const Sweep& sweep : report.sweeps) {
    nlohmann::json s = {
        {"name", sweep.name}, {"layouts", sweep.numLayouts}, {"regret", sweep.regret}};
    s["spearman"] = sweep.spearman ? nlohmann::json(*sweep.spearman) : nlohmann::json();
    json["sweeps"].push_back(std::move(s));
  }
  json["memory"] = errorsJson(report.memory, report.memoryWorstId);
  json["rows"] = report.numRows;
  json["scored"] = report.numScored;
  json["ran"] = report.numRan;
  json["untimed"] = report.numUntimed;
  json["saidToFit"] = report.numFit;
  json["withInterval"] = report.numInterval;
  json["withinInterval"] = report.numWithin;
  json["meanHalfWidth"] = report.meanHalfWidth;
  json["skipped"] = reasonsJson(report.skipped);
  json["assumptions"] = reasonsJson(report.assumptions);
  return json;
}

}  // namespace trireme::cost
