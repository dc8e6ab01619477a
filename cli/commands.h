// One subcommand per file. Each `add` function declares the flags of its subcommand on `app` and
// returns what the subcommand does; calling it after a successful parse gives the exit code.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace CLI {
class App;
}

namespace trireme::cli {

using Action = std::function<Result<int>()>;

struct Command {
  std::string_view name;
  std::string_view purpose;  // one line of `trireme --help`
  std::string_view example;  // the end of `trireme <name> --help`
  Action (*add)(CLI::App& app);
};

extern const Command kPlanCommand;
extern const Command kCompileCommand;
extern const Command kExportCommand;
extern const Command kRunCommand;
extern const Command kCalibrateCommand;
extern const Command kWhatifCommand;
extern const Command kDoctorCommand;
extern const Command kCompletionCommand;
extern const Command kManCommand;
extern const Command kExportWeightsCommand;
extern const Command kPackageRuntimeCommand;

// Those that this build has, in the order of `trireme --help`; and what stands under them.
std::vector<const Command*> allCommands();
std::string_view exampleOfAll();

}  // namespace trireme::cli
