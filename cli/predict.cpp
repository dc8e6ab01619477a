#include "cli/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/flags.h"
#include "cli/output/json_text.h"
#include "cli/output/progress.h"
#include "cli/output/tell.h"
#include "cli/paths.h"
#include "cli/write_file.h"
#include "cost_models/validation/mapping.h"
#include "cost_models/validation/predict.h"
#include "cost_models/validation/report.h"
#include "ir/base/format.h"
#include "ir/spec/suggestion.h"
#include "planner/answer/check.h"
#include "planner/answer/report.h"
#include "planner/question.h"
#include "planner/supported.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// Every file that is read, for checkOutputs.
Result<std::vector<NamedPath>> inputsOf(const PredictOptions& options) {
  std::vector<NamedPath> inputs;
  for (const std::string& path : options.rows) inputs.push_back({"--predict", path});
  for (const auto& [flag, folder] :
       {std::pair("--clusters", options.clusters), std::pair("--stacks", options.stacks)}) {
    if (folder.empty()) continue;
    TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> paths, cost::yamlFilesIn(folder));
    for (const std::string& path : paths) inputs.push_back({flag, path});
  }
  return inputs;
}

struct Rows {
  std::vector<cost::CsvRecord> records;
  std::vector<cost::PredictedRow> rows;
};

// A row that is read twice would count twice.
Status checkDistinct(const std::vector<std::string>& paths) {
  for (size_t i = 0; i < paths.size(); ++i)
    for (size_t other = 0; other < i; ++other) {
      std::error_code missing;  // loadRows() says so.
      if (fs::equivalent(paths[i], paths[other], missing))
        return invalidArgument(
            fmt::format("--predict: {} and {} are one file", paths[other], paths[i]));
    }
  return {};
}

// Without folders and extension, unless another file has the same name.
std::string nameOf(const std::string& path, const std::vector<std::string>& paths) {
  const fs::path stem = fs::path(path).stem();
  const auto same = std::count_if(paths.begin(), paths.end(), [&](const std::string& other) {
    return fs::path(other).stem() == stem;
  });
  return same > 1 ? path : stem.string();
}

Result<Rows> readRows(const std::vector<std::string>& paths) {
  TRIREME_RETURN_IF_ERROR(checkDistinct(paths));
  Rows all;
  for (const std::string& path : paths) {
    TRIREME_ASSIGN_OR_RETURN(cost::RowFile file, cost::loadRows(path));
    for (size_t i = 0; i < file.rows.size(); ++i) {
      all.records.push_back(std::move(file.records[i]));
      all.rows.push_back(
          {nameOf(path, paths), std::move(file.rows[i]), Error(internalError("not predicted"))});
    }
  }
  return all;
}

// An empty table of errors looks like one without errors.
void noteIfNone(const std::vector<cost::PredictedRow>& rows) {
  if (rows.empty()) {
    tell("note: there is no row\n");
    return;
  }
  if (std::any_of(rows.begin(), rows.end(),
                  [](const cost::PredictedRow& row) { return row.prediction.has_value(); }))
    return;
  tell("note: none of {} row{} can be predicted; the first, {}: {}\n", rows.size(),
       rows.size() == 1 ? "" : "s", rows.front().row.id, rows.front().prediction.error().message());
}

// What whoever compares them with other runs has to know of the devices.
void noteCautions(const std::vector<cost::PredictedRow>& rows,
                  const std::vector<spec::ClusterSpec>& clusters) {
  for (const spec::ClusterSpec& cluster : clusters) {
    const auto isOf = [&](const cost::PredictedRow& row) {
      return row.prediction.has_value() && row.prediction->cluster == cluster.name;
    };
    if (!cluster.device.caution.empty() && std::any_of(rows.begin(), rows.end(), isOf))
      tell("note: device {}: {}\n", cluster.device.name, cluster.device.caution);
  }
}

Result<const cost::PredictedRow*> findRow(const Rows& all, const std::string& id) {
  const cost::PredictedRow* nearest = nullptr;
  const cost::PredictedRow* found = nullptr;
  for (const cost::PredictedRow& row : all.rows) {
    if (row.row.id == id && found)
      return Error(
          invalidArgument(fmt::format("--row: {} and {} both have a row '{}': give one "
                                      "of them to --predict",
                                      found->file, row.file, id)));
    if (row.row.id == id) found = &row;
    if (nearest == nullptr ||
        spec::editDistance(row.row.id, id) < spec::editDistance(nearest->row.id, id))
      nearest = &row;
  }
  if (found) return found;
  return Error(invalidArgument(fmt::format(
      "--row: no row has the id '{}'{}", id,
      nearest ? fmt::format("; the nearest is '{}'", nearest->row.id) : std::string())));
}

// Of a row whose software is not what its profile describes nothing is predicted.
Result<cost::Prediction> predictRow(const cost::Row& row, const cost::Catalogue& catalogue) {
  TRIREME_ASSIGN_OR_RETURN(const cost::RunQuery run, cost::queryOf(row, catalogue));
  TRIREME_RETURN_IF_ERROR(planner::checkSupported(run.plan, run.model, run.stack));
  return cost::predict(row, catalogue);
}

std::string comparedText(const cost::PredictedRow& row) {
  const std::optional<double> error = row.error();
  if (!error) return "no step time is published";
  return fmt::format("published {}, predicted {:+.1f} %",
                     formatSeconds(row.prediction->step / (1 + *error)), 100 * *error);
}

nlohmann::json rowJson(const cost::PredictedRow& row) {
  const cost::Prediction& p = *row.prediction;
  const std::optional<double> error = row.error();
  nlohmann::json json = {{"id", row.row.id},
                         {"file", row.file},
                         {"cluster", p.cluster},
                         {"profile", p.profile},
                         {"assumed", p.assumptions}};
  json["publishedSeconds"] = error ? nlohmann::json(p.step.count() / (1 + *error)) : nullptr;
  json["error"] = error ? nlohmann::json(*error) : nullptr;
  return json;
}

// What was priced, beside all that `plan --check` says.
Result<int> explainRow(cost::PredictedRow row, const cost::Catalogue& catalogue, bool json) {
  const auto inRow = [&](const Status& status) {
    return Error(status.withContext(fmt::format("{}, row {}", row.file, row.row.id)));
  };
  const Result<cost::RunQuery> run = cost::queryOf(row.row, catalogue);
  if (!run.has_value()) return inRow(run.error());
  row.prediction = cost::predict(row.row, catalogue);
  if (!row.prediction.has_value()) return inRow(row.prediction.error());
  const planner::Query query = planner::queryOf(run->plan, run->model, run->cluster, run->stack);
  for (const std::string& caveat : planner::caveatsOf(query.stack, query.cluster.device))
    tell("note: {}\n", caveat);
  const Result<planner::PlanCheck> check = planner::checkPlan(run->plan, query);
  if (!check.has_value()) return inRow(check.error());
  if (json) {
    nlohmann::json all = planner::toJson(*check);
    all["row"] = rowJson(row);
    fmt::print("{}\n", jsonText(all));
    return kExitOk;
  }
  fmt::print("{:<14}{} of {}: {}\n", "row", row.row.id, row.file, comparedText(row));
  for (const std::string& assumption : run->assumptions)
    fmt::print("{:<14}{}\n", "assumed", assumption);
  fmt::print("{}{}", planner::toText(query), planner::toTable(*check, query.cluster));
  return kExitOk;
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
          "Cluster files that rows may name (default: those of examples/clusters)")
      ->needs(predict)
      ->group(group);
  addPath(app, "--stacks", &options->stacks, "DIR",
          "Stack profiles that rows may name (default: those of examples/stacks)")
      ->needs(predict)
      ->group(group);
  app.add_option("--row", options->row, "Say of the row with this id alone where its time goes")
      ->type_name("ID")
      ->needs(predict)
      ->excludes(app.get_option("--output"))
      ->group(group);
}

Result<int> runPredict(const PredictOptions& options, const std::string& output, bool json) {
  TRIREME_ASSIGN_OR_RETURN(const std::vector<NamedPath> inputs, inputsOf(options));
  TRIREME_RETURN_IF_ERROR(checkOutputs(inputs, {{"-o", output}}));
  TRIREME_RETURN_IF_ERROR(checkWritable(output));
  TRIREME_ASSIGN_OR_RETURN(const cost::Catalogue catalogue,
                           cost::loadCatalogue(options.clusters, options.stacks));
  TRIREME_ASSIGN_OR_RETURN(Rows all, readRows(options.rows));
  if (!options.row.empty()) {
    TRIREME_ASSIGN_OR_RETURN(const cost::PredictedRow* const row, findRow(all, options.row));
    return explainRow(*row, catalogue, json);
  }
  Progress progress;
  for (size_t i = 0; i < all.rows.size(); ++i) {
    all.rows[i].prediction = predictRow(all.rows[i].row, catalogue);
    progress.update(static_cast<double>(i + 1) / static_cast<double>(all.rows.size()),
                    fmt::format("{} of {} rows predicted", i + 1, all.rows.size()));
  }
  progress.clear();
  if (!output.empty())
    TRIREME_RETURN_IF_ERROR(writeFile(output, cost::printRows(all.records, all.rows)));
  const cost::ValidationReport report = cost::reportOn(all.rows);
  if (json)
    fmt::print("{}\n", jsonText(cost::toJson(report)));
  else
    fmt::print("{}", cost::toTable(report));
  if (!json && !output.empty()) fmt::print("{:<14}{}\n", "written to", output);
  noteIfNone(all.rows);
  noteCautions(all.rows, catalogue.clusters);
  return kExitOk;
}

}  // namespace trireme::cli
