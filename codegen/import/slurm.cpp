#include "codegen/import/slurm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "codegen/import/shell_expansion.h"
#include "ir/spec/quantity.h"
#include "ir/spec/yaml_node.h"

namespace trireme::codegen {
namespace {

constexpr int64_t kMost = 1 << 20;

struct Option {
  std::string_view name;
  std::optional<SlurmNumber> SlurmNumbers::* number;
};

constexpr std::array<Option, 11> kOptions = {{{"--nodes", &SlurmNumbers::nodes},
                                              {"-N", &SlurmNumbers::nodes},
                                              {"--ntasks", &SlurmNumbers::tasks},
                                              {"-n", &SlurmNumbers::tasks},
                                              {"--ntasks-per-node", &SlurmNumbers::tasksPerNode},
                                              {"--tasks-per-node", &SlurmNumbers::tasksPerNode},
                                              {"--gpus", &SlurmNumbers::gpus},
                                              {"-G", &SlurmNumbers::gpus},
                                              {"--gpus-per-node", &SlurmNumbers::gpusPerNode},
                                              {"--gres", &SlurmNumbers::gpusPerNode},
                                              {"--gpus-per-task", &SlurmNumbers::gpusPerTask}}};

// "8", "h100:8", "gpu:h100:8(S:0-1),nvme:1" and, of --gres, "gpu", which is one. Absent: no number.
std::optional<int64_t> numberOf(std::string value, bool isGres) {
  if (isGres) {
    std::string gpus;
    for (std::istringstream items(value); std::getline(items, value, ',');)
      if (value.starts_with("gpu")) gpus = value;
    if (gpus.empty()) return 0;
    value = gpus.substr(0, gpus.find('('));
    if (value.find(':') == std::string::npos) return 1;
  }
  value.erase(0, value.rfind(':') + 1);
  if (isGres && value.find_first_of("0123456789") != 0) return 1;  // gpu:h100
  const Result<int64_t> parsed = spec::parseCount(value, 1);
  if (!parsed.has_value() || *parsed > kMost) return std::nullopt;
  return *parsed;
}

// The option that word `i` is, its value, and past which word it ends.
struct Found {
  const Option* option = nullptr;
  std::string value;
};
Found optionAt(const std::vector<std::string>& words, size_t& i) {
  const std::string& word = words[i++];
  for (const Option& option : kOptions) {
    if (!word.starts_with(option.name)) continue;
    const std::string rest = word.substr(option.name.size());
    const bool isShort = option.name.size() == 2;
    if (rest.empty() && i < words.size()) return {&option, words[i++]};
    if (!rest.empty() && rest[0] == '=') return {&option, rest.substr(1)};
    if (isShort && !rest.empty()) return {&option, rest};
  }
  return {};
}

// Of one #SBATCH line, or of srun.
Result<SlurmNumbers> numbersOf(const std::vector<std::string>& words, const std::string& place) {
  SlurmNumbers numbers;
  for (size_t i = 0; i < words.size();) {
    const Found found = optionAt(words, i);
    if (!found.option || hasOpenPart(found.value)) continue;
    const std::optional<int64_t> value = numberOf(found.value, found.option->name == "--gres");
    if (!value)
      return Error(
          invalidArgument(fmt::format("{}: {} is {}; expected a whole number", place,
                                      found.option->name, spec::quoteForMessage(found.value))));
    if (*value > 0)
      numbers.*found.option->number =
          SlurmNumber{*value, fmt::format("{} {}", found.option->name, found.value)};
  }
  return numbers;
}

struct Way {
  int64_t devices;
  std::string written;
};

void addWay(std::vector<Way>& ways, const std::vector<const std::optional<SlurmNumber>*>& factors) {
  Way way{1, ""};
  for (const std::optional<SlurmNumber>* factor : factors) {
    if (!*factor) return;
    if (__builtin_mul_overflow(way.devices, (*factor)->value, &way.devices)) return;
    way.written += (way.written.empty() ? "" : " x ") + (*factor)->written;
  }
  ways.push_back(std::move(way));
}

}  // namespace

Result<SlurmNumbers> readSbatch(const std::string& text, const std::string& file) {
  SlurmNumbers numbers;
  std::istringstream lines(text);
  int number = 0;
  bool isFirst = true;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.starts_with("#SBATCH")) continue;
    std::vector<std::string> words;
    std::istringstream stream(line.substr(7));
    for (std::string word; stream >> word && word[0] != '#';) {
      std::erase_if(word, [](char c) { return c == '"' || c == '\''; });
      words.push_back(word);
    }
    if (std::exchange(isFirst, false)) numbers.line = number;
    const std::string place = fmt::format("{}:{}", file, number);
    TRIREME_ASSIGN_OR_RETURN(const SlurmNumbers here, numbersOf(words, place));
    for (const Option& option : kOptions) {
      const auto &old = numbers.*option.number, &now = here.*option.number;
      if (old && now && old->value != now->value)
        return Error(invalidArgument(
            fmt::format("{}: {}, but {} above: leave one out", place, now->written, old->written)));
      if (now) numbers.*option.number = now;
    }
  }
  return numbers;
}

Status readSrun(const std::vector<std::string>& words, const std::string& place,
                SlurmNumbers& numbers) {
  TRIREME_ASSIGN_OR_RETURN(const SlurmNumbers here, numbersOf(words, place));
  for (const Option& option : kOptions)
    if (here.*option.number) numbers.*option.number = here.*option.number;
  return {};
}

Result<int64_t> slurmDevices(const SlurmNumbers& n, bool isRank, const std::string& file) {
  std::vector<Way> ways;
  addWay(ways, {&n.nodes, &n.gpusPerNode});
  addWay(ways, {&n.gpus});
  addWay(ways, {&n.tasks, &n.gpusPerTask});
  addWay(ways, {&n.nodes, &n.tasksPerNode, &n.gpusPerTask});
  if (ways.empty() && isRank) {
    addWay(ways, {&n.tasks});
    addWay(ways, {&n.nodes, &n.tasksPerNode});
  }
  for (const Way& way : ways)
    if (way.devices != ways[0].devices)
      return Error(
          invalidArgument(fmt::format("{}:{}: {} is {} devices, but {} is {}", file, n.line,
                                      ways[0].written, ways[0].devices, way.written, way.devices)));
  return ways.empty() ? 0 : std::min<int64_t>(ways[0].devices, int64_t{1} << 30);
}

int64_t slurmDevicesPerNode(const SlurmNumbers& n, bool isRank) {
  if (n.gpusPerNode) return n.gpusPerNode->value;
  if (n.tasksPerNode && n.gpusPerTask) return n.tasksPerNode->value * n.gpusPerTask->value;
  if (n.nodes) {
    const Result<int64_t> all = slurmDevices(n, isRank, "");
    if (all.has_value() && *all % n.nodes->value == 0) return *all / n.nodes->value;
  }
  return isRank && n.tasksPerNode ? n.tasksPerNode->value : 0;
}

std::map<std::string, int64_t> slurmVariables(const SlurmNumbers& n) {
  std::map<std::string, int64_t> variables;
  const auto set = [&](const std::optional<SlurmNumber>& number,
                       std::initializer_list<const char*> names) {
    if (number)
      for (const char* name : names) variables[name] = number->value;
  };
  set(n.nodes, {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
  set(n.tasks, {"SLURM_NTASKS", "SLURM_NPROCS"});
  set(n.tasksPerNode, {"SLURM_NTASKS_PER_NODE"});
  set(n.gpus, {"SLURM_GPUS"});
  set(n.gpusPerNode, {"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"});
  set(n.gpusPerTask, {"SLURM_GPUS_PER_TASK"});
  return variables;
}

}  // namespace trireme::codegen
