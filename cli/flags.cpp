#include "cli/flags.h"

#include <fmt/format.h>

#include "ir/spec/quantity.h"
#include "ir/spec/suggestion.h"

namespace trireme::cli {

void refuseFlag(const std::string& flag, const std::string& message) {
  throw CLI::ValidationError(flag, message);
}

int64_t parseCount(const std::string& flag, const std::string& text, int64_t least) {
  return orRefuse(flag, spec::parseCount(text, least));
}

CLI::Option* addCount(CLI::App& app, const std::string& flag, std::optional<int64_t>* out,
                      const std::string& description) {
  const auto parse = [=](const std::string& text) { *out = parseCount(flag, text, 1); };
  return app.add_option_function<std::string>(flag, parse, description)->type_name("N");
}

CLI::Option* addCount(CLI::App& app, const std::string& flag, int64_t* out,
                      const std::string& description, int64_t least) {
  const auto parse = [=](const std::string& text) { *out = parseCount(flag, text, least); };
  return app.add_option_function<std::string>(flag, parse, description)->type_name("N");
}

CLI::Option* addCounts(CLI::App& app, const std::string& flag, std::vector<int64_t>* out,
                       const std::string& description, int64_t least) {
  const auto parse = [=](const std::string& text) {
    out->clear();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      out->push_back(parseCount(flag, text.substr(begin, end - begin), least));
      begin = end + 1;
    }
  };
  return app.add_option_function<std::string>(flag, parse, description)->type_name("N,N,...");
}

CLI::Option* addSeconds(CLI::App& app, const std::string& flag, double* out,
                        const std::string& description, double most) {
  const auto parse = [=](const std::string& text) {
    const Result<double> value = spec::parseDecimal(text);
    if (!value.has_value() || !(*value > 0))
      refuseFlag(flag, fmt::format("expected a number of seconds above 0, got '{}'", text));
    if (*value > most)
      refuseFlag(flag, fmt::format("expected at most {:.0f} seconds, got '{}'", most, text));
    *out = *value;
  };
  return app.add_option_function<std::string>(flag, parse, description)->type_name("S");
}

namespace {

std::string checkedPath(const std::string& name, const std::string& text) {
  if (text.empty()) refuseFlag(name, "expected a path, got nothing");
  if (text == "-")
    refuseFlag(name,
               "expected a path, got '-'; write ./- for a file of that name, or /dev/stdin "
               "or /dev/stdout");
  return text;
}

}  // namespace

CLI::Option* addPath(CLI::App& app, const std::string& flag, std::string* out,
                     const std::string& placeholder, const std::string& description) {
  const std::string name = flag.substr(0, flag.find(','));
  const auto parse = [=](const std::string& text) { *out = checkedPath(name, text); };
  return app.add_option_function<std::string>(flag, parse, description)->type_name(placeholder);
}

CLI::Option* addPaths(CLI::App& app, const std::string& flag, std::vector<std::string>* out,
                      const std::string& placeholder, const std::string& description) {
  const auto parse = [=](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) out->push_back(checkedPath(flag, text));
  };
  return app.add_option_function<std::vector<std::string>>(flag, parse, description)
      ->type_name(placeholder);
}

CLI::Option* addReport(CLI::App& app, std::string* out) {
  return addPath(app, "--report", out, "FILE",
                 "Write charts and tables here: one HTML file that opens offline");
}

size_t parseChoice(const std::string& flag, const std::string& text,
                   const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == text) return i;
  refuseFlag(flag, fmt::format("unknown value '{}'{}", text, spec::suggestion(text, names)));
}

CLI::Option* addSwitch(CLI::App& app, const std::string& flag, std::optional<bool>* out,
                       const std::string& description) {
  const auto parse = [=](const std::string& text) {
    *out = parseChoice(flag, text, {"off", "on"}) == 1;
  };
  return app.add_option_function<std::string>(flag, parse, description)->type_name("on|off");
}

}  // namespace trireme::cli
