# The example files, compiled into ir/spec so that they can be used by name wherever the program runs:
# ir/spec/shipped_files.cpp, made again whenever one of them changes.
#
# As a script:  cmake -DROOT=<source tree> -DOUT=<file> -P cmake/shipped.cmake
cmake_minimum_required(VERSION 3.25)

# Folder of examples/ and the ShippedKind of its files.
set(SHIPPED_KINDS models kModel clusters kCluster stacks kStack devices kDevice links kLink)

# Sets <out> to C++ code that defines shippedFiles().
function(trireme_shipped_code root out)
  set(code "// Made from examples/ by cmake/shipped.cmake.\n#include \"ir/spec/shipped.h\"\n\n")
  string(APPEND code "namespace trireme::spec {\nnamespace {\n\nconstexpr ShippedFile kFiles[] = {\n")
  set(kinds ${SHIPPED_KINDS})
  while(kinds)
    list(POP_FRONT kinds folder kind)
    file(GLOB paths ${root}/examples/${folder}/*.yaml)
    foreach(path IN LISTS paths)
      # STEM ends at the first dot: gpt2-1.5b.yaml.
      cmake_path(GET path STEM LAST_ONLY name)
      file(READ ${path} content)
      string(APPEND code "    {ShippedKind::${kind}, \"${name}\", R\"yaml(${content})yaml\"},\n")
    endforeach()
  endwhile()
  string(APPEND code "};\n\n}  // namespace\n\n")
  string(APPEND code "std::span<const ShippedFile> shippedFiles() { return kFiles; }\n\n")
  string(APPEND code "}  // namespace trireme::spec\n")
  set(${out} "${code}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  trireme_shipped_code(${ROOT} code)
  file(WRITE ${OUT} "${code}")
  return()
endif()

set(TRIREME_SHIPPED ${TRIREME_GENERATED_DIR}/ir/spec/shipped_files.cpp)
set(patterns "")
set(kinds ${SHIPPED_KINDS})
while(kinds)
  list(POP_FRONT kinds folder kind)
  list(APPEND patterns ${PROJECT_SOURCE_DIR}/examples/${folder}/*.yaml)
endwhile()
file(GLOB shipped_examples CONFIGURE_DEPENDS ${patterns})
add_custom_command(
  OUTPUT ${TRIREME_SHIPPED}
  COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DOUT=${TRIREME_SHIPPED}
          -P ${CMAKE_CURRENT_LIST_DIR}/shipped.cmake
  DEPENDS ${shipped_examples} ${CMAKE_CURRENT_LIST_FILE}
  VERBATIM)
