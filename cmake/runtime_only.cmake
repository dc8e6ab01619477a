# The command of a build of the runtime alone: those of its sources that cmake/runtime_package.txt
# lists, and of ir/spec what reads numbers and names.
set(sources "")
file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/runtime_package.txt entries REGEX "^(cli|ir/spec)/")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${PROJECT_SOURCE_DIR}/cmake/runtime_package.txt)
foreach(entry IN LISTS entries)
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${entry})
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${entry}/*.cpp)
    list(APPEND sources ${found})
  elseif(entry MATCHES "\\.cpp$")
    list(APPEND sources ${PROJECT_SOURCE_DIR}/${entry})
  endif()
endforeach()
add_executable(trireme ${sources})
target_include_directories(trireme PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(trireme PRIVATE TRIREME_RUNTIME_ONLY=1)
target_link_libraries(trireme PRIVATE trireme_runtime CLI11::CLI11)
target_precompile_headers(trireme PRIVATE <CLI/App.hpp> <nlohmann/json.hpp> <fmt/format.h>)
# The shared objects of a bundle call back into the executable that loads them.
set_target_properties(trireme PROPERTIES ENABLE_EXPORTS ON)
install(TARGETS trireme)
