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
};

// Declares --predict, --clusters and --stacks. --predict goes with --json and -o alone: it excludes
// every other flag that `app` has so far and makes none of them required.
void addPredict(CLI::App& app, PredictOptions* options);

// Reads the rows, predicts each, prints the report and, if `output` is not empty, writes the rows
// with their predictions there.
//
// Errors: those of cost::loadRows, cost::loadCatalogue, checkOutputs and writeFile.
Result<int> runPredict(const PredictOptions& options, const std::string& output, bool json);

}  // namespace trireme::cli
