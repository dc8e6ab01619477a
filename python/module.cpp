// The planner for Python: a dictionary of options in, JSON out. The package trireme gives it types
// and raises what failed.
#include <fmt/format.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "codegen/import/import.h"
#include "ir/base/version.h"
#include "ir/spec/document.h"
#include "ir/spec/load.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/quantity.h"
#include "ir/spec/shipped.h"
#include "planner/answer/check.h"
#include "planner/answer/recommend.h"
#include "planner/answer/report.h"
#include "planner/plan_text.h"
#include "planner/search/relax.h"
#include "planner/supported.h"
#include "planner/whatif/ask.h"
#include "planner/whatif/refine.h"
#include "planner/whatif/values.h"

namespace py = pybind11;

namespace trireme::python {
namespace {

using Json = nlohmann::json;
using Stop = std::atomic<bool>;

struct Stopped {};

// What a call gives: JSON, with an error also where that has something to say.
struct Answer {
  Status status;
  Json json;
  std::vector<std::string> notes;
};

// (name of the code, message, JSON, notes)
py::tuple toTuple(const Answer& answer) {
  return py::make_tuple(std::string(statusCodeName(answer.status.code())), answer.status.message(),
                        answer.json.dump(), answer.notes);
}

Answer toAnswer(Result<Answer> answer) {
  return answer.has_value() ? *std::move(answer) : Answer{answer.error(), {}, {}};
}

// Runs `work` on a thread of its own, without the lock of the interpreter, while this one listens
// for Ctrl-C. What `work` calls with progress throws Stopped once it is asked to stop.
template <typename Work>
py::tuple run(const Work& work) {
  Stop stop = false;
  std::optional<Answer> answer;
  {
    py::gil_scoped_release released;
    std::future<std::optional<Answer>> future =
        std::async(std::launch::async, [&]() -> std::optional<Answer> {
          try {
            return toAnswer(work(stop));
          } catch (const Stopped&) {
            return std::nullopt;
          }
        });
    while (future.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      py::gil_scoped_acquire acquired;
      if (PyErr_CheckSignals() == 0) continue;
      py::error_already_set interrupt;
      stop = true;
      {
        py::gil_scoped_release again;
        future.wait();
      }
      throw interrupt;
    }
    answer = future.get();
  }
  return toTuple(*answer);
}

planner::SearchProgress stopper(const Stop& stop) {
  return [&stop](const planner::SearchState&) {
    if (stop) throw Stopped{};
  };
}

// Options by name; absent and None are the default.
class Options {
 public:
  explicit Options(const py::dict& dict) : dict_(dict) {}

  template <typename T>
  std::optional<T> get(const char* name) const {
    if (!dict_.contains(name) || dict_[name].is_none()) return std::nullopt;
    return cast<T>(name, dict_[name]);
  }
  std::string text(const char* name) const { return get<std::string>(name).value_or(""); }

  // One of the values 0, 1, ... of an enum.
  template <typename Enum>
  Status choice(const char* name, std::string_view (*nameOf)(Enum), Enum last,
                std::optional<Enum>& out) const {
    const std::optional<std::string> given = get<std::string>(name);
    if (!given) return {};
    std::vector<std::string> names;
    for (int value = 0; value <= static_cast<int>(last); ++value) {
      names.emplace_back(nameOf(static_cast<Enum>(value)));
      if (names.back() == *given) out = static_cast<Enum>(value);
    }
    if (out) return {};
    return invalidArgument(
        fmt::format("{}: unknown value '{}'{}", name, *given, spec::suggestion(*given, names)));
  }
  // A whole number of at least 1.
  Status count(const char* name, std::optional<int64_t>& out) const {
    if (!dict_.contains(name) || dict_[name].is_none()) return {};
    TRIREME_ASSIGN_OR_RETURN(out, whole(name, dict_[name], 1));
    return {};
  }
  // Whole numbers of at least 0, one or more; none: not given.
  Status counts(const char* name, std::vector<int64_t>& out) const {
    const auto given = get<std::vector<py::object>>(name);
    if (!given) return {};
    if (given->empty())
      return invalidArgument(
          fmt::format("{}: is empty; leave it out, or give a number for every "
                      "stage",
                      name));
    for (const py::object& value : *given) {
      TRIREME_ASSIGN_OR_RETURN(out.emplace_back(), whole(name, value, 0));
    }
    return {};
  }
  // The name or path of a file that there has to be.
  Status file(const char* name, std::string& out) const {
    out = text(name);
    if (!out.empty()) return {};
    return invalidArgument(fmt::format("{}: is missing: give a name or a path", name));
  }

 private:
  template <typename T>
  static T cast(const char* name, const py::object& value) {
    try {
      return value.cast<T>();
    } catch (const py::cast_error&) {
      throw py::type_error(fmt::format("{}: unexpected {} of {}", name,
                                       std::string(py::repr(value)),
                                       std::string(py::str(py::type::of(value)))));
    }
  }
  static Result<int64_t> whole(const char* name, const py::object& value, int64_t least) {
    // Python's have no end.
    if (py::isinstance<py::int_>(value)) {
      int overflow = 0;
      PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
      if (overflow != 0)
        return Error(invalidArgument(fmt::format("{}: must be {} to {}, got {}", name, least,
                                                 std::numeric_limits<int64_t>::max(),
                                                 std::string(py::str(value)))));
    }
    const auto number = cast<int64_t>(name, value);
    if (number >= least) return number;
    return Error(
        invalidArgument(fmt::format("{}: must be at least {}, got {}", name, least, number)));
  }

  py::dict dict_;
};

Result<planner::Question> questionOf(const Options& options) {
  planner::Question q;
  TRIREME_RETURN_IF_ERROR(options.file("model", q.model));
  q.cluster = options.text("cluster");
  q.training = options.text("train");
  q.stack = options.text("stack");
  TRIREME_RETURN_IF_ERROR(options.count("vocab_multiple", q.vocabMultiple));
  TRIREME_RETURN_IF_ERROR(
      options.choice("precision", spec::precisionName, spec::Precision::kFp8, q.precision));
  return q;
}

// But for the number of devices.
Result<planner::Pins> pinsOf(const Options& options) {
  planner::Pins pins;
  for (const planner::Degree& degree : planner::kDegrees) {
    std::string name = degree.name;
    std::replace(name.begin(), name.end(), ' ', '_');
    TRIREME_RETURN_IF_ERROR(options.count(name.c_str(), pins.*degree.pin));
    TRIREME_RETURN_IF_ERROR(options.count(("max_" + name).c_str(), pins.*degree.most));
  }
  TRIREME_RETURN_IF_ERROR(options.count("dp_shard", pins.dpShard));
  TRIREME_RETURN_IF_ERROR(options.count("recompute_layers", pins.recomputeLayers));
  TRIREME_RETURN_IF_ERROR(options.choice("schedule", plan::scheduleName,
                                         plan::ScheduleKind::kZeroBubbleH2, pins.schedule));
  TRIREME_RETURN_IF_ERROR(
      options.choice("recompute", plan::recomputeName, plan::Recompute::kFull, pins.recompute));
  TRIREME_RETURN_IF_ERROR(options.choice("state_sharding", plan::stateShardingName,
                                         plan::StateSharding::kParameters, pins.stateSharding));
  pins.sequenceParallel = options.get<bool>("sequence_parallel");
  pins.scatterGather = options.get<bool>("scatter_gather");
  pins.overlapReductions = options.get<bool>("overlap_reductions");
  TRIREME_RETURN_IF_ERROR(options.choice("rank_order", plan::rankOrderName,
                                         plan::RankOrder::kTpCpPpDp, pins.rankOrder));
  TRIREME_RETURN_IF_ERROR(options.counts("layers", pins.layers));
  return pins;
}

struct PlanRequest {
  planner::Question question;
  planner::Pins pins;
  std::optional<std::string> headroom;
  int64_t top = planner::Query{}.topK;
  bool explains = false;
};

Result<PlanRequest> planRequestOf(const Options& options) {
  PlanRequest request;
  TRIREME_ASSIGN_OR_RETURN(request.question, questionOf(options));
  TRIREME_RETURN_IF_ERROR(options.file("cluster", request.question.cluster));
  TRIREME_RETURN_IF_ERROR(options.count("batch", request.question.batch));
  TRIREME_RETURN_IF_ERROR(options.count("seq", request.question.sequence));
  TRIREME_ASSIGN_OR_RETURN(request.pins, pinsOf(options));
  TRIREME_RETURN_IF_ERROR(options.count("gpus", request.pins.gpus));
  std::optional<int64_t> top;
  TRIREME_RETURN_IF_ERROR(options.count("top", top));
  request.top = std::min<int64_t>(top.value_or(request.top), 1 << 30);
  request.headroom = options.get<std::string>("headroom");
  request.explains = options.get<bool>("explain").value_or(false);
  return request;
}

Result<Answer> answerPlan(const PlanRequest& request, const Stop& stop) {
  TRIREME_ASSIGN_OR_RETURN(planner::Query query, planner::makeQuery(request.question));
  query.pins = request.pins;
  query.topK = static_cast<int32_t>(request.top);
  TRIREME_RETURN_IF_ERROR(
      planner::growCluster(query.pins.gpus, request.question.cluster, query.cluster));
  if (request.headroom)
    TRIREME_RETURN_IF_ERROR(planner::keepFree(*request.headroom, query.cluster.device));
  Answer answer;
  TRIREME_ASSIGN_OR_RETURN(answer.notes, planner::notesOf(request.question, query.training));
  for (std::string& caveat : planner::caveatsOf(query.stack, query.cluster.device))
    answer.notes.push_back(std::move(caveat));
  Result<planner::PlanResult> found =
      planner::searchPlan(query, planner::modelCosts(query), stopper(stop));
  if (!found.has_value()) {
    if (found.error().code() != StatusCode::kInfeasible) return Error(found.error());
    TRIREME_ASSIGN_OR_RETURN(const std::vector<spec::StackProfile> stacks,
                             planner::shippedStacks());
    TRIREME_ASSIGN_OR_RETURN(const planner::Shortfall shortfall,
                             planner::shortfallOf(query, found.error(), stacks, stopper(stop)));
    answer.status = planner::toStatus(shortfall);
    answer.json = planner::toJson(shortfall);
    return answer;
  }
  const auto shown = [&stop](double, const std::string&) {
    if (stop) throw Stopped{};
  };
  TRIREME_ASSIGN_OR_RETURN(
      const planner::Recommendation recommendation,
      planner::recommend(query, *std::move(found),
                         {.looksAround = request.explains, .playsRunnersUp = true}, shown));
  answer.json = planner::toJson(recommendation, request.explains);
  return answer;
}

py::tuple plan(const py::dict& dict) {
  Result<PlanRequest> request = planRequestOf(Options(dict));
  if (!request.has_value()) return toTuple({request.error(), {}, {}});
  return run([&](const Stop& stop) { return answerPlan(*request, stop); });
}

// A plan that somebody wrote: its text, or the file that has it.
struct CheckRequest {
  std::string model, cluster, stack, file;
  std::optional<std::string> text;
  codegen::LaunchOptions launch;
  bool searches = false;  // for the optimum
};

Json priceJson(const plan::Plan& plan, const cost::Estimate& estimate,
               const std::vector<cost::MemoryUse>& stages) {
  return {{"plan", plan::printPlan(plan)},
          {"summary", planner::summary(plan)},
          {"estimate", planner::toJson(estimate)},
          {"stageBytes", planner::stagesJson(stages)},
          {"fits", estimate.fits()},
          {"missingBytes", estimate.missing().count()}};
}

// What the plan is held against: plans that its program can run.
Status restrict(codegen::Framework framework, const plan::Plan& plan, planner::Query& query) {
  TRIREME_ASSIGN_OR_RETURN(
      query.stack,
      codegen::restrictedTo(query.stack, framework, planner::onHostsOf(query.cluster, plan)));
  return {};
}

Result<Answer> answerCheck(const CheckRequest& request, const Stop& stop) {
  TRIREME_ASSIGN_OR_RETURN(const spec::ModelSpec model, spec::loadModel(request.model));
  TRIREME_ASSIGN_OR_RETURN(const spec::ClusterSpec cluster, spec::loadCluster(request.cluster));
  std::string text = request.text.value_or("");
  if (!request.text) {
    TRIREME_ASSIGN_OR_RETURN(text, spec::readFile(request.file));
  }
  Answer answer;
  TRIREME_ASSIGN_OR_RETURN(const codegen::Imported imported,
                           codegen::readPlan(text, request.file, model, request.launch));
  const plan::Plan plan = planner::asLaunched(imported.plan, imported.ranksPerHost, cluster);
  answer.notes = notesOf(imported, request.file);
  TRIREME_ASSIGN_OR_RETURN(planner::Query query, planner::pricingQuery(plan, request.file, model,
                                                                       cluster, request.stack));
  if (std::string note = codegen::setWidths(imported, request.file, query.stack); !note.empty())
    answer.notes.push_back(std::move(note));
  const spec::StackProfile full = query.stack;
  if (std::string note = planner::overlapNote(
          plan, request.file, codegen::setOverlap(imported, query.stack), query, full);
      !note.empty())
    answer.notes.push_back(std::move(note));
  if (std::string note = planner::otherStackNote(plan, request.file, query.stack); !note.empty())
    answer.notes.push_back(std::move(note));
  if (std::string note =
          planner::otherHostsNote(plan, request.file, imported.ranksPerHost, query.cluster);
      !note.empty())
    answer.notes.push_back(std::move(note));
  for (std::string& caveat : planner::caveatsOf(query.stack, query.cluster.device))
    answer.notes.push_back(std::move(caveat));
  if (request.searches) {
    if (imported.framework) TRIREME_RETURN_IF_ERROR(restrict(*imported.framework, plan, query));
    const Result<planner::PlanCheck> check = planner::checkPlan(plan, query, stopper(stop));
    if (!check.has_value()) return Error(check.error().withContext(request.file));
    answer.json = planner::toJson(*check);
    return answer;
  }
  if (Status status = planner::checkSupported(plan, query.model, query.stack); !status.ok())
    return Error(status.withContext(request.file));
  TRIREME_ASSIGN_OR_RETURN(const cost::Estimate estimate,
                           cost::estimate(model, plan, query.cluster, query.stack));
  TRIREME_ASSIGN_OR_RETURN(const std::vector<cost::MemoryUse> stages,
                           cost::memoryByStage(model, plan, query.cluster, query.stack));
  answer.json = priceJson(plan, estimate, stages);
  return answer;
}

Result<CheckRequest> checkRequestOf(const Options& options) {
  CheckRequest request;
  TRIREME_RETURN_IF_ERROR(options.file("model", request.model));
  TRIREME_RETURN_IF_ERROR(options.file("cluster", request.cluster));
  request.stack = options.text("stack");
  request.file = options.text("file");
  if (request.file.empty())
    return Error(invalidArgument("plan: is missing: give a plan, or the path of a file"));
  request.text = options.get<std::string>("text");
  request.searches = options.get<bool>("optimum").value_or(false);
  codegen::LaunchOptions& launch = request.launch;
  for (const auto& [name, out] :
       {std::pair{"gpus", &launch.gpus}, std::pair{"tp", &launch.tp},
        std::pair{"seq", &launch.sequence}, std::pair{"batch", &launch.batch},
        std::pair{"microbatch", &launch.microbatch}})
    TRIREME_RETURN_IF_ERROR(options.count(name, *out));
  TRIREME_RETURN_IF_ERROR(
      options.choice("recompute", plan::recomputeName, plan::Recompute::kFull, launch.recompute));
  return request;
}

py::tuple check(const py::dict& dict) {
  Result<CheckRequest> request = checkRequestOf(Options(dict));
  if (!request.has_value()) return toTuple({request.error(), {}, {}});
  return run([&](const Stop& stop) { return answerCheck(*request, stop); });
}

// Reads the option's text, if there is one.
template <typename T, typename Parse>
Status parse(const Options& options, const char* name, T& out, const Parse& parseText) {
  const std::optional<std::string> text = options.get<std::string>(name);
  if (!text) return {};
  auto values = parseText(*text);
  if (!values.has_value()) return values.error().withContext(name);
  out = *std::move(values);
  return {};
}

auto wholeParser(int64_t least, bool byOnes) {
  return [=](const std::string& text) { return planner::parseWhole(text, least, byOnes); };
}
auto unitsParser(const planner::UnitKind& kind, bool* isRange = nullptr) {
  return [&kind, isRange](const std::string& text) {
    return planner::parseUnits(text, kind, isRange);
  };
}

Status readAxes(const Options& options, planner::SweepAxes& axes) {
  TRIREME_RETURN_IF_ERROR(parse(options, "gpus", axes.gpus, wholeParser(1, false)));
  TRIREME_RETURN_IF_ERROR(parse(options, "batch", axes.batch, wholeParser(1, false)));
  TRIREME_RETURN_IF_ERROR(parse(options, "seq", axes.sequence, wholeParser(1, false)));
  TRIREME_RETURN_IF_ERROR(parse(options, "minus_nodes", axes.minusNodes, wholeParser(0, true)));
  std::vector<double> rates;
  TRIREME_RETURN_IF_ERROR(parse(options, "inter_node", rates, unitsParser(planner::rateUnits())));
  for (const double rate : rates) axes.interNode.emplace_back(rate);
  return {};
}

Status readScenarios(const Options& options, planner::ScenarioAxes& s) {
  const auto& durations = planner::durationUnits();
  const auto one = [](const planner::UnitKind& kind) {
    return [&kind](const std::string& text) { return planner::parseUnit(text, kind); };
  };
  TRIREME_RETURN_IF_ERROR(parse(options, "tokens", s.tokens, unitsParser(planner::tokenUnits())));
  TRIREME_RETURN_IF_ERROR(
      parse(options, "price", s.price, unitsParser(planner::priceUnits(), &s.priceIsRange)));
  TRIREME_RETURN_IF_ERROR(
      parse(options, "power", s.power, unitsParser(planner::powerUnits(), &s.powerIsRange)));
  TRIREME_RETURN_IF_ERROR(parse(options, "deadline", s.deadlines, unitsParser(durations)));
  TRIREME_RETURN_IF_ERROR(parse(options, "budget", s.budgets, unitsParser(planner::moneyUnits())));
  TRIREME_RETURN_IF_ERROR(parse(options, "mtbf", s.mtbf, unitsParser(durations)));
  TRIREME_RETURN_IF_ERROR(
      parse(options, "checkpoint_bandwidth", s.checkpointBandwidth, one(planner::rateUnits())));
  TRIREME_RETURN_IF_ERROR(parse(options, "restart", s.restart, one(planner::pauseUnits())));
  TRIREME_RETURN_IF_ERROR(parse(options, "repair", s.repair, one(durations)));
  TRIREME_RETURN_IF_ERROR(parse(options, "spares", s.spares,
                                [](const std::string& text) { return spec::parseCount(text, 0); }));
  return planner::checkScenarios(s);
}

Result<planner::SweepQuestion> sweepOf(const Options& options) {
  planner::SweepQuestion asked;
  TRIREME_ASSIGN_OR_RETURN(asked.question, questionOf(options));
  TRIREME_RETURN_IF_ERROR(parse(options, "gpu", asked.gpus, planner::parseNames));
  TRIREME_ASSIGN_OR_RETURN(asked.pins, pinsOf(options));
  TRIREME_RETURN_IF_ERROR(readAxes(options, asked.axes));
  TRIREME_RETURN_IF_ERROR(readScenarios(options, asked.scenarios));
  return asked;
}

Result<Answer> answerSweep(const planner::SweepQuestion& asked, int numThreads, const Stop& stop) {
  TRIREME_ASSIGN_OR_RETURN(planner::Answers answers, planner::makeAnswers(asked));
  Answer answer;
  TRIREME_ASSIGN_OR_RETURN(answer.notes,
                           planner::notesOf(asked.question, answers.sweep.base.training));
  for (std::string& caveat : planner::caveatsOf(answers.sweep))
    answer.notes.push_back(std::move(caveat));
  planner::answerPoints(answers.sweep, answers.points, numThreads,
                        [&](size_t i, const planner::PointAnswer& point) {
                          answers.answers[i] = point;
                          return !stop;
                        });
  if (stop) throw Stopped{};
  TRIREME_RETURN_IF_ERROR(planner::checkAnswered(answers, planner::shippedStacks, stopper(stop)));
  planner::refineAnswers(answers, [&] { return !stop; });
  if (stop) throw Stopped{};
  answer.json = planner::toJson(answers);
  return answer;
}

py::tuple whatif(const py::dict& dict) {
  const Options options(dict);
  Result<planner::SweepQuestion> asked = sweepOf(options);
  if (!asked.has_value()) return toTuple({asked.error(), {}, {}});
  std::optional<int64_t> threads;
  if (const Status status = options.count("threads", threads); !status.ok())
    return toTuple({status, {}, {}});
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int numThreads = static_cast<int>(std::min<int64_t>(threads.value_or(cores), 256));
  return run([&](const Stop& stop) { return answerSweep(*asked, numThreads, stop); });
}

Json planJson(const plan::Plan& p) {
  Json layers = Json::array();
  for (const auto& stage : p.layers) {
    Json& counts = layers.emplace_back(Json::array());
    for (const plan::LayerRange& range : stage) counts.push_back(range.count);
  }
  return {{"text", plan::printPlan(p)},
          {"summary", planner::summary(p)},
          {"model", p.model},
          {"stack", p.stack},
          {"tp", p.tp},
          {"pp", p.pp},
          {"cp", p.cp},
          {"dp", p.dp()},
          {"dpReplicate", p.dpReplicate},
          {"dpShard", p.dpShard},
          {"virtualStages", p.virtualStages},
          {"microbatch", p.microbatchSize},
          {"schedule", plan::scheduleName(p.schedule)},
          {"recompute", plan::recomputeName(p.recompute)},
          {"recomputeLayers", p.recomputeLayers},
          {"stateSharding", plan::stateShardingName(p.stateSharding)},
          {"sequenceParallel", p.sequenceParallel},
          {"scatterGather", p.scatterGather},
          {"overlapReductions", p.overlapReductions},
          {"rankOrder", plan::rankOrderName(p.rankOrder)},
          {"vocabMultiple", p.vocabMultiple},
          {"layers", std::move(layers)},
          {"gpus", p.numRanks()},
          {"batch", p.training.globalBatchSize},
          {"seq", p.training.sequenceLength},
          {"precision", spec::precisionName(p.training.precision)}};
}

py::tuple describePlan(const std::string& text, const std::string& name) {
  const Result<plan::Plan> parsed = plan::parsePlan(text, name);
  if (!parsed.has_value()) return toTuple({parsed.error(), {}, {}});
  return toTuple({{}, planJson(*parsed), {}});
}

std::vector<std::string> shipped(const std::string& kind) {
  if (kind == "model") return spec::shippedNames(spec::ShippedKind::kModel);
  if (kind == "cluster") return spec::shippedNames(spec::ShippedKind::kCluster);
  return spec::shippedNames(spec::ShippedKind::kStack);
}

}  // namespace
}  // namespace trireme::python

PYBIND11_MODULE(_core, m) {
  using namespace trireme::python;
  m.attr("version") = std::string(trireme::kVersion);
  m.def("plan", &plan, py::arg("options"));
  m.def("check", &check, py::arg("options"));
  m.def("whatif", &whatif, py::arg("options"));
  m.def("describe_plan", &describePlan, py::arg("text"), py::arg("name"));
  m.def("shipped", &shipped, py::arg("kind"));
}
