#include "cli/html_report/html_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/html_report/assets.h"
#include "cli/write_file.h"
#include "ir/base/version.h"

namespace trireme::cli {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

// JSON may stand in a script element if no '<' is in it, which only strings have.
std::string scriptJson(const nlohmann::json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text)
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  return out;
}

// Nothing may be loaded: what the page needs is in it.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'";

}  // namespace

std::string toHtml(const HtmlReport& report, const nlohmann::json& answer,
                   const nlohmann::json& timeline) {
  const nlohmann::json data = {{"kind", report.kind},
                               {"title", report.title},
                               {"question", report.question},
                               {"answer", answer},
                               {"timeline", timeline}};
  const std::string title = escaped(fmt::format("{}: {}", report.kind, report.title));
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta name=\"generator\" content=\"trireme {}\">\n<title>{}</title>\n<style>\n{}</style>\n"
      "</head>\n<body>\n",
      kPolicy, kVersion, title, assets::style());
  html += fmt::format(
      "<header><h1>{}</h1></header>\n<main id=\"main\">\n"
      "<noscript><p>The charts need JavaScript; everything is below as text.</p></noscript>\n"
      "</main>\n<section id=\"text\" aria-labelledby=\"text-title\">\n"
      "<h2 id=\"text-title\">As text</h2>\n<pre tabindex=\"0\">{}</pre>\n</section>\n",
      title, escaped(report.text));
  html += fmt::format(
      "<footer>\n<p>Made by trireme {}. Charts: D3.</p>\n<details><summary>Licence of "
      "D3</summary>\n<pre>{}</pre></details>\n</footer>\n",
      kVersion, escaped(assets::d3Licence()));
  html +=
      fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n", scriptJson(data));
  html += "<script>\n";
  html += assets::d3();
  html += "\n</script>\n<script>\n";
  html += assets::script();
  html += "</script>\n</body>\n</html>\n";
  return html;
}

Status writeReport(const std::string& path, const HtmlReport& report, const nlohmann::json& answer,
                   const nlohmann::json& timeline) {
  return path.empty() ? Status() : writeFile(path, toHtml(report, answer, timeline));
}

}  // namespace trireme::cli
