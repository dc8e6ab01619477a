#include "cli/whatif/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "cli/output/table.h"
#include "cli/output/wrap.h"
#include "cost_models/formulas.h"
#include "ir/base/format.h"
#include "ir/spec/load.h"
#include "planner/answer/report.h"
#include "planner/certainty.h"
#include "planner/whatif/answers.h"

namespace trireme::cli {
namespace {

using planner::ComparedRows;
using planner::Condition;
using planner::letterOf;
using planner::PointAnswer;
using planner::SweepPoint;

constexpr double kDay = 86400, kJoulesPerMWh = 3.6e9;

struct Cell {
  Column column;
  std::function<std::string(const AnswerRow&)> text;
  bool always = false;  // also where it is the same in all rows
};

// Empty: there is no network.
std::string gbits(BytesPerSecond rate) {
  if (rate.count() == 0) return "";
  return fmt::format("{:.6g} Gbit/s", rate.count() * 8 / 1e9);
}

class Report {
 public:
  explicit Report(const Answers& answers)
      : answers_(answers),
        rows_(rowsOf(answers)),
        conditions_(conditionsOf(answers, rows_)),
        front_(frontOf(answers, rows_)) {
    for (const AnswerRow& row : rows_)
      if (answerOf(row).ok()) letters_.emplace(answerOf(row).shape, letters_.size());
    for (const planner::Refinement& refinement : answers_.refinements)
      letters_.emplace(answerOf(refinement.row).shape, letters_.size());
  }

  std::string text() const {
    return question() + scaling() + failures() + deadlines() + budgets() + front() + tight() +
           plans() + reasons();
  }
  std::string question() const;

 private:
  const PointAnswer& answerOf(const AnswerRow& row) const { return *answers_.answers[row.point]; }
  const SweepPoint& pointOf(const AnswerRow& row) const { return answers_.points[row.point]; }
  std::string hardwareOf(const AnswerRow& row) const {
    return answers_.sweep.hardware[pointOf(row).hardware].name;
  }
  std::string letter(const AnswerRow& row) const {
    return letterOf(letters_.at(answerOf(row).shape));
  }
  bool isOnFront(const AnswerRow& row) const {
    return std::any_of(front_.begin(), front_.end(), [&](size_t i) { return &rows_[i] == &row; });
  }
  // Whether the row continues the scaling curve of the one before.
  bool continues(size_t i) const {
    if (i == 0) return false;
    SweepPoint a = pointOf(rows_[i - 1]), b = pointOf(rows_[i]);
    a.gpus = b.gpus = 0;
    return a == b;
  }

  std::vector<Cell> inputCells() const;
  std::vector<Cell> resultCells() const;
  std::string tableOf(const std::vector<Cell>& cells,
                      const std::vector<const AnswerRow*>& rows) const;
  std::string describe(const AnswerRow& row) const;
  int64_t mostGpus() const;
  std::string beyond(const planner::Refinement& refinement) const;
  std::string scaling() const;
  std::string failures() const;
  std::string withinNone(const std::string& name, const Condition& condition) const;
  std::string within(double deadline, const Condition& condition) const;
  std::string boughtFor(double budget, const Condition& condition) const;
  std::string deadlines() const;
  std::string budgets() const;
  std::string front() const;
  std::string tight() const;
  std::string plans() const;
  std::string reasons() const;

  const Answers& answers_;
  std::vector<AnswerRow> rows_;
  std::vector<Condition> conditions_;
  std::vector<size_t> front_;
  std::map<std::string, size_t> letters_;  // of shapes, in the order in which they win
};

std::vector<Cell> Report::inputCells() const {
  return {
      {{"system"}, [this](const AnswerRow& r) { return hardwareOf(r); }},
      {{"precision"},
       [this](const AnswerRow& r) {
         const spec::Precision p = answers_.sweep.hardware[pointOf(r).hardware].precision;
         return std::string(spec::precisionName(p));
       }},
      {{"seq", true},
       [this](const AnswerRow& r) { return fmt::format("{}", pointOf(r).sequence); }},
      {{"batch", true}, [this](const AnswerRow& r) { return fmt::format("{}", pointOf(r).batch); }},
      {{"network", true}, [this](const AnswerRow& r) { return gbits(pointOf(r).interNode); }},
      {{"nodes less", true},
       [this](const AnswerRow& r) { return fmt::format("{}", pointOf(r).minusNodes); }},
      {{"GPUs", true},
       [this](const AnswerRow& r) { return fmt::format("{}", pointOf(r).gpus); },
       true},
      {{"tokens", true}, [](const AnswerRow& r) { return formatCount(r.scenario.tokens); }},
      {{"USD/h", true},
       [](const AnswerRow& r) {
         return r.scenario.price ? fmt::format("{:.6g}", *r.scenario.price) : "";
       }},
      {{"W", true},
       [](const AnswerRow& r) {
         return r.scenario.power ? fmt::format("{:.6g}", r.scenario.power->count()) : "";
       }},
      {{"MTBF", true}, [](const AnswerRow& r) {
         return r.scenario.failures ? formatDuration(r.scenario.failures->deviceMeanBetween) : "";
       }}};
}

std::vector<Cell> Report::resultCells() const {
  const auto ifFits = [this](auto text) {
    return [this, text](const AnswerRow& r) {
      return answerOf(r).ok() ? text(answerOf(r)) : std::string("-");
    };
  };
  const auto ifPriced = [](auto text) {
    return
        [text](const AnswerRow& r) { return r.economics ? text(*r.economics) : std::string("-"); };
  };
  std::vector<Cell> cells = {
      {{"step", true}, ifFits([](const PointAnswer& a) { return formatSeconds(a.step); }), true},
      {{"tokens/s", true},
       ifFits([](const PointAnswer& a) { return fmt::format("{:.0f}", a.tokensPerSecond); }),
       true},
      {{"MFU", true},
       ifFits([](const PointAnswer& a) {
         return fmt::format("{:.1f} %", 100 * a.modelFlopsUtilisation);
       }),
       true},
      {{"used", true}, [this](const AnswerRow& r) {
         return answerOf(r).ok() ? fmt::format("{}", answerOf(r).gpusUsed) : std::string("-");
       }}};
  if (!answers_.scenarios.tokens.empty()) {
    cells.push_back({{"time", true},
                     ifPriced([](const planner::Economics& e) { return formatDuration(e.wall); }),
                     true});
    if (!answers_.scenarios.price.empty())
      cells.push_back({{"USD", true}, ifPriced([](const planner::Economics& e) {
                         return e.cost ? formatCount(*e.cost) : "";
                       })});
    cells.push_back({{"MWh", true}, ifPriced([](const planner::Economics& e) {
                       return e.energy ? fmt::format("{:.5g}", *e.energy / kJoulesPerMWh) : "";
                     })});
  }
  return cells;
}

// Leaves out columns in which all rows are the same, unless they always are there.
std::string Report::tableOf(const std::vector<Cell>& cells,
                            const std::vector<const AnswerRow*>& rows) const {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> texts(rows.size());
  for (const Cell& cell : cells) {
    std::vector<std::string> column;
    for (const AnswerRow* row : rows) column.push_back(cell.text(*row));
    const bool varies = std::any_of(column.begin(), column.end(),
                                    [&](const std::string& text) { return text != column[0]; });
    if (!varies && !cell.always) continue;
    columns.push_back(cell.column);
    for (size_t i = 0; i < rows.size(); ++i) texts[i].push_back(std::move(column[i]));
  }
  return printTable(columns, texts);
}

std::string Report::question() const {
  const planner::Query& base = answers_.sweep.base;
  std::string systems;
  for (const planner::Hardware& hardware : answers_.sweep.hardware)
    systems += (systems.empty() ? "" : ", ") + hardware.cluster.name;
  std::string text =
      wrapLine(fmt::format("{:<14}{}, {} parameters; {}; stack {}", "question", base.model.name,
                           formatCount(static_cast<double>(base.model.numParameters())), systems,
                           base.stack.name),
               14);
  // What is the same in all rows, and is therefore no column.
  std::string same;
  for (const Cell& cell : inputCells()) {
    if (cell.always || cell.column.title == "system" || rows_.empty()) continue;
    const std::string value = cell.text(rows_[0]);
    const bool varies = std::any_of(rows_.begin(), rows_.end(),
                                    [&](const AnswerRow& r) { return cell.text(r) != value; });
    if (varies || value.empty() ||
        (cell.column.title == "tokens" && answers_.scenarios.tokens.empty()) ||
        (cell.column.title == "nodes less" && value == "0"))
      continue;
    same += fmt::format("{}{} {}", same.empty() ? "" : ", ", cell.column.title, value);
  }
  same += fmt::format("{}MFU by {}", same.empty() ? "" : ", ", cost::kModelFlopsConvention);
  return text + wrapLine(fmt::format("{:<14}{}", "everywhere", same), 14);
}

std::string Report::scaling() const {
  std::vector<Cell> cells = inputCells();
  for (Cell& cell : resultCells()) cells.push_back(std::move(cell));
  // Cost and energy are shown wherever they are known, used devices where others are idle.
  const bool anyIdle = std::any_of(rows_.begin(), rows_.end(), [&](const AnswerRow& r) {
    return answerOf(r).ok() &&
           answerOf(r).gpusUsed < planner::presentDevices(answers_.sweep, pointOf(r));
  });
  std::erase_if(cells, [&](const Cell& cell) { return cell.column.title == "used" && !anyIdle; });
  for (Cell& cell : cells) cell.always |= cell.column.title == "used";
  for (Cell& cell : cells)
    if (cell.column.title == "USD" || cell.column.title == "MWh")
      cell.always = std::any_of(rows_.begin(), rows_.end(), [&](const AnswerRow& r) {
        return r.economics && !cell.text(r).empty();
      });
  cells.push_back({{"plan"},
                   [this](const AnswerRow& r) {
                     if (!answerOf(r).ok()) return std::string("none");
                     const auto i = static_cast<size_t>(&r - rows_.data());
                     const bool isNew = i > 0 && continues(i) && answerOf(rows_[i - 1]).ok() &&
                                        answerOf(rows_[i - 1]).shape != answerOf(r).shape;
                     return (isNew ? "> " : "  ") + letter(r) + (isOnFront(r) ? " *" : "") +
                            (answerOf(r).memoryTight ? " !" : "");
                   },
                   true});
  std::vector<const AnswerRow*> rows;
  for (const AnswerRow& row : rows_) rows.push_back(&row);
  return tableOf(cells, rows);
}

std::string Report::failures() const {
  std::vector<const AnswerRow*> rows;
  for (const AnswerRow& row : rows_)
    if (row.economics && row.economics->goodput) rows.push_back(&row);
  if (rows.empty()) return "";
  std::vector<Cell> cells = inputCells();
  const auto add = [&](const char* title, auto text) {
    cells.push_back(
        {{title, true}, [text](const AnswerRow& r) { return text(*r.economics->goodput); }, true});
  };
  add("job MTBF", [](const planner::Goodput& g) { return formatDuration(g.rate.meanBetween); });
  add("save", [](const planner::Goodput& g) { return formatDuration(g.rate.save); });
  add("save every", [](const planner::Goodput& g) { return formatDuration(g.interval); });
  add("goodput",
      [](const planner::Goodput& g) { return fmt::format("{:.2f} %", 100 * g.goodput); });
  if (answers_.scenarios.repair) {
    add("spares", [](const planner::Goodput& g) { return fmt::format("{}", g.spares); });
    add("available",
        [](const planner::Goodput& g) { return fmt::format("{:.2f} %", 100 * g.availability); });
  }
  cells.push_back({{"without", true},
                   [](const AnswerRow& r) { return formatDuration(r.economics->busy); },
                   true});
  return "failures      (without: time if nothing failed)\n" + tableOf(cells, rows);
}

// ", 5 spare nodes, 1 of them idle": what the time needs beyond the plan.
std::string sparesOf(const planner::Economics& economics) {
  if (!economics.goodput || economics.goodput->spares == 0) return "";
  const planner::Goodput& g = *economics.goodput;
  std::string text = fmt::format(", {} spare node{}", g.spares, g.spares == 1 ? "" : "s");
  if (g.bought < g.spares) text += fmt::format(", {} of them idle", g.spares - g.bought);
  return text;
}

// "512 GPUs, batch 1536: 24.1 d, 3.2 M USD, 2 spare nodes, plan C": inputs that vary, then what
// comes out.
std::string Report::describe(const AnswerRow& row) const {
  std::string text = fmt::format("{} GPUs", pointOf(row).gpus);
  for (const Cell& cell : inputCells()) {
    const std::string value = cell.text(row);
    if (cell.column.title == "GPUs") continue;
    if (std::all_of(rows_.begin(), rows_.end(),
                    [&](const AnswerRow& r) { return cell.text(r) == value; }))
      continue;
    text += fmt::format(", {} {}", cell.column.title, value);
  }
  text += ": " + formatDuration(row.economics->wall);
  if (row.economics->cost) text += fmt::format(", {} USD", formatCount(*row.economics->cost));
  return text + sparesOf(*row.economics) + ", plan " + letter(row);
}

int64_t Report::mostGpus() const {
  int64_t most = 0;
  for (const AnswerRow& row : rows_) most = std::max(most, pointOf(row).gpus);
  return most;
}

// Of a time that is only a little too long, by how much.
std::string formatBeyond(Seconds time, Seconds limit) {
  const std::string text = formatDuration(time);
  if (text != formatDuration(limit)) return text;
  return fmt::format("{}, {} too long", text, formatDuration(time - limit));
}

// "1152 GPUs take 7.1 d; 7 numbers of devices between those above were planned for this"
std::string Report::beyond(const planner::Refinement& r) const {
  std::string text;
  if (r.beyond) {
    text = fmt::format("{} GPUs ", pointOf(*r.beyond).gpus);
    if (!r.beyond->economics)
      text += "have no plan";
    else
      text += "take " + formatBeyond(r.beyond->economics->wall, Seconds(r.limit));
  }
  if (r.numPlanned > 0)
    text += fmt::format("{}{} more number{} of devices planned for this", text.empty() ? "" : "; ",
                        r.numPlanned, r.numPlanned == 1 ? "" : "s");
  return text.empty() ? "" : wrapLine(fmt::format("{:<14}{}", "", text), 14);
}

// No row under the condition is as fast.
std::string Report::withinNone(const std::string& name, const Condition& condition) const {
  const ComparedRows compared = comparedRows(answers_, rows_, condition);
  const auto fastest =
      std::min_element(compared.outcomes.begin(), compared.outcomes.end(),
                       [](const auto& a, const auto& b) { return a.wall < b.wall; });
  if (fastest == compared.outcomes.end()) {
    const std::string less = condition.minusNodes == 0 ? ""
                             : condition.minusNodes == 1
                                 ? " with 1 node less"
                                 : fmt::format(" with {} nodes less", condition.minusNodes);
    return wrapLine(fmt::format("{:<13} nothing fits{}", name, less), 14);
  }
  const auto i = static_cast<size_t>(fastest - compared.outcomes.begin());
  return wrapLine(
      fmt::format("{:<13} none of those asked about, up to {} GPUs; the fastest of them: {}", name,
                  mostGpus(), describe(rows_[compared.places[i]])),
      14);
}

std::string Report::within(double deadline, const Condition& condition) const {
  const std::string name = fmt::format("within {}", formatDuration(Seconds(deadline)));
  const planner::Refinement* fewest =
      answers_.refinement(planner::Refinement::Goal::kFewest, deadline, condition);
  if (!fewest) return withinNone(name, condition);
  // Fewer were not asked about.
  const size_t least = std::min_element(rows_.begin(), rows_.end(), [&](auto& a, auto& b) {
                         return pointOf(a).gpus < pointOf(b).gpus;
                       })->point;
  const bool isLeast = fewest->numPlanned == 0 && !fewest->beyond && rows_.size() > 1 &&
                       pointOf(fewest->row).gpus == answers_.points[least].gpus;
  std::string text =
      wrapLine(fmt::format("{:<13} fewest devices{}: {}", name,
                           isLeast ? " of those asked about" : "", describe(fewest->row)),
               14) +
      beyond(*fewest);
  const planner::Refinement* cheapest =
      answers_.refinement(planner::Refinement::Goal::kCheapest, deadline, condition);
  if (cheapest && *cheapest->row.economics->cost < *fewest->row.economics->cost)
    text += wrapLine(fmt::format("{:<14}cheapest: {}", "", describe(cheapest->row)), 14);
  return text;
}

std::string Report::deadlines() const {
  std::string text;
  for (const double deadline : answers_.scenarios.deadlines)
    for (const Condition& condition : conditions_) text += within(deadline, condition);
  return text;
}

std::string Report::boughtFor(double budget, const Condition& condition) const {
  const std::string name = fmt::format("{} USD", formatCount(budget));
  const ComparedRows compared = comparedRows(answers_, rows_, condition);
  if (const planner::Refinement* fastest =
          answers_.refinement(planner::Refinement::Goal::kFastest, budget, condition)) {
    const auto count = std::count_if(compared.outcomes.begin(), compared.outcomes.end(),
                                     [&](const auto& o) { return o.cost <= budget; });
    return wrapLine(fmt::format("{:<13} {} of {} points; the fastest: {}", name, count,
                                compared.outcomes.size(), describe(fastest->row)),
                    14) +
           beyond(*fastest);
  }
  const auto cheapest =
      std::min_element(compared.outcomes.begin(), compared.outcomes.end(),
                       [](const auto& a, const auto& b) { return a.cost < b.cost; });
  if (cheapest == compared.outcomes.end()) return "";
  const auto i = static_cast<size_t>(cheapest - compared.outcomes.begin());
  return wrapLine(fmt::format("{:<13} none of those asked about; the cheapest of them: {}", name,
                              describe(rows_[compared.places[i]])),
                  14);
}

std::string Report::budgets() const {
  std::string text;
  for (const double budget : answers_.scenarios.budgets)
    for (const Condition& condition : conditions_) text += boughtFor(budget, condition);
  return text;
}

std::string Report::front() const {
  if (front_.size() < 2) return "";
  const auto numPriced = std::count_if(rows_.begin(), rows_.end(), [](const AnswerRow& r) {
    return r.economics && r.economics->cost;
  });
  return fmt::format("{:<14}* no other row{} is both faster and cheaper: {} of {}\n", "front",
                     conditions_.size() > 1 ? " under the same conditions" : "", front_.size(),
                     numPriced);
}

std::string Report::tight() const {
  const auto isTight = [this](const AnswerRow& r) { return answerOf(r).memoryTight; };
  const auto count = std::count_if(rows_.begin(), rows_.end(), isTight);
  if (count == 0) return "";
  return fmt::format("{:<14}! memory is tight, {}: {} of {}\n", "memory",
                     planner::doubtText(answers_.sweep.base.stack), count, rows_.size());
}

std::string Report::plans() const {
  std::vector<std::pair<std::string, size_t>> byLetter(letters_.begin(), letters_.end());
  std::sort(byLetter.begin(), byLetter.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text = byLetter.empty() ? ""
                                      : "plans         (replicas take the other devices in use; > "
                                        "marks a change of the winner)\n";
  for (const auto& [shape, index] : byLetter)
    text += wrapLine(fmt::format("  {:<12}{}", letterOf(index), shape), 14);
  return text;
}

std::string Report::reasons() const {
  std::string text;
  for (size_t i = 0; i < answers_.numSwept(); ++i) {
    if (!answers_.answers[i] || answers_.answers[i]->ok()) continue;
    const SweepPoint& p = answers_.points[i];
    text += wrapLine(fmt::format("  {} GPUs of {}, batch {}, sequence {}: {}", p.gpus,
                                 answers_.sweep.hardware[p.hardware].name, p.batch, p.sequence,
                                 answers_.answers[i]->reason),
                     4);
  }
  return text.empty() ? "" : "no plan\n" + text;
}

}  // namespace

std::string questionOf(const Answers& answers) { return Report(answers).question(); }

std::string toTable(const Answers& answers) { return Report(answers).text(); }

std::string formatCount(double value) {
  if (value >= 1e18) return "over 1000 P";
  constexpr std::pair<double, const char*> kUnits[] = {
      {1e15, " P"}, {1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e4, " k"}};
  for (const auto& [unit, name] : kUnits)
    if (value >= unit)
      return fmt::format("{:.4g}{}", value / std::min(unit, unit == 1e4 ? 1e3 : unit), name);
  return fmt::format("{:.4g}", value);
}

std::string formatDuration(Seconds time) {
  const double s = time.count();
  if (s >= 1000 * 365 * kDay) return "over 1000 y";
  if (s >= 1000 * kDay) return fmt::format("{:.4g} y", s / (365 * kDay));
  if (s >= 2 * kDay) return fmt::format("{:.1f} d", s / kDay);
  if (s >= 7200) return fmt::format("{:.1f} h", s / 3600);
  if (s >= 120) return fmt::format("{:.1f} min", s / 60);
  return formatSeconds(time);
}

}  // namespace trireme::cli
