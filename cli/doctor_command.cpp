// trireme doctor: what this machine has, and what each missing piece prevents.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/doctor/examine.h"
#include "cli/flags.h"
#include "cli/output/json_text.h"
#include "cli/output/wrap.h"

namespace trireme::cli {
namespace {

void print(const std::vector<Finding>& findings, bool json) {
  if (json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Finding& f : findings)
      list.push_back({{"subject", f.subject},
                      {"health", healthName(f.health)},
                      {"found", f.found},
                      {"prevents", f.prevents}});
    fmt::print("{}\n", jsonText(nlohmann::json{{"findings", list}}));
    return;
  }
  for (const Finding& f : findings) {
    fmt::print("{}", wrapLine(fmt::format("{:<14}{}", f.subject, f.found), 14));
    if (!f.prevents.empty())
      fmt::print("{}", wrapLine(fmt::format("{:<14}-> {}", "", f.prevents), 17));
  }
}

Action addDoctor(CLI::App& app) {
  const auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "Print the findings as JSON");
  return [json]() -> Result<int> {
    const std::vector<Finding> findings = examine(*thisMachine());
    print(findings, *json);
    const bool isMissing = std::any_of(findings.begin(), findings.end(), [](const Finding& f) {
      return f.health == Health::kMissing;
    });
    return isMissing ? kExitFailure : kExitOk;
  };
}

}  // namespace

const Command kDoctorCommand = {"doctor", "Say what this machine has, and what is missing",
                                "trireme doctor", addDoctor};

}  // namespace trireme::cli
