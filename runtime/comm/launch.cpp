#include "runtime/comm/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

namespace trireme::runtime {
namespace {

constexpr int32_t kDefaultPort = 29500;  // torchrun's
constexpr int32_t kMaxProcesses = 1 << 20;
constexpr const char* kStepTasks = "SLURM_STEP_NUM_TASKS";
constexpr const char* kAgentStore = "TORCHELASTIC_USE_AGENT_STORE";  // torchrun listens itself

// The variables of one launcher. `step`: set only where it is that launcher's doing.
struct Variables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* onMachine;
  const char* step;
};
constexpr Variables kVariables[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", nullptr},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     nullptr},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", nullptr},
    // A batch script has the variables of its job as well; only a step has a number.
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_ID"}};

Result<int32_t> parse(const std::string& name, const std::string& text, int32_t least,
                      int32_t most) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return Error(invalidArgument(
        fmt::format("{} is '{}', not a number from {} to {}", name, text, least, most)));
  return value;
}

Result<int32_t> read(const Environment& environment, const char* name, int32_t least,
                     int32_t most) {
  const std::optional<std::string> text = environment(name);
  if (!text) return Error(invalidArgument(fmt::format("{} is not set", name)));
  return parse(name, *text, least, most);
}

bool isThere(const Environment& environment, const Variables& names) {
  return environment(names.rank).has_value() && environment(names.size).has_value() &&
         (names.step == nullptr || environment(names.step).has_value());
}

// One of a pair that a launcher sets together: taken for nobody, all processes would train alone.
// Slurm's are left out, which a batch script and an interactive shell have in part.
Status checkPairs(const Environment& environment) {
  for (const Variables& names : kVariables) {
    if (names.step != nullptr) continue;
    const auto rank = environment(names.rank), size = environment(names.size);
    const bool isAlone = rank.has_value() != size.has_value();
    if (!isAlone || (rank ? rank->empty() : size->empty() || *size == "1")) continue;
    const char* const there = rank ? names.rank : names.size;
    const char* const missing = rank ? names.size : names.rank;
    return invalidArgument(fmt::format(
        "{} is set and {} is not, and {} sets both: set {}, or unset {} to train in one process",
        there, missing, names.launcher, missing, there));
  }
  return {};
}

// All processes are on this machine, as far as the launcher says so.
bool allAreHere(const Environment& environment, const Launch& launch) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS"})
    if (const auto text = environment(name); text && *text == std::to_string(launch.numProcesses))
      return true;
  return environment("SLURM_STEP_NUM_NODES") == "1";
}

Status findHost(const Environment& environment, Launch& launch) {
  if (const auto host = environment("MASTER_ADDR"); host && !host->empty()) {
    launch.host = *host;
    return {};
  }
  if (launch.launcher == "srun")
    for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
      if (const auto list = environment(name); list && !firstHost(*list).empty()) {
        launch.host = firstHost(*list);
        return {};
      }
  if (allAreHere(environment, launch)) {
    launch.host = "127.0.0.1";
    return {};
  }
  return invalidArgument(
      "MASTER_ADDR is not set: the processes of several machines have to know where rank 0 is; "
      "give it to all of them (mpirun: -x MASTER_ADDR -x MASTER_PORT), or --rendezvous HOST:PORT");
}

Status findPort(const Environment& environment, Launch& launch) {
  launch.port = kDefaultPort;
  if (environment("MASTER_PORT")) {
    TRIREME_ASSIGN_OR_RETURN(launch.port, read(environment, "MASTER_PORT", 1, 65535));
    const bool isTaken = environment(kAgentStore) == "True";
    if (isTaken && launch.port < 65535) ++launch.port;
    return {};
  }
  if (launch.launcher != "srun") return {};
  constexpr int32_t kFirst = 20000, kPorts = 10000;  // below those that systems hand out
  int64_t number = 0;
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID"})
    if (const auto text = environment(name)) number += std::atoll(text->c_str());
  launch.port = kFirst + static_cast<int32_t>((number % kPorts + kPorts) % kPorts);
  return {};
}

}  // namespace

Environment processEnvironment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

Result<std::optional<Launch>> detectLaunch(const Environment& environment) {
  for (const Variables& names : kVariables) {
    if (!isThere(environment, names)) continue;
    Launch launch;
    launch.launcher = names.launcher;
    // Of a step that has other tasks than its job.
    const bool isStep = names.step != nullptr && environment(kStepTasks).has_value();
    TRIREME_ASSIGN_OR_RETURN(launch.numProcesses,
                             read(environment, isStep ? kStepTasks : names.size, 1, kMaxProcesses));
    if (launch.numProcesses == 1) return std::nullopt;
    TRIREME_ASSIGN_OR_RETURN(launch.rank,
                             read(environment, names.rank, 0, launch.numProcesses - 1));
    if (environment(names.onMachine)) {
      TRIREME_ASSIGN_OR_RETURN(launch.rankOnMachine,
                               read(environment, names.onMachine, 0, kMaxProcesses));
    }
    TRIREME_RETURN_IF_ERROR(findPort(environment, launch));
    if (Status status = findHost(environment, launch); !status.ok()) return Error(status);
    return launch;
  }
  TRIREME_RETURN_IF_ERROR(checkPairs(environment));
  return std::nullopt;
}

bool hasLauncher(const Environment& environment) {
  return std::any_of(std::begin(kVariables), std::end(kVariables),
                     [&](const Variables& names) { return isThere(environment, names); });
}

Result<Environment> withRendezvous(Environment environment, const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    return Error(invalidArgument(fmt::format("'{}' is not HOST:PORT", text)));
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const std::string port = text.substr(colon + 1);
  if (const auto number = parse("the port", port, 1, 65535); !number.has_value())
    return Error(number.error());
  return [environment = std::move(environment), host,
          port](const char* name) -> std::optional<std::string> {
    const std::string_view asked = name;
    if (asked == "MASTER_ADDR") return host;
    if (asked == "MASTER_PORT") return port;
    if (asked == kAgentStore) return std::nullopt;
    return environment(name);
  };
}

std::string firstHost(const std::string& list) {
  const size_t end = list.find_first_of(",[");
  if (end == std::string::npos || list[end] == ',') return list.substr(0, end);
  const size_t close = list.find_first_of(",-]", end + 1);
  if (close == std::string::npos) return "";
  std::string host = list.substr(0, end) + list.substr(end + 1, close - end - 1);
  if (const size_t bracket = list.find(']', close); bracket != std::string::npos)
    host += list.substr(bracket + 1, list.find(',', bracket) - bracket - 1);
  return host;
}

}  // namespace trireme::runtime
