#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/shell/describe.h"

namespace trireme::cli {
namespace {

std::vector<std::string> namesOf(const CommandText& command) {
  std::vector<std::string> names;
  for (const FlagText& flag : command.flags)
    names.insert(names.end(), flag.names.begin(), flag.names.end());
  return names;
}

std::string subcommandsOf(const std::vector<CommandText>& commands) {
  std::vector<std::string_view> names;
  for (const CommandText& command : commands)
    if (!command.name.empty()) names.push_back(command.name);
  return fmt::format("{}", fmt::join(names, " "));
}

// The flag before the cursor decides; else what may stand in the command. bash takes --flag=value
// apart into three words.
std::string bashScript(const std::vector<CommandText>& commands) {
  std::string flagCases, wordCases, twoValues;
  for (const CommandText& command : commands) {
    for (const FlagText& flag : command.flags) {
      if (flag.names.empty() || flag.placeholder.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : flag.names)
        patterns.push_back(fmt::format("'{} {}'", command.name, name));
      const std::vector<std::string> values = valuesOf(flag);
      std::string reply = "COMPREPLY=()";
      if (!values.empty())
        reply = fmt::format("COMPREPLY=($(compgen -W '{}'{} -- \"$cur\"))", fmt::join(values, " "),
                            takesPath(flag) ? " -f" : "");
      else if (takesPath(flag))
        reply = "COMPREPLY=($(compgen -f -- \"$cur\"))";
      flagCases += fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, "|"), reply);
      if (flag.numValues == 2)
        twoValues += fmt::format("    {}) prev=$before ;;\n", fmt::join(patterns, "|"));
    }
    wordCases +=
        fmt::format("    '{}') words='{}' ;;\n", command.name, fmt::join(namesOf(command), " "));
  }
  return fmt::format(R"(# Completion of trireme for bash, made by `trireme completion bash`.
_trireme() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} command='' words=''
  ((COMP_CWORD > 1)) && command=${{COMP_WORDS[1]}}
  local at=$((COMP_CWORD - 1)) before=''
  [[ $cur == '=' ]] && cur='' at=$((at + 1))
  ((at > 1)) && [[ ${{COMP_WORDS[at]}} == '=' ]] && at=$((at - 1)) prev=${{COMP_WORDS[at]}}
  ((at > 1)) && before=${{COMP_WORDS[at - 1]}}
  if [[ -z $command && $cur != -* ]]; then
    COMPREPLY=($(compgen -W '{}' -- "$cur"))
    return
  fi
  case "$command $before" in
{}  esac
  case "$command $prev" in
{}  esac
  case "$command" in
{}  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -o filenames -F _trireme trireme
)",
                     subcommandsOf(commands), twoValues, flagCases, wordCases);
}

std::string fishQuoted(std::string text) {
  for (size_t at = 0; (at = text.find_first_of("'\\", at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return "'" + text + "'";
}

std::string fishScript(const std::vector<CommandText>& commands) {
  std::string out = "# Completion of trireme for fish, made by `trireme completion fish`.\n";
  for (const CommandText& command : commands) {
    const bool isRoot = command.name.empty();
    const std::string when =
        isRoot ? "__fish_use_subcommand" : "__fish_seen_subcommand_from " + command.name;
    if (!isRoot)
      out += fmt::format("complete -c trireme -n __fish_use_subcommand -f -a {} -d {}\n",
                         command.name, fishQuoted(command.purpose));
    for (const FlagText& flag : command.flags) {
      if (flag.names.empty()) continue;
      std::string line = fmt::format("complete -c trireme -n '{}'", when);
      for (const std::string& name : flag.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      const std::vector<std::string> values = valuesOf(flag);
      if (!flag.placeholder.empty()) line += takesPath(flag) ? " -r" : " -x";
      if (!values.empty()) line += fmt::format(" -a '{}'", fmt::join(values, " "));
      out += line + " -d " + fishQuoted(flag.purpose) + "\n";
    }
  }
  return out;
}

}  // namespace

std::string completionScript(const std::vector<CommandText>& commands, std::string_view shell) {
  if (shell == "fish") return fishScript(commands);
  if (shell == "bash") return bashScript(commands);
  return "#compdef trireme\nautoload -U +X bashcompinit && bashcompinit\n" + bashScript(commands);
}

}  // namespace trireme::cli
