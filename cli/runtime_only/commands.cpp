// The commands of a build of the runtime alone. The others say where they are.
#include "cli/commands.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <string>

namespace trireme::cli {
namespace {

constexpr std::string_view kPurpose = "(not in this build, which is the runtime alone)";

Action addMissing(CLI::App& app) {
  app.allow_extras();
  return [name = app.get_name()]() -> Result<int> {
    return Error(unavailable(fmt::format(
        "this trireme is the runtime alone: it has run, calibrate --gpu and doctor; '{}' "
        "is in a full build (without TRIREME_RUNTIME_ONLY)",
        name)));
  };
}

constexpr Command missing(std::string_view name) { return {name, kPurpose, "", addMissing}; }

constexpr Command kMissing[] = {missing("plan"),   missing("whatif"),         missing("compile"),
                                missing("export"), missing("export-weights"), missing("completion"),
                                missing("man"),    missing("package-runtime")};

}  // namespace

std::vector<const Command*> allCommands() {
  std::vector<const Command*> commands = {&kRunCommand, &kCalibrateCommand, &kDoctorCommand};
  for (const Command& command : kMissing) commands.push_back(&command);
  return commands;
}

std::string_view exampleOfAll() { return kRunCommand.example; }

}  // namespace trireme::cli
