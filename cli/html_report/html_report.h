// An answer as one HTML file that needs nothing else: `--report FILE`.
//
// The page holds the command's own JSON, its text, a script that draws the one (pages.js and those
// beside it, with D3) and the style. It asks the network for nothing, and its policy forbids it.
// Without scripts the text is still there.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "ir/base/status.h"

namespace trireme::cli {

struct HtmlReport {
  std::string kind;      // which page: "plan", "check", "whatif", "difference", "worth", "run"...
  std::string title;     // of the page: "gpt3-175b on dgx-a100"
  std::string question;  // lines of a name in 14 columns and a value; may be empty
  std::string text;      // what the command prints without --json
};

// `answer` is what the command prints with --json; `timeline` is planner::toJson(Timeline) or null.
std::string toHtml(const HtmlReport& report, const nlohmann::json& answer,
                   const nlohmann::json& timeline);

// Writes it, unless the path is empty. Errors: those of writeFile.
Status writeReport(const std::string& path, const HtmlReport& report, const nlohmann::json& answer,
                   const nlohmann::json& timeline = {});

}  // namespace trireme::cli
