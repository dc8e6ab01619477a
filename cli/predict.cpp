#include "cli/predict.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/flags.h"
#include "cli/output/progress.h"
#include "cli/paths.h"
#include "cli/write_file.h"
#include "cost_models/validation/predict.h"
#include "cost_models/validation/report.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// The folder `name` of examples/, beside us or above the program.
Result<std::string> findExamples(const std::string& flag, const std::string& name) {
  const fs::path inner = fs::path("examples") / name;
  std::error_code code;
  if (fs::is_directory(inner, code)) return inner.string();
  const fs::path program = fs::read_symlink("/proc/self/exe", code);
  for (fs::path at = program.parent_path(); at.has_relative_path(); at = at.parent_path())
    if (fs::is_directory(at / inner, code)) return (at / inner).string();
  return Error(unavailable(fmt::format(
      "{}: neither the working directory nor a folder above the program has {}; name the folder",
      flag, inner.string())));
}

struct Inputs {
  std::string clusters, stacks;
  std::vector<NamedPath> files;  // of all kinds, for checkOutputs
};

Result<Inputs> findInputs(const PredictOptions& options) {
  Inputs inputs{options.clusters, options.stacks, {}};
  if (inputs.clusters.empty()) {
    TRIREME_ASSIGN_OR_RETURN(inputs.clusters, findExamples("--clusters", "clusters"));
  }
  if (inputs.stacks.empty()) {
    TRIREME_ASSIGN_OR_RETURN(inputs.stacks, findExamples("--stacks", "stacks"));
  }
  for (const std::string& path : options.rows) inputs.files.push_back({"--predict", path});
  for (const auto& [flag, folder] :
       {std::pair("--clusters", inputs.clusters), std::pair("--stacks", inputs.stacks)}) {
    TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> paths, cost::yamlFilesIn(folder));
    for (const std::string& path : paths) inputs.files.push_back({flag, path});
  }
  return inputs;
}

struct Rows {
  std::vector<cost::CsvRecord> records;
  std::vector<cost::PredictedRow> rows;
};

Result<Rows> readRows(const std::vector<std::string>& paths) {
  Rows all;
  for (const std::string& path : paths) {
    TRIREME_ASSIGN_OR_RETURN(cost::RowFile file, cost::loadRows(path));
    for (size_t i = 0; i < file.rows.size(); ++i) {
      all.records.push_back(std::move(file.records[i]));
      all.rows.push_back({fs::path(path).stem().string(), std::move(file.rows[i]),
                          Error(internalError("not predicted"))});
    }
  }
  return all;
}

}  // namespace

void addPredict(CLI::App& app, PredictOptions* options) {
  const std::string group = "Prediction of published runs";
  const std::vector<CLI::Option*> others = app.get_options();
  CLI::Option* predict = addPaths(app, "--predict", &options->rows, "CSV",
                                  "Predict every row, in place of a search, and print the errors");
  predict->group(group);
  for (CLI::Option* other : others) {
    const std::string name = other->get_name();
    if (name == "--help" || name == "--json" || name == "--output") continue;
    predict->excludes(other);
  }
  predict->each([others](const std::string&) {
    for (CLI::Option* other : others) other->required(false);
  });
  addPath(app, "--clusters", &options->clusters, "DIR",
          "Cluster files that rows may name (default: examples/clusters)")
      ->needs(predict)
      ->group(group);
  addPath(app, "--stacks", &options->stacks, "DIR",
          "Stack profiles that rows may name (default: examples/stacks)")
      ->needs(predict)
      ->group(group);
}

Result<int> runPredict(const PredictOptions& options, const std::string& output, bool json) {
  TRIREME_ASSIGN_OR_RETURN(const Inputs inputs, findInputs(options));
  TRIREME_RETURN_IF_ERROR(checkOutputs(inputs.files, {{"-o", output}}));
  TRIREME_RETURN_IF_ERROR(checkWritable(output));
  TRIREME_ASSIGN_OR_RETURN(const cost::Catalogue catalogue,
                           cost::loadCatalogue(inputs.clusters, inputs.stacks));
  TRIREME_ASSIGN_OR_RETURN(Rows all, readRows(options.rows));
  Progress progress;
  for (size_t i = 0; i < all.rows.size(); ++i) {
    all.rows[i].prediction = cost::predict(all.rows[i].row, catalogue);
    progress.update(static_cast<double>(i + 1) / static_cast<double>(all.rows.size()),
                    fmt::format("{} of {} rows predicted", i + 1, all.rows.size()));
  }
  progress.clear();
  if (!output.empty())
    TRIREME_RETURN_IF_ERROR(writeFile(output, cost::printRows(all.records, all.rows)));
  const cost::ValidationReport report = cost::reportOn(all.rows);
  if (json)
    fmt::print("{}\n", cost::toJson(report).dump(2));
  else
    fmt::print("{}", cost::toTable(report));
  if (!json && !output.empty()) fmt::print("{:<14}{}\n", "written to", output);
  return kExitOk;
}

}  // namespace trireme::cli
