// The parts of every report, compiled in by cmake/html_report.cmake.
#pragma once
#include <string_view>

namespace trireme::cli::assets {

std::string_view d3();         // the library, minified
std::string_view d3Licence();  // its notice
std::string_view style();      // style.css
std::string_view script();     // format.js, table.js, charts.js, timeline.js, pages.js

}  // namespace trireme::cli::assets
