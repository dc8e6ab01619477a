# What every HTML report contains, compiled into the command: cli/html_report/*.{js,css} and D3, which
# Debian's libjs-d3 installs. Nothing of it is kept in this repository.
#
# As a script:  cmake -DROOT=<source tree> -DD3=<d3.min.js> -DD3_LICENCE=<file> -DOUT=<file>
#                     -P cmake/html_report.cmake
cmake_minimum_required(VERSION 3.25)

# The page's script is these, in this order: each uses what stands before it.
set(HTML_REPORT_SCRIPTS format.js table.js charts.js timeline.js plan_page.js whatif_page.js
    run_page.js pages.js)

# Appends to <out> a function <name>() that returns the text of the files, behind one another.
# In pieces, because compilers may refuse longer literals.
function(trireme_asset out name)
  set(text "")
  foreach(path IN LISTS ARGN)
    file(READ ${path} content)
    string(APPEND text "${content}")
  endforeach()
  string(LENGTH "${text}" length)
  set(result "${${out}}")
  string(APPEND result "std::string_view ${name}() {\n  static const std::string text = join({\n")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 15000 piece)
    string(APPEND result "R\"asset(${piece})asset\",\n")
    math(EXPR at "${at} + 15000")
  endwhile()
  string(APPEND result "  });\n  return text;\n}\n\n")
  set(${out} "${result}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  set(folder ${ROOT}/cli/html_report)
  set(code "// Made by cmake/html_report.cmake.\n#include \"cli/html_report/assets.h\"\n\n")
  string(APPEND code "#include <initializer_list>\n#include <string>\n\n")
  string(APPEND code "namespace trireme::cli::assets {\nnamespace {\n\n")
  string(APPEND code "std::string join(std::initializer_list<std::string_view> pieces) {\n")
  string(APPEND code "  std::string text;\n  for (const std::string_view piece : pieces) text += piece;\n")
  string(APPEND code "  return text;\n}\n\n}  // namespace\n\n")
  trireme_asset(code d3 ${D3})
  trireme_asset(code d3Licence ${D3_LICENCE})
  trireme_asset(code style ${folder}/style.css)
  list(TRANSFORM HTML_REPORT_SCRIPTS PREPEND ${folder}/)
  trireme_asset(code script ${HTML_REPORT_SCRIPTS})
  file(WRITE ${OUT} "${code}}  // namespace trireme::cli::assets\n")
  return()
endif()

find_file(TRIREME_D3 d3.min.js PATHS /usr/share/javascript/d3 NO_DEFAULT_PATH)
find_file(TRIREME_D3_LICENCE copyright PATHS /usr/share/doc/libjs-d3 NO_DEFAULT_PATH)
if(NOT TRIREME_D3 OR NOT TRIREME_D3_LICENCE)
  message(FATAL_ERROR "D3 is missing, which `--report` puts into its pages: install Debian's "
                      "libjs-d3, or set TRIREME_D3 to a d3.min.js of version 3 and "
                      "TRIREME_D3_LICENCE to its licence")
endif()
set(TRIREME_HTML_ASSETS ${TRIREME_GENERATED_DIR}/cli/html_report/assets.cpp)
file(GLOB html_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/html_report/*.js
     ${PROJECT_SOURCE_DIR}/cli/html_report/*.css)
add_custom_command(
  OUTPUT ${TRIREME_HTML_ASSETS}
  COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DD3=${TRIREME_D3}
          -DD3_LICENCE=${TRIREME_D3_LICENCE} -DOUT=${TRIREME_HTML_ASSETS}
          -P ${CMAKE_CURRENT_LIST_DIR}/html_report.cmake
  DEPENDS ${html_sources} ${TRIREME_D3} ${TRIREME_D3_LICENCE} ${CMAKE_CURRENT_LIST_FILE}
  VERBATIM)
