// How far predictions are from published rows: by family, within sweeps, and what was skipped.
//
// Statistics are over rows that are scored, have a measured time and were predicted; their
// definitions are those of statistics.h.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cost_models/validation/predict.h"
#include "cost_models/validation/row.h"
#include "cost_models/validation/statistics.h"

namespace trireme::cost {

struct PredictedRow {
  std::string file;  // where it comes from: the name without folders and ".csv"
  Row row;
  Result<Prediction> prediction;  // or why the row was skipped

  std::optional<double> measured() const { return measuredSeconds(row); }
  // (predicted - measured) / measured; none if one of them is missing.
  std::optional<double> error() const;
};

// How well predictions order the layouts of sweeps. Means are over sweeps, each counting once.
struct OrderSummary {
  int64_t numSweeps = 0, numLayouts = 0;
  int64_t numRanked = 0;                       // sweeps with a rank correlation
  double meanSpearman = 0, leastSpearman = 0;  // of these
  double meanRegret = 0, mostRegret = 0;
};

// Rows of one file, source and stack. A sweep over several families counts in each with the layouts
// that it has there, if they are two or more.
struct Family {
  std::string file, source, stack;
  ErrorSummary errors;
  OrderSummary order;
  std::string worstId;
  int64_t numSkipped = 0;  // scored rows
};

// Rows that are equal in model (name and sizes), GPU, gpus, what connects them, batch, seq,
// precision and profile (profileNames) and have at least two layouts: degrees, microbatch, vp,
// zero, sequence parallel, recompute and schedule. Rows of one layout count once, with their mean
// times.
struct Sweep {
  std::string name;
  int64_t numLayouts = 0;
  std::optional<double> spearman;  // of predicted and measured times; from three layouts on
  double regret = 0;
};

// How often something was said.
struct Reason {
  std::string text;
  int64_t count = 0;
};

struct ValidationReport {
  std::vector<Family> families;  // in the order in which they first appear
  Family overall;
  std::vector<Sweep> sweeps;
  // Peak memory where it is published, predicted against measured.
  ErrorSummary memory;
  std::string memoryWorstId;
  int64_t numRows = 0;
  int64_t numScored = 0;
  int64_t numRan = 0;               // scored, measured and predicted
  int64_t numUntimed = 0;           // scored and predicted, but not measured (measuredSeconds)
  int64_t numFit = 0;               // of these, those that are said to fit
  int64_t numInterval = 0;          // of these, those with an interval
  int64_t numWithin = 0;            // of these, those whose time lies in it
  double meanHalfWidth = 0;         // of these intervals, over the measured times
  std::vector<Reason> skipped;      // scored rows, most frequent first
  std::vector<Reason> assumptions;  // of predicted scored rows, most frequent first
};

ValidationReport reportOn(const std::vector<PredictedRow>& rows);

// In lines of at most 100 columns.
std::string toTable(const ValidationReport& report);
// Keys in lower camel case, errors as shares (0.05 is 5 %).
nlohmann::json toJson(const ValidationReport& report);

// The columns that printRows appends to the header.
const std::vector<std::string>& predictionHeader();
// The file with predicted_s, error_pct, low_s, high_s, predicted_mem_gib, fits (1 or 0), cluster
// (which the GPU was taken to be of), profile (of the stack) and skipped_because behind every
// record; a cell that there is nothing to say about is empty. `records` and `rows` are in the same
// order.
std::string printRows(const std::vector<CsvRecord>& records, const std::vector<PredictedRow>& rows);

}  // namespace trireme::cost
