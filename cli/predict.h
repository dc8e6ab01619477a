// `trireme plan --predict`: published runs against what the cost models say of them.
#pragma once
#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace trireme::cli {

struct PredictOptions {
  std::vector<std::string> rows;  // files; empty: nothing is to be predicted
  std::string clusters, stacks;   // folders; empty: what is shipped
  std::string row;                // of one row alone: where its predicted time goes
};

// Declares --predict, --clusters, --stacks and --row. --predict goes with --json and -o alone: it
// excludes every other flag that `app` has so far and makes none of them required.
void addPredict(CLI::App& app, PredictOptions* options);

// Reads the rows, predicts each, prints the report and, if `output` is not empty, writes the rows
// with their predictions there.
//
// Of `options.row` alone it prints what was priced and assumed, and what `plan --check` says of the
// plan.
//
// Errors: those of cost::loadRows, cost::loadCatalogue, checkOutputs and writeFile; no row has that
// id, or it cannot be predicted.
Result<int> runPredict(const PredictOptions& options, const std::string& output, bool json);

}  // namespace trireme::cli
