#include "cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/output/tell.h"
#include "cli/output/wrap.h"
#include "ir/base/version.h"
#include "ir/spec/suggestion.h"
#include "runtime/device/cuda/gpu.h"

namespace trireme::cli {
namespace {

// One line for programs that read it, lines of a table's width for people.
int fail(int exitCode, const std::string& message) {
  std::fflush(stdout);
  const std::string line = "error: " + message;
  tell("{}", isatty(STDERR_FILENO) == 1 ? wrapLine(line, 0, 100, LongWords::kWhole) : line + "\n");
  return exitCode;
}

// A pipe whose reader has seen enough ends the command quietly, unless whoever started it ignores
// the signal to be told.
bool endsQuietly(int code) {
  struct sigaction action{};
  return code == EPIPE && sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler != SIG_IGN;
}

int failToWrite(int code) {
  if (endsQuietly(code)) return kExitClosedPipe;
  return fail(kExitFailure, fmt::format("cannot write the results: {}", std::strerror(code)));
}

std::string versionText() {
  return kGitDescription.empty() ? fmt::format("trireme {}", kVersion)
                                 : fmt::format("trireme {} ({})", kVersion, kGitDescription);
}

// The subcommand that the arguments chose; the command itself if none.
const CLI::App& chosen(const CLI::App& app) {
  const std::vector<const CLI::App*> subcommands =
      app.get_subcommands([](const CLI::App* subcommand) { return subcommand->parsed(); });
  return subcommands.empty() ? app : *subcommands.front();
}

// Help without the lists of flags that need or exclude each other: groups show the first, and
// errors say both where it matters.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option);
    return text.substr(0, std::min(text.find(" Needs:"), text.find(" Excludes:")));
  }
};

std::vector<std::string> flagsOf(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
  }
  return flags;
}

// An option that takes one value and got several: "--gpus is given twice: 8 and 16; give one".
std::optional<std::string> repeatedOption(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::vector<std::string>& values = option->results();
    if (option->get_items_expected_max() != 1 || values.size() < 2 ||
        option->get_multi_option_policy() != CLI::MultiOptionPolicy::Throw)
      continue;
    const std::string times = values.size() == 2 ? "twice" : fmt::format("{} times", values.size());
    return fmt::format("{} is given {}: {} and {}; give one", option->get_name(), times,
                       fmt::join(values.begin(), values.end() - 1, ", "), values.back());
  }
  return std::nullopt;
}

// Where an argument is missing and a list of values stands before its place: ", and --data took all
// of 'a b.c' as its own".
std::string takenByList(const CLI::App& command) {
  const auto& options = command.get_options();
  const auto missing = std::find_if(options.begin(), options.end(), [](const CLI::Option* option) {
    return option->get_positional() && option->get_required() && option->results().empty();
  });
  if (missing == options.end()) return "";
  for (const CLI::Option* option : options)
    if (option->get_items_expected_max() > 1 && option->results().size() > 1)
      return fmt::format(", and {0} took all of '{1}' as its own: give {2} before {0}",
                         option->get_name(), fmt::join(option->results(), " "),
                         (*missing)->get_name());
  return "";
}

// Megatron-LM's names of what we have as well.
constexpr std::pair<std::string_view, std::string_view> kFlagsOfMegatron[] = {
    {"--num-layers", "--model"},
    {"--hidden-size", "--model"},
    {"--micro-batch-size", "--microbatch"},
    {"--global-batch-size", "--batch"},
    {"--seq-length", "--seq"},
    {"--tensor-model-parallel-size", "--tp"},
    {"--pipeline-model-parallel-size", "--pp"},
    {"--context-parallel-size", "--cp"},
    {"--data-parallel-size", "--dp"},
    {"--use-distributed-optimizer", "--state-sharding"},
    {"--num-layers-per-virtual-pipeline-stage", "--virtual-stages"},
    {"--num-virtual-stages-per-pipeline-rank", "--virtual-stages"},
    {"--recompute-granularity", "--recompute"},
    {"--recompute-num-layers", "--recompute-layers"},
    {"--make-vocab-size-divisible-by", "--vocab-multiple"}};

std::string unknownFlag(const std::string& flag, const std::vector<std::string>& known) {
  for (const auto& [theirs, ours] : kFlagsOfMegatron)
    if (flag == theirs && std::find(known.begin(), known.end(), ours) != known.end())
      return fmt::format("unknown flag '{}', Megatron-LM's; here it is '{}'", flag, ours);
  return fmt::format("unknown flag '{}'{}", flag, spec::suggestion(flag, known));
}

// What is wrong, in our words. An unknown flag comes first: it explains whatever else is missing.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = chosen(app);
  const std::vector<std::string> unknown = app.remaining(true);
  for (const std::string& text : unknown)
    if (text.size() > 1 && text[0] == '-')
      return unknownFlag(text.substr(0, text.find('=')), flagsOf(command));
  if (!unknown.empty() && &command == &app) {
    std::vector<std::string> names;
    for (const CLI::App* subcommand : app.get_subcommands({}))
      names.push_back(subcommand->get_name());
    return fmt::format("unknown command '{}'{}", unknown[0], spec::suggestion(unknown[0], names));
  }
  if (!unknown.empty()) return fmt::format("unexpected argument '{}'", unknown[0]);
  if (const auto repeated = repeatedOption(command)) return *repeated;
  return error.what() + takenByList(command);
}

int parseAndRun(CLI::App& app, int argc, const char* const* argv,
                const std::vector<std::pair<CLI::App*, Action>>& actions) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    const std::string& name = chosen(app).get_name();
    return fail(kExitUsage, fmt::format("{}; see '{} --help'", explain(app, error),
                                        name == "trireme" ? name : "trireme " + name));
  }
  for (const auto& [command, action] : actions) {
    if (!command->parsed()) continue;
    const Result<int> result = action();
    if (result.has_value()) return *result;
    const bool isBug = result.error().code() == StatusCode::kInternal;
    return fail(kExitFailure,
                (isBug ? "internal error (please report it): " : "") + result.error().message());
  }
  return fail(kExitUsage, "no command given; see 'trireme --help'");
}

}  // namespace

int runCommandLine(int argc, const char* const* argv) {
  try {
    CLI::App app{"Plans, compiles and runs the training of transformer models.", "trireme"};
    app.formatter(std::make_shared<HelpFormatter>());
    app.set_version_flag("--version", versionText(), "Print the version and exit");
    app.set_help_flag("-h,--help", "Print this help and exit");
    app.require_subcommand(0, 1);
    app.footer("Example:\n  " + std::string(exampleOfAll()));
    std::vector<std::pair<CLI::App*, Action>> actions;
    for (const Command* command : allCommands()) {
      CLI::App* subcommand =
          app.add_subcommand(std::string(command->name), std::string(command->purpose));
      if (!command->example.empty())
        subcommand->footer("Example:\n  " + std::string(command->example));
      actions.emplace_back(subcommand, command->add(*subcommand));
    }
    const int exitCode = parseAndRun(app, argc, argv, actions);
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return exitCode;
    return failToWrite(errno);
  } catch (const std::system_error& error) {
    if (std::ferror(stdout)) return failToWrite(error.code().value());  // fmt::print()
    return fail(kExitFailure, fmt::format("internal error (please report it): {}", error.what()));
  } catch (const std::bad_alloc&) {
    return fail(kExitFailure, "out of memory; is there a limit (ulimit -v)?");
  } catch (const std::exception& error) {
    return fail(kExitFailure, fmt::format("internal error (please report it): {}", error.what()));
  }
}

int endProcess(int exitCode) {
  if (exitCode == kExitClosedPipe) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  if (!runtime::cuda::anyGpuAbandoned()) return exitCode;
  std::fflush(nullptr);
  std::_Exit(exitCode);
}

}  // namespace trireme::cli
