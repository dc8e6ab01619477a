// trireme whatif: sizes a cluster. Every point of a sweep is planned anew.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <tuple>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/for_framework.h"
#include "cli/html_report/html_report.h"
#include "cli/inputs.h"
#include "cli/output/json_text.h"
#include "cli/output/progress.h"
#include "cli/output/tell.h"
#include "cli/paths.h"
#include "cli/pin_flags.h"
#include "cli/whatif/compare.h"
#include "cli/whatif/report.h"
#include "cli/whatif/sweep_file.h"
#include "cli/write_file.h"
#include "ir/spec/document.h"
#include "ir/spec/load.h"
#include "ir/spec/shipped.h"
#include "planner/whatif/ask.h"
#include "planner/whatif/hardware.h"
#include "planner/whatif/refine.h"
#include "planner/whatif/values.h"

namespace trireme::cli {
namespace {

struct WhatifOptions {
  QueryOptions question;
  std::optional<codegen::Framework> framework;  // that is to run the plans
  std::vector<std::string> gpuNames;            // what --gpu says
  planner::SweepAxes axes;
  planner::Pins pins;
  planner::ScenarioAxes scenarios;
  std::string output, resume, report;
  std::vector<std::string> diff;
  bool csv = false, json = false, worth = false, force = false;
  int64_t threads = std::max(1u, std::thread::hardware_concurrency());
};

// However long it is.
Result<std::string> readSweep(const std::string& path) {
  std::error_code code;
  const uintmax_t size = std::filesystem::file_size(path, code);
  return spec::readFile(path, code ? 0 : static_cast<size_t>(size));
}

// All that a stack's profile says, so that another one is another question.
Result<std::string> stackText(const std::string& path) {
  if (path.empty()) return std::string();
  if (const spec::ShippedFile* file = spec::findShipped(spec::ShippedKind::kStack, path))
    return std::string(file->text);
  return spec::readFile(path);
}

// Records behind what a file holds, one point at a time, so that whatever stops the sweep leaves
// what was answered.
class Journal {
 public:
  Status open(const std::string& path, const std::string& text) {
    if (path.empty()) return {};
    path_ = path;
    TRIREME_RETURN_IF_ERROR(writeFile(path, text));
    file_.open(path, std::ios::binary | std::ios::app);
    return file_ ? Status() : failure();
  }
  bool add(const std::string& records) {
    if (path_.empty()) return true;
    file_ << records << std::flush;
    return static_cast<bool>(file_);
  }
  Status failure() const {
    return unavailable(fmt::format("{}: cannot write: {}", path_, std::strerror(errno)));
  }

 private:
  std::string path_;
  std::ofstream file_;
};

// By the name of its file's cluster.
bool isCompared(const std::string& cluster, const std::vector<planner::Hardware>& hardware) {
  const Result<spec::ClusterSpec> given = spec::loadCluster(cluster);
  return given.has_value() &&
         std::any_of(hardware.begin(), hardware.end(), [&](const planner::Hardware& system) {
           return system.cluster.name == given->name;
         });
}

// Of each sequence length once.
std::vector<std::string> sizeNotesOf(const planner::Sweep& sweep) {
  std::vector<std::string> notes;
  planner::Query query = sweep.base;
  for (const planner::Hardware& hardware : sweep.hardware)
    for (const int64_t sequence : sweep.axes.sequence) {
      query.cluster = hardware.cluster;
      query.training.sequenceLength = sequence;
      for (std::string& note : planner::sizeNotesOf(query))
        if (std::find(notes.begin(), notes.end(), note) == notes.end())
          notes.push_back(std::move(note));
    }
  return notes;
}

Result<Answers> makeAnswers(const WhatifOptions& options) {
  planner::SweepQuestion asked{options.question, options.gpuNames, options.pins, options.axes,
                               options.scenarios};
  TRIREME_ASSIGN_OR_RETURN(asked.stack, loadStackFor(options.question.stack, options.framework));
  TRIREME_ASSIGN_OR_RETURN(Answers answers, planner::makeAnswers(asked));
  if (options.framework)
    TRIREME_RETURN_IF_ERROR(checkAsked(answers.sweep.base, *options.framework));
  TRIREME_ASSIGN_OR_RETURN(std::vector<std::string> notes,
                           planner::notesOf(options.question, answers.sweep.base.training));
  for (std::string& note : sizeNotesOf(answers.sweep)) notes.push_back(std::move(note));
  for (std::string& caveat : caveatsOf(answers.sweep)) notes.push_back(std::move(caveat));
  if (options.framework)
    if (auto note = noteOfStack(answers.sweep.base.stack.name, *options.framework))
      notes.push_back(*std::move(note));
  if (const std::string& given = options.question.cluster;
      !options.gpuNames.empty() && !given.empty()) {
    if (options.axes.gpus.empty())
      notes.push_back(
          fmt::format("--gpu takes the place of {}, which says how many devices there are", given));
    else if (!isCompared(given, answers.sweep.hardware))
      notes.push_back(
          fmt::format("--gpu takes the place of {}: it is not among what is compared", given));
  }
  for (const std::string& note : notes) tell("note: {}\n", note);
  return answers;
}

Status answerAll(const WhatifOptions& options, const std::vector<std::string>& questions,
                 Answers& answers) {
  const std::string& path = options.resume.empty() ? options.output : options.resume;
  if (!options.resume.empty()) {
    TRIREME_ASSIGN_OR_RETURN(const std::string text, readSweep(path));
    TRIREME_RETURN_IF_ERROR(readAnswers(text, path, questions, answers));
  }
  std::vector<planner::SweepPoint> open;
  std::vector<size_t> places;
  for (size_t i = 0; i < answers.points.size(); ++i) {
    if (answers.answers[i]) continue;
    open.push_back(answers.points[i]);
    places.push_back(i);
  }
  Journal journal;
  TRIREME_RETURN_IF_ERROR(journal.open(path, toCsv(answers, questions)));
  Progress progress;
  Status status;
  size_t numDone = answers.points.size() - open.size();
  planner::answerPoints(
      answers.sweep, open, static_cast<int>(std::min<int64_t>(options.threads, 256)),
      [&](size_t i, const planner::PointAnswer& answer) {
        answers.answers[places[i]] = answer;
        progress.update(static_cast<double>(++numDone) / static_cast<double>(answers.points.size()),
                        fmt::format("{} of {} points", numDone, answers.points.size()));
        if (journal.add(recordsOf(answers, questions, places[i]))) return true;
        status = journal.failure();
        return false;
      });
  progress.clear();
  TRIREME_RETURN_IF_ERROR(status);
  // Once more, in order: the file does not show where the sweep was interrupted.
  return path.empty() ? Status() : writeFile(path, toCsv(answers, questions));
}

// Whether any point has a plan.
Status checkAnswered(const WhatifOptions& options, const Answers& answers) {
  const auto stacks = [&] { return stacksBeside(options.framework); };
  Progress progress;
  const Status status =
      planner::checkAnswered(answers, stacks, [&](const planner::SearchState& state) {
        progress.update(
            static_cast<double>(state.numGroupsOpened) / static_cast<double>(state.numGroups),
            "looking for changes that would fit");
      });
  progress.clear();
  return status;
}

// Deadlines and budgets, between the points.
void refine(Answers& answers) {
  Progress progress;
  const double asked = static_cast<double>(answers.scenarios.deadlines.size() *
                                               (answers.scenarios.price.empty() ? 1 : 2) +
                                           answers.scenarios.budgets.size()) *
                       static_cast<double>(conditionsOf(answers, rowsOf(answers)).size());
  planner::refineAnswers(answers, [&] {
    progress.update(static_cast<double>(answers.refinements.size()) / asked,
                    fmt::format("deadlines and budgets: {} more points",
                                answers.points.size() - answers.numSwept()));
    return true;
  });
  progress.clear();
}

// One question, two sides: every flag has one value.
Result<int> runDiff(const WhatifOptions& options) {
  const planner::SweepAxes& axes = options.axes;
  CompareOptions compare{options.question, options.pins,   options.diff[0],
                         options.diff[1],  options.report, options.json};
  for (const auto& [flag, values, out] :
       {std::tuple("--gpus", &axes.gpus, &compare.pins.gpus),
        std::tuple("--batch", &axes.batch, &compare.question.batch),
        std::tuple("--seq", &axes.sequence, &compare.question.sequence)}) {
    if (values->size() > 1)
      return Error(invalidArgument(
          fmt::format("--diff compares one point: {} has {} values", flag, values->size())));
    if (!values->empty()) *out = values->front();
  }
  return runCompare(compare);
}

// No file that holds a sweep, or what is none of ours, is replaced without being asked to.
Status keepsAnswers(const WhatifOptions& options) {
  if (holdsAnswers(options.report))
    return invalidArgument(fmt::format(
        "--report {}: holds the answers of a sweep; give another file", options.report));
  if (options.force) return {};
  if (holdsAnswers(options.output))
    return invalidArgument(fmt::format(
        "-o {}: holds the answers of a sweep: --resume {} goes on with it, --force begins "
        "anew",
        options.output, options.output));
  if (holdsOther(options.output))
    return invalidArgument(
        fmt::format("-o {}: is there, and no sweep of trireme whatif; give another file, or "
                    "--force to replace it",
                    options.output));
  return {};
}

Result<int> runWhatif(const WhatifOptions& options) {
  TRIREME_RETURN_IF_ERROR(checkOutputs(
      {{"--model", options.question.model},
       {"--cluster", options.question.cluster},
       {"--train", options.question.training},
       {"--stack", options.question.stack}},
      {{"-o", options.output}, {"--resume", options.resume}, {"--report", options.report}}));
  TRIREME_RETURN_IF_ERROR(checkWritable(options.output));
  TRIREME_RETURN_IF_ERROR(checkWritable(options.report));
  TRIREME_RETURN_IF_ERROR(keepsAnswers(options));
  if (!options.diff.empty()) return runDiff(options);
  TRIREME_ASSIGN_OR_RETURN(Answers answers, makeAnswers(options));
  if (options.worth) {
    TRIREME_RETURN_IF_ERROR(checkWorth(answers));
  }
  TRIREME_ASSIGN_OR_RETURN(std::string stack, stackText(options.question.stack));
  if (options.framework) stack += fmt::format("\nfor {}", frameworkName(*options.framework));
  const std::vector<std::string> questions = questionsOf(answers.sweep, stack);
  TRIREME_RETURN_IF_ERROR(answerAll(options, questions, answers));
  TRIREME_RETURN_IF_ERROR(checkAnswered(options, answers));
  refine(answers);
  if (options.worth) return runWorth(answers, options.report, options.json);
  const planner::Query& base = answers.sweep.base;
  TRIREME_RETURN_IF_ERROR(writeReport(
      options.report, {"whatif", base.model.name, questionOf(answers), toTable(answers)},
      planner::toJson(answers)));
  if (options.csv)
    fmt::print("{}", toCsv(answers, questions));
  else if (options.json)
    fmt::print("{}\n", jsonText(planner::toJson(answers)));
  else
    fmt::print("{}", toTable(answers));
  return kExitOk;
}

// A flag whose text `parse` reads.
template <typename Parse>
CLI::Option* addParsed(CLI::App& app, const std::string& flag, const char* placeholder,
                       const std::string& description, const std::string& group, Parse parse) {
  return app
      .add_option_function<std::string>(
          flag, [=](const std::string& text) { parse(flag, text); }, description)
      ->type_name(placeholder)
      ->group(group);
}

void addAxes(CLI::App& app, WhatifOptions* options) {
  const std::string group =
      "Points: each a value, a list (64,96) or a range (64..4096, 64..512:64)";
  planner::SweepAxes* axes = &options->axes;
  const auto whole = [&](const std::string& flag, std::vector<int64_t>* out, int64_t least,
                         bool byOnes, const std::string& description) {
    addParsed(app, flag, "N", description, group,
              [=](const std::string& f, const std::string& text) {
                *out = orRefuse(f, planner::parseWhole(text, least, byOnes));
              });
  };
  whole("--gpus", &axes->gpus, 1, false, "The most devices to use (default: the cluster's)");
  addParsed(app, "--gpu", "NAME,...",
            "Shipped systems in place of --cluster: h100 is dgx-h100, all of it", group,
            [=](const std::string& f, const std::string& text) {
              options->gpuNames = orRefuse(f, planner::parseNames(text));
              for (const std::string& name : options->gpuNames)
                orRefuse(f, planner::clusterOfGpu(name));
            });
  addParsed(app, "--inter-node", "BANDWIDTH",
            "Line rate of a device between nodes, one direction: '200..1600 Gbit/s'", group,
            [=](const std::string& f, const std::string& text) {
              axes->interNode.clear();
              for (const double rate : orRefuse(f, planner::parseUnits(text, planner::rateUnits())))
                axes->interNode.emplace_back(rate);
            });
  whole("--batch", &axes->batch, 1, false, "Sequences per step; overrides the --train file");
  whole("--seq", &axes->sequence, 1, false, "Tokens per sequence; overrides the --train file");
  whole("--minus-nodes", &axes->minusNodes, 0, true,
        "Nodes (hosts) that are missing and not paid for; 1..4 is 1,2,3,4");
}

void addMoney(CLI::App& app, WhatifOptions* options) {
  const std::string group = "Time and money: each a value, a list or a range, too";
  planner::ScenarioAxes* s = &options->scenarios;
  const auto units = [&](const std::string& flag, const char* placeholder, std::vector<double>* out,
                         const planner::UnitKind& kind, const std::string& description,
                         bool* isRange = nullptr) {
    return addParsed(app, flag, placeholder, description, group,
                     [out, isRange, &kind](const std::string& f, const std::string& text) {
                       *out = orRefuse(f, planner::parseUnits(text, kind, isRange));
                     });
  };
  CLI::Option* tokens = units("--tokens", "N", &s->tokens, planner::tokenUnits(),
                              "Tokens of the whole training: 15T");
  CLI::Option* price =
      units("--price", "USD/h", &s->price, planner::priceUnits(),
            "Of a device: '2.5 USD/h'; a list as long as --gpu's: one for each", &s->priceIsRange);
  price->needs(tokens);
  units("--power", "W", &s->power, planner::powerUnits(),
        "Of a device (default: its own, without a host); as --price, of each", &s->powerIsRange)
      ->needs(tokens);
  units("--deadline", "TIME", &s->deadlines, planner::durationUnits(),
        "How many devices finish in time? '30 d'")
      ->needs(tokens);
  units("--budget", "USD", &s->budgets, planner::moneyUnits(), "What can be had for it? '5 MUSD'")
      ->needs(price);
}

void addFailures(CLI::App& app, WhatifOptions* options) {
  const std::string group = "Failures";
  planner::ScenarioAxes* s = &options->scenarios;
  CLI::Option* mtbf =
      addParsed(app, "--mtbf", "TIME",
                "Between failures of one device with its share of the node, mean: '5 y'", group,
                [=](const std::string& f, const std::string& text) {
                  s->mtbf = orRefuse(f, planner::parseUnits(text, planner::durationUnits()));
                });
  mtbf->needs(app.get_option("--tokens"));
  addParsed(app, "--checkpoint-bandwidth", "BANDWIDTH", "At which all ranks together save and load",
            group,
            [=](const std::string& f, const std::string& text) {
              s->checkpointBandwidth = orRefuse(f, planner::parseUnit(text, planner::rateUnits()));
            })
      ->needs(mtbf);
  addParsed(app, "--restart", "TIME", "From a failure until the checkpoint begins to load", group,
            [=](const std::string& f, const std::string& text) {
              s->restart = orRefuse(f, planner::parseUnit(text, planner::pauseUnits()));
            })
      ->needs(mtbf);
  CLI::Option* repair = addParsed(
      app, "--repair", "TIME", "Until a failed node is back (default: one is always at hand)",
      group, [=](const std::string& f, const std::string& text) {
        s->repair = orRefuse(f, planner::parseUnit(text, planner::durationUnits()));
      });
  repair->needs(mtbf);
  addParsed(
      app, "--spares", "N", "Nodes that wait, idle ones first (default: as many as are cheapest)",
      group,
      [=](const std::string& f, const std::string& text) { s->spares = parseCount(f, text, 0); })
      ->needs(repair);
}

// Everything that makes more points than one, or prices them, goes without.
void addDiff(CLI::App& app, const std::vector<CLI::Option*>& pins,
             std::vector<std::string>* sides) {
  CLI::Option* diff = addPaths(app, "--diff", sides, "A B",
                               "Two clusters, stacks or plan files: what makes the difference")
                          ->expected(2);
  const std::set<std::string> ofBoth = {
      "--help", "--model", "--cluster", "--train",  "--stack",     "--gpus",          "--batch",
      "--seq",  "--json",  "--diff",    "--report", "--precision", "--vocab-multiple"};
  for (CLI::Option* option : app.get_options())
    if (!ofBoth.contains(option->get_name()) &&
        std::find(pins.begin(), pins.end(), option) == pins.end())
      diff->excludes(option);
}

Action addWhatif(CLI::App& app) {
  auto options = std::make_shared<WhatifOptions>();
  QueryOptions& question = options->question;
  addPath(app, "--model", &question.model, "NAME|FILE",
          "Model: one of examples/models, YAML, or a Hugging Face config.json")
      ->required();
  addPath(app, "--cluster", &question.cluster, "NAME|FILE",
          "Cluster, devices and links: one of examples/clusters, or YAML");
  addPath(app, "--train", &question.training, "FILE", "Training settings");
  addPath(app, "--stack", &question.stack, "NAME|FILE",
          "Software: one of examples/stacks, or YAML (default: Trireme's own)");
  addChoice(app, "--for", &options->framework, codegen::frameworkName,
            codegen::Framework::kAccelerate,
            "Only plans that this program can run (trireme export), with its stack");
  addChoice(app, "--precision", &question.precision, spec::precisionName, spec::Precision::kFp8,
            "Overrides the --train file (default: bf16 where stack and GPU have it)");
  addCount(app, "--vocab-multiple", &question.vocabMultiple,
           "Pad the vocabulary to a multiple of N x tp (default: the stack's)");
  addAxes(app, options.get());
  addMoney(app, options.get());
  addFailures(app, options.get());
  const std::vector<CLI::Option*> pins = addPins(app, &options->pins);
  CLI::Option* csv = app.add_flag("--csv", options->csv, "Print CSV instead of a table");
  // Its records are points: it has no place for what is found among them.
  csv->excludes(app.get_option("--deadline"))->excludes(app.get_option("--budget"));
  app.add_flag("--json", options->json, "Print JSON instead of a table")->excludes(csv);
  CLI::Option* output =
      addPath(app, "-o,--output", &options->output, "FILE", "Keep the answers here, as CSV");
  app.add_flag("--force", options->force, "Replace what the -o file holds")->needs(output);
  addPath(app, "--resume", &options->resume, "FILE",
          "Go on with what an interrupted sweep left in its -o file")
      ->excludes(output);
  addReport(app, &options->report);
  app.add_flag("--worth", options->worth,
               "Say what one more TFLOP/s, GB/s and GiB is worth, at one point")
      ->excludes(csv);
  addDiff(app, pins, &options->diff);
  addCount(app, "--threads", &options->threads,
           "Points at a time, at most 256 (default: one per core)");
  return [options] { return runWhatif(*options); };
}

}  // namespace

const Command kWhatifCommand = {
    "whatif", "Size a cluster: plan for many, with days, cost and failures",
    "trireme whatif --model gpt3-175b --cluster dgx-h100 --gpus 256..2048 --batch 1536 --seq 2048 "
    "\\\n    --tokens 300B --price '2.5 USD/h' --deadline '30 d'",
    addWhatif};

}  // namespace trireme::cli
