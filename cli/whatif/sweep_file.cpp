#include "cli/whatif/sweep_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "cost_models/validation/csv.h"
#include "ir/base/hash.h"
#include "ir/base/version.h"
#include "ir/spec/load.h"
#include "ir/spec/quantity.h"
#include "planner/parts.h"

namespace trireme::cli {
namespace {

using planner::PointAnswer;
using planner::SweepPoint;

const char* const kPointCells[] = {"question", "gpu",      "gpus",       "inter_node_bytes_per_s",
                                   "batch",    "sequence", "minus_nodes"};
const char* const kAnswerCells[] = {"fits",      "reason",       "plan",        "shape",
                                    "gpus_used", "nodes_used",   "step_s",      "tokens_per_s",
                                    "mfu",       "memory_bytes", "memory_tight"};
constexpr size_t kFirstOfPlan = 2;  // what no plan has none of
const char* const kScenarioCells[] = {"tokens",          "price_usd_per_gpu_hour",
                                      "power_w_per_gpu", "gpu_mtbf_s",
                                      "steps",           "busy_s",
                                      "wall_s",          "cost_usd",
                                      "energy_j",        "job_mtbf_s",
                                      "save_s",          "young_interval_s",
                                      "daly_interval_s", "goodput_share",
                                      "spare_nodes",     "spare_nodes_bought",
                                      "availability"};

std::vector<std::string> headerCells() {
  std::vector<std::string> cells(std::begin(kPointCells), std::end(kPointCells));
  cells.insert(cells.end(), std::begin(kAnswerCells), std::end(kAnswerCells));
  for (const planner::BreakdownPart& part : planner::breakdownParts({})) {
    std::string name = part.name + "_s";
    std::replace(name.begin(), name.end(), ' ', '_');
    cells.push_back(name);
  }
  cells.insert(cells.end(), std::begin(kScenarioCells), std::end(kScenarioCells));
  return cells;
}

std::string number(double value) { return fmt::format("{}", value); }
template <typename T>
std::string number(const std::optional<T>& value) {
  return value ? number(static_cast<double>(*value)) : "";
}

std::vector<std::string> answerCells(const PointAnswer& answer) {
  std::vector<std::string> cells = {answer.ok() ? "yes" : "no",
                                    answer.reason,
                                    answer.plan,
                                    answer.shape,
                                    fmt::format("{}", answer.gpusUsed),
                                    fmt::format("{}", answer.nodesUsed),
                                    number(answer.step.count()),
                                    number(answer.tokensPerSecond),
                                    number(answer.modelFlopsUtilisation),
                                    number(answer.memory.count()),
                                    answer.memoryTight ? "yes" : "no"};
  for (const planner::BreakdownPart& part : planner::breakdownParts(answer.breakdown))
    cells.push_back(number(part.time.count()));
  if (!answer.ok())
    for (size_t i = kFirstOfPlan; i < cells.size(); ++i) cells[i].clear();
  return cells;
}

std::vector<std::string> scenarioCells(const planner::AnswerRow& row) {
  const planner::Scenario& s = row.scenario;
  const std::optional<planner::Economics>& e = row.economics;
  std::optional<planner::Goodput> g;
  if (e) g = e->goodput;
  return {s.tokens > 0 ? number(s.tokens) : "",
          number(s.price),
          s.power ? number(s.power->count()) : "",
          s.failures ? number(s.failures->deviceMeanBetween.count()) : "",
          e ? fmt::format("{}", e->steps) : "",
          e ? number(e->busy.count()) : "",
          e ? number(e->wall.count()) : "",
          e ? number(e->cost) : "",
          e ? number(e->energy) : "",
          g ? number(g->rate.meanBetween.count()) : "",
          g ? number(g->rate.save.count()) : "",
          g ? number(g->young.count()) : "",
          g ? number(g->interval.count()) : "",
          g ? number(g->goodput) : "",
          g ? fmt::format("{}", g->spares) : "",
          g ? fmt::format("{}", g->bought) : "",
          g ? number(g->availability) : ""};
}

// The cells of one record, read in order; keeps the first error.
class RecordReader {
 public:
  RecordReader(const cost::CsvRecord& record, const std::string& name)
      : record_(record), name_(name) {}

  const std::string& text() { return record_[at_++].text; }
  void skip(size_t cells) { at_ += cells; }
  double real() {
    const cost::CsvCell& cell = record_[at_++];
    const Result<double> value = spec::parseDecimal(cell.text);
    if (!value.has_value() || *value < 0) return refuse(cell, "a number of at least 0"), 0;
    return *value;
  }
  int64_t whole(int64_t least = 0, int64_t most = std::numeric_limits<int64_t>::max()) {
    const cost::CsvCell& cell = record_[at_++];
    int64_t value = 0;
    const char* end = cell.text.data() + cell.text.size();
    const auto [stop, code] = std::from_chars(cell.text.data(), end, value);
    if (code == std::errc() && stop == end && value >= least && value <= most) return value;
    refuse(cell, most == std::numeric_limits<int64_t>::max()
                     ? fmt::format("a whole number of at least {}", least)
                     : fmt::format("a whole number from {} to {}", least, most));
    return 0;
  }
  bool yesNo() {
    const cost::CsvCell& cell = record_[at_++];
    if (cell.text != "yes" && cell.text != "no") refuse(cell, "yes or no");
    return cell.text == "yes";
  }
  const Status& status() const { return status_; }

 private:
  void refuse(const cost::CsvCell& cell, const std::string& expected) {
    if (status_.ok())
      status_ = spec::errorAt(name_, cell.mark,
                              fmt::format("expected {}, got '{}'", expected, cell.text));
  }
  const cost::CsvRecord& record_;
  const std::string& name_;
  size_t at_ = 0;
  Status status_;
};

PointAnswer readAnswer(RecordReader& reader, int64_t gpus) {
  PointAnswer answer;
  const bool fits = reader.yesNo();
  answer.reason = reader.text();
  if (!fits && answer.reason.empty()) answer.reason = "no plan";
  if (!fits) {
    reader.skip(std::size(kAnswerCells) - kFirstOfPlan + planner::breakdownParts({}).size());
    return answer;
  }
  answer.reason.clear();
  answer.plan = reader.text();
  answer.shape = reader.text();
  answer.gpusUsed = reader.whole(1, gpus);
  answer.nodesUsed = reader.whole(1, answer.gpusUsed);
  answer.step = Seconds(reader.real());
  answer.tokensPerSecond = reader.real();
  answer.modelFlopsUtilisation = reader.real();
  answer.memory = Bytes(reader.real());
  answer.memoryTight = reader.yesNo();
  cost::Breakdown& b = answer.breakdown;
  for (Seconds* part : {&b.products, &b.attention, &b.elementwise, &b.recomputation, &b.launching,
                        &b.tensorParallel, &b.contextParallel, &b.pipeline, &b.bubble,
                        &b.dataParallel, &b.synchronisation, &b.optimizer})
    *part = Seconds(reader.real());
  return answer;
}

Status checkHeader(const cost::CsvRecord& record, const std::string& name) {
  std::vector<std::string> cells;
  for (const cost::CsvCell& cell : record) cells.push_back(cell.text);
  if (cells == headerCells()) return {};
  return spec::errorAt(name, record[0].mark,
                       "not a sweep of this version of trireme whatif: the header is another; give "
                       "-o another file instead of --resume to begin anew");
}

// Every choice that is not the search's; of all but the number of devices, which is the point's.
std::string textOf(const planner::Pins& pins) {
  std::string text;
  for (const planner::Degree& degree : planner::kDegrees)
    text += fmt::format("{} {} ", number(pins.*degree.pin), number(pins.*degree.most));
  text += fmt::format("{} {}", number(pins.dpShard), number(pins.recomputeLayers));
  const auto add = [&](const auto& pin) {
    text += " " + (pin ? fmt::format("{}", static_cast<int>(*pin)) : std::string());
  };
  add(pins.schedule);
  add(pins.recompute);
  add(pins.stateSharding);
  add(pins.sequenceParallel);
  add(pins.scatterGather);
  add(pins.overlapReductions);
  add(pins.rankOrder);
  for (const int64_t layers : pins.layers) text += fmt::format(" {}", layers);
  return text;
}

// Of every version's header.
constexpr char kBegin[] = "question,gpu,gpus,";

// Two at most, and none of what is no file.
std::vector<std::string> firstLines(const std::string& path) {
  std::error_code code;
  if (path.empty() || !std::filesystem::is_regular_file(path, code)) return {};
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; lines.size() < 2 && std::getline(file, line);) lines.push_back(line);
  return lines;
}

using PointKey = std::tuple<size_t, int64_t, double, int64_t, int64_t, int64_t>;
PointKey keyOf(const SweepPoint& p) {
  return {p.hardware, p.gpus, p.interNode.count(), p.batch, p.sequence, p.minusNodes};
}

}  // namespace

std::vector<std::string> questionsOf(const planner::Sweep& sweep, const std::string& stackText) {
  spec::TrainingSpec training = sweep.base.training;
  training.globalBatchSize = training.sequenceLength = 1;  // the point's
  std::vector<std::string> questions;
  for (const planner::Hardware& hardware : sweep.hardware) {
    training.precision = hardware.precision;
    const Result<std::string> cluster = spec::printCluster(hardware.cluster);
    questions.push_back(fmt::format(
        "{:016x}",
        fnv1a(fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", kVersion, kGitDescription,
                          spec::printModel(sweep.base.model), spec::printTraining(training),
                          stackText, cluster.has_value() ? *cluster : hardware.cluster.name,
                          sweep.base.vocabMultiple, textOf(sweep.base.pins)))));
  }
  return questions;
}

std::string headerRecord() { return cost::printCsvRecord(headerCells()); }

std::string recordsOf(const Answers& answers, const std::vector<std::string>& questions,
                      size_t index) {
  const SweepPoint& p = answers.points[index];
  std::vector<std::string> head = {
      questions[p.hardware],          answers.sweep.hardware[p.hardware].name,
      fmt::format("{}", p.gpus),      number(p.interNode.count()),
      fmt::format("{}", p.batch),     fmt::format("{}", p.sequence),
      fmt::format("{}", p.minusNodes)};
  for (std::string& cell : answerCells(*answers.answers[index])) head.push_back(std::move(cell));
  std::string text;
  for (const planner::AnswerRow& row : rowsOf(answers, index)) {
    std::vector<std::string> cells = head;
    for (std::string& cell : scenarioCells(row)) cells.push_back(std::move(cell));
    text += cost::printCsvRecord(cells);
  }
  return text;
}

std::string toCsv(const Answers& answers, const std::vector<std::string>& questions) {
  std::string text = headerRecord();
  for (size_t i = 0; i < answers.numSwept(); ++i)
    if (answers.answers[i]) text += recordsOf(answers, questions, i);
  return text;
}

bool holdsAnswers(const std::string& path) {
  const std::vector<std::string> lines = firstLines(path);
  return lines.size() > 1 && lines[0].starts_with(kBegin);
}

bool holdsOther(const std::string& path) {
  const std::vector<std::string> lines = firstLines(path);
  if (lines.empty() || lines[0].starts_with(kBegin)) return false;
  return lines.size() > 1 || !std::string_view(kBegin).starts_with(lines[0]);
}

Status readAnswers(const std::string& text, const std::string& name,
                   const std::vector<std::string>& questions, Answers& answers) {
  const size_t end = text.rfind('\n');
  if (end == std::string::npos) {  // not even a header
    if (headerRecord().starts_with(text)) return {};
    return invalidArgument(name +
                           ": not a sweep of trireme whatif; give -o another file instead of "
                           "--resume to begin anew");
  }
  // As long as a sweep writes it.
  TRIREME_ASSIGN_OR_RETURN(const std::vector<cost::CsvRecord> records,
                           cost::parseCsv(text.substr(0, end + 1), name, text.size()));
  TRIREME_RETURN_IF_ERROR(checkHeader(records[0], name));
  std::map<PointKey, size_t> places;
  for (size_t i = 0; i < answers.points.size(); ++i) places.emplace(keyOf(answers.points[i]), i);
  for (size_t r = 1; r < records.size(); ++r) {
    RecordReader reader(records[r], name);
    const std::string& question = reader.text();
    const auto found = std::find(questions.begin(), questions.end(), question);
    if (found == questions.end())
      return spec::errorAt(name, records[r][0].mark,
                           "an answer to another question: model, training, stack, cluster, "
                           "pinned choices or version differ; give -o another file instead of "
                           "--resume to begin anew");
    SweepPoint point;
    point.hardware = static_cast<size_t>(found - questions.begin());
    reader.text();
    point.gpus = reader.whole();
    point.interNode = BytesPerSecond(reader.real());
    point.batch = reader.whole();
    point.sequence = reader.whole();
    point.minusNodes = reader.whole();
    PointAnswer answer = readAnswer(reader, point.gpus);
    TRIREME_RETURN_IF_ERROR(reader.status());
    const double tokens = static_cast<double>(point.batch) * static_cast<double>(point.sequence);
    if (answer.ok() &&
        !(std::abs(answer.step.count() * answer.tokensPerSecond - tokens) <= 1e-6 * tokens))
      return spec::errorAt(
          name, records[r][0].mark,
          fmt::format("step x tokens/s is {:.7g} tokens, batch x sequence {:.7g}: "
                      "the row was changed; delete it, or give -o another file instead of "
                      "--resume to begin anew",
                      answer.step.count() * answer.tokensPerSecond, tokens));
    const auto place = places.find(keyOf(point));
    if (place == places.end())
      return spec::errorAt(
          name, records[r][0].mark,
          fmt::format("{} GPUs with batch {} are not among the points that are asked for: widen "
                      "the flags, or give -o another file instead of --resume to begin anew",
                      point.gpus, point.batch));
    answers.answers[place->second] = std::move(answer);
  }
  return {};
}

}  // namespace trireme::cli
