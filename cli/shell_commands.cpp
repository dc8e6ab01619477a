// trireme completion, trireme man: what a shell and a manual want to know of the command.
#include <fmt/format.h>

#include <memory>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/shell/describe.h"

namespace trireme::cli {
namespace {

Action addCompletion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  const auto parse = [shell](const std::string& text) {
    const std::vector<std::string> names = {"bash", "zsh", "fish"};
    *shell = names[parseChoice("SHELL", text, names)];
  };
  app.add_option_function<std::string>("SHELL", parse, "bash, zsh or fish")->required();
  return [&app, shell]() -> Result<int> {
    fmt::print("{}", completionScript(cli::describe(*app.get_parent()), *shell));
    return kExitOk;
  };
}

Action addMan(CLI::App& app) {
  return [&app]() -> Result<int> {
    fmt::print("{}", manPage(cli::describe(*app.get_parent())));
    return kExitOk;
  };
}

}  // namespace

const Command kCompletionCommand = {"completion", "Print the script that completes this command",
                                    "source <(trireme completion bash)", addCompletion};
const Command kManCommand = {"man", "Print the manual page", "trireme man > trireme.1", addMan};

}  // namespace trireme::cli
