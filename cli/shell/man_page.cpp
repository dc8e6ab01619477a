#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/shell/describe.h"
#include "ir/base/version.h"

namespace trireme::cli {
namespace {

// Roff reads a backslash, a dash and a leading dot or quote as its own.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  if (out.starts_with('.') || out.starts_with('\'')) out.insert(0, "\\&");
  return out;
}

// "BUNDLE ", "[FILE] ": before the options, some of which take all that follows.
std::string positionals(const CommandText& command) {
  std::string out;
  for (const FlagText& flag : command.flags) {
    if (!flag.names.empty()) continue;
    const std::string name = "\\fI" + roff(flag.placeholder) + "\\fR";
    out += flag.isRequired ? name + " " : "[" + name + "] ";
  }
  return out;
}

std::string flagEntry(const FlagText& flag) {
  std::vector<std::string> names;
  for (const std::string& name : flag.names) names.push_back("\\fB" + roff(name) + "\\fR");
  std::string head = fmt::format("{}", fmt::join(names, ", "));
  if (!flag.placeholder.empty())
    head += (names.empty() ? "\\fI" : " \\fI") + roff(flag.placeholder) + "\\fR";
  return fmt::format(".TP\n{}\n{}\n", head, roff(flag.purpose));
}

}  // namespace

std::string manPage(const std::vector<CommandText>& commands) {
  std::string out = fmt::format(".TH TRIREME 1 \"\" \"trireme {}\" \"User Commands\"\n", kVersion);
  out += ".SH NAME\ntrireme \\- plans, compiles and runs the training of transformer models\n";
  out += ".SH SYNOPSIS\n";
  for (const CommandText& command : commands)
    if (!command.name.empty())
      out += fmt::format(".B trireme {}\n{}[\\fIoptions\\fR]\n.br\n", roff(command.name),
                         positionals(command));
  for (const CommandText& command : commands) {
    out += command.name.empty()
               ? ".SH OPTIONS\n"
               : fmt::format(".SH TRIREME {}\n{}.\n", roff(command.name), roff(command.purpose));
    for (const FlagText& flag : command.flags) out += flagEntry(flag);
    const size_t line = command.example.find('\n');
    if (line == std::string::npos) continue;
    const size_t text = command.example.find_first_not_of(' ', line + 1);
    out += fmt::format(".PP\nExample:\n.PP\n.nf\n.RS\n{}\n.RE\n.fi\n",
                       roff(command.example.substr(text)));
  }
  out +=
      ".SH EXIT STATUS\n0 done; 1 could not be done; 2 the command line makes no sense; 130 "
      "stopped by Ctrl\\-C; 141 nobody has read the results.\n";
  return out;
}

}  // namespace trireme::cli
