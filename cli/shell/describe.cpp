#include "cli/shell/describe.h"

#include <CLI/App.hpp>
#include <algorithm>
#include <sstream>

#include "ir/spec/shipped.h"
#include "planner/whatif/hardware.h"

namespace trireme::cli {
namespace {

FlagText describe(const CLI::Option& option) {
  FlagText flag;
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0)
    flag.placeholder = flag.names.empty() ? option.get_name() : option.get_type_name();
  flag.purpose = option.get_description();
  flag.numValues = option.get_items_expected_max();
  flag.isRequired = option.get_required();
  return flag;
}

CommandText describeOne(const CLI::App& app, bool isSubcommand) {
  CommandText command{
      isSubcommand ? app.get_name() : "", app.get_description(), app.get_footer(), {}};
  for (const CLI::Option* option : app.get_options()) command.flags.push_back(describe(*option));
  return command;
}

}  // namespace

std::vector<CommandText> describe(const CLI::App& app) {
  std::vector<CommandText> commands = {describeOne(app, false)};
  for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(describeOne(*subcommand, true));
  return commands;
}

std::vector<std::string> valuesOf(const FlagText& flag) {
  const auto is = [&](std::string_view name) {
    return std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end();
  };
  if (is("--model")) return spec::shippedNames(spec::ShippedKind::kModel);
  if (is("--cluster")) return spec::shippedNames(spec::ShippedKind::kCluster);
  if (is("--stack")) return spec::shippedNames(spec::ShippedKind::kStack);
  if (is("--gpu")) return planner::gpuNames();
  if (is("--diff")) {  // clusters, stacks or files
    std::vector<std::string> names = spec::shippedNames(spec::ShippedKind::kCluster);
    for (std::string& name : spec::shippedNames(spec::ShippedKind::kStack))
      names.push_back(std::move(name));
    return names;
  }
  std::vector<std::string> words;
  std::istringstream text(flag.placeholder);
  for (std::string word; std::getline(text, word, '|');) {
    if (std::any_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; }))
      return {};
    words.push_back(word);
  }
  return words.size() > 1 ? words : std::vector<std::string>();
}

bool takesPath(const FlagText& flag) {
  if (flag.names == std::vector<std::string>{"--diff"}) return true;
  for (const std::string_view word : {"FILE", "DIR", "PATH", "BUNDLE", "CHECKPOINT"})
    if (flag.placeholder.find(word) != std::string::npos) return true;
  return false;
}

}  // namespace trireme::cli
