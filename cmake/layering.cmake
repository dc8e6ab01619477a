# The arrows between folders, checked on the #include lines.
#
#   base -> {spec, program} -> graph -> plan -> schedule -> expand -> {dialect, cost_models}
#        -> {planner, codegen} -> {cli, python};   program -> runtime -> cli
#   planner -> planner/space -> planner/cuts -> planner/search -> planner/answer -> planner/whatif
#   planner -> planner/partition
#
# Each folder may use what stands to its left, with three exceptions that keep things apart: codegen
# does not see cost_models, planner does not see dialect, and runtime sees only base and program.
# MLIR and LLVM headers stay in ir/dialect and codegen.
#
# As a script:  cmake -DROOT=<source tree> -P cmake/layering.cmake
cmake_minimum_required(VERSION 3.25)

# What stands to the left of each folder. A folder may always use itself.
set(LAYER_ir/base "")
set(LAYER_ir/spec ir/base)
set(LAYER_ir/program ir/base)
set(LAYER_ir/graph ir/base ir/spec ir/program)
set(LAYER_ir/plan ${LAYER_ir/graph} ir/graph)
set(LAYER_ir/schedule ${LAYER_ir/plan} ir/plan)
set(LAYER_ir/expand ${LAYER_ir/schedule} ir/schedule)
set(LAYER_ir/dialect ${LAYER_ir/expand} ir/expand)
set(LAYER_cost_models ${LAYER_ir/expand} ir/expand)
set(LAYER_planner ${LAYER_cost_models} cost_models)
set(LAYER_planner/partition ${LAYER_planner} planner)
set(LAYER_planner/space ${LAYER_planner} planner)
set(LAYER_planner/cuts ${LAYER_planner/space} planner/space)
set(LAYER_planner/search ${LAYER_planner/cuts} planner/cuts)
set(LAYER_planner/answer ${LAYER_planner/search} planner/search)
set(LAYER_planner/whatif ${LAYER_planner/answer} planner/answer)
set(PLANNER_FOLDERS planner planner/partition planner/space planner/cuts planner/search
    planner/answer planner/whatif)
set(LAYER_codegen ${LAYER_ir/dialect} ir/dialect)
set(LAYER_runtime ir/base ir/program)
set(LAYER_cli ${LAYER_ir/dialect} ir/dialect cost_models ${PLANNER_FOLDERS} codegen runtime)
set(LAYER_python ${LAYER_cost_models} cost_models ${PLANNER_FOLDERS} codegen)
set(LAYER_FOLDERS ir/base ir/spec ir/program ir/graph ir/plan ir/schedule ir/expand ir/dialect
    cost_models ${PLANNER_FOLDERS} codegen runtime cli python)
set(LAYER_MLIR_FOLDERS ir/dialect codegen)

# Sets <out> to the layer that <path> (relative to the root) lies in, or to "".
function(trireme_layer_of path out)
  set(layer "")
  if(path MATCHES "^([^/]+/[^/]+)/" AND CMAKE_MATCH_1 IN_LIST LAYER_FOLDERS)
    set(layer ${CMAKE_MATCH_1})
  elseif(path MATCHES "^([^/]+)/" AND CMAKE_MATCH_1 IN_LIST LAYER_FOLDERS)
    set(layer ${CMAKE_MATCH_1})
  endif()
  set(${out} "${layer}" PARENT_SCOPE)
endfunction()

# Sets <out> to why a file of <layer> may not include <header>, or to "".
function(trireme_include_fault root file layer header out)
  set(${out} "" PARENT_SCOPE)
  if(header MATCHES "^(mlir|mlir-c|llvm|llvm-c)/" AND NOT layer IN_LIST LAYER_MLIR_FOLDERS)
    list(JOIN LAYER_MLIR_FOLDERS ", " allowed)
    set(${out} "MLIR and LLVM headers are allowed only in: ${allowed}" PARENT_SCOPE)
    return()
  elseif(header MATCHES "^(tests|bench|examples)/")
    set(${out} "nothing may include tests, bench or examples" PARENT_SCOPE)
    return()
  endif()

  trireme_layer_of("${header}" used)
  cmake_path(GET file PARENT_PATH folder)
  if(used AND NOT used STREQUAL layer AND NOT used IN_LIST LAYER_${layer})
    set(allowed ${LAYER_${layer}} ${layer})
    list(JOIN allowed ", " allowed)
    set(${out} "${layer} may use only: ${allowed}" PARENT_SCOPE)
  elseif(NOT used AND (header MATCHES "^\\.\\.?/" OR EXISTS "${root}/${folder}/${header}"))
    set(${out} "write the path from the root: \"${folder}/${header}\"" PARENT_SCOPE)
  endif()
endfunction()

# Sets <out> to the number of the line that follows the first occurrence of <text> in <content>.
function(trireme_line_after content text out)
  string(FIND "${content}" "${text}" offset)
  string(SUBSTRING "${content}" 0 ${offset} before)
  string(REGEX MATCHALL "\n" newlines "${before}")
  list(LENGTH newlines line)
  math(EXPR line "${line} + 1")
  set(${out} ${line} PARENT_SCOPE)
endfunction()

# Sets <out> to a list of "file:line: what is wrong" for the sources below <root>.
function(trireme_layering_faults root out)
  set(faults "")
  foreach(layer IN LISTS LAYER_FOLDERS)
    file(GLOB_RECURSE files RELATIVE ${root} ${root}/${layer}/*.h ${root}/${layer}/*.cpp
         ${root}/${layer}/*.cuh ${root}/${layer}/*.cu)
    foreach(file IN LISTS files)
      trireme_layer_of(${file} own)
      if(NOT own STREQUAL layer)  # a folder inside that has arrows of its own
        continue()
      endif()
      # Each match starts with the end of the line before and ends with the header's path.
      file(READ ${root}/${file} content)
      set(content "\n${content}")
      string(REGEX MATCHALL "\n[ \t]*#[ \t]*include[ \t]*[\"<][^\">\n]*" includes "${content}")
      foreach(include IN LISTS includes)
        string(REGEX REPLACE "^[^\"<]*[\"<]" "" header "${include}")
        trireme_include_fault(${root} ${file} ${layer} "${header}" fault)
        if(fault)
          trireme_line_after("${content}" "${include}" line)
          list(APPEND faults "${file}:${line}: includes ${header}: ${fault}")
        endif()
      endforeach()
    endforeach()
  endforeach()
  set(${out} "${faults}" PARENT_SCOPE)
endfunction()

# Stops with every fault below <root>, if there is any.
function(trireme_check_layering root)
  trireme_layering_faults(${root} faults)
  if(faults)
    list(JOIN faults "\n  " text)
    message(FATAL_ERROR "Includes against the arrows between folders:\n  ${text}")
  endif()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  trireme_check_layering(${ROOT})
endif()
