# One library per folder and the `trireme` executable. DEPS follow the arrows of the design; an
# include against them is refused by cmake/layering.cmake.
find_package(Threads REQUIRED)
if(TRIREME_RUNTIME_ONLY)
  include(third_party)
else()
  find_package(fmt REQUIRED)
  find_package(yaml-cpp REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(tl-expected REQUIRED CONFIG)
  find_package(tomlplusplus REQUIRED CONFIG)
endif()

if(TARGET yaml-cpp::yaml-cpp)
  set(TRIREME_YAML yaml-cpp::yaml-cpp)
else()
  set(TRIREME_YAML yaml-cpp)  # The target's name before yaml-cpp 0.8.
endif()

# trireme_library(<folder> [NAME <name>] [EXCLUDE <regex>] [OWN_OPTIONS] [GENERATED <file>...]
#                 [DEPS <target>...])
#
# Library trireme_<name> (by default the folder's last part) of every .cpp below <folder>. A folder
# without a .cpp gives an INTERFACE library, so that a tree without it can be configured. OWN_OPTIONS:
# it is compiled with options that others are not.
function(trireme_library folder)
  cmake_parse_arguments(ARG "OWN_OPTIONS" "NAME;EXCLUDE" "GENERATED;DEPS" ${ARGN})
  if(NOT ARG_NAME)
    cmake_path(GET folder FILENAME ARG_NAME)
  endif()
  set(target trireme_${ARG_NAME})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${PROJECT_SOURCE_DIR}/${ARG_EXCLUDE}")
  endif()
  if(sources)
    set(scope PUBLIC)
    add_library(${target} STATIC ${sources} ${ARG_GENERATED})
  else()
    set(scope INTERFACE)
    add_library(${target} INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${PROJECT_SOURCE_DIR})
  # SYSTEM: what mlir-tblgen writes is not free of warnings.
  target_include_directories(${target} SYSTEM ${scope} ${TRIREME_GENERATED_DIR})
  target_link_libraries(${target} ${scope} ${ARG_DEPS})
  if(sources AND NOT folder MATCHES "^(ir/dialect|codegen|cli)$")
    trireme_join_sources(${target})
    trireme_precompile(${target} ${ARG_OWN_OPTIONS})
  endif()
  if(ARG_GENERATED)
    # Who includes the headers of this library needs the generated ones first.
    add_custom_target(${target}_generated DEPENDS ${ARG_GENERATED})
    add_dependencies(${target} ${target}_generated)
  endif()
endfunction()

set(json nlohmann_json::nlohmann_json)
trireme_library(ir/base DEPS fmt::fmt tl::expected)
trireme_library(ir/program DEPS trireme_base ${json})
if(NOT TRIREME_RUNTIME_ONLY)
  include(shipped)
  trireme_library(ir/spec GENERATED ${TRIREME_SHIPPED} DEPS trireme_base ${TRIREME_YAML} ${json})
  trireme_library(ir/graph DEPS trireme_spec trireme_program)
  trireme_library(ir/plan DEPS trireme_graph ${TRIREME_YAML} ${json})
  trireme_library(ir/schedule DEPS trireme_plan)
  trireme_library(ir/expand DEPS trireme_schedule)
  trireme_library(cost_models NAME cost DEPS trireme_expand ${json})
  trireme_library(planner DEPS trireme_cost ${json} Threads::Threads)
  # Plans to and from the words of other programs: no MLIR, so they are there without it.
  trireme_library(codegen/export DEPS trireme_plan ${json})
  trireme_library(codegen/import DEPS trireme_export)
  # Header-only: its shared library throws, and this one has to answer.
  target_compile_definitions(trireme_import PRIVATE TOML_HEADER_ONLY=1)
  if(TARGET tomlplusplus::tomlplusplus)
    target_include_directories(trireme_import SYSTEM PRIVATE
      $<TARGET_PROPERTY:tomlplusplus::tomlplusplus,INTERFACE_INCLUDE_DIRECTORIES>)
  endif()
endif()

if(NOT TRIREME_COMMAND)
  return()
endif()
if(NOT TRIREME_RUNTIME_ONLY)
  find_package(CLI11 REQUIRED)
  include(third_party)  # what `trireme package-runtime` packs
endif()

trireme_library(runtime OWN_OPTIONS DEPS trireme_program ${json} Threads::Threads ${CMAKE_DL_LIBS})
get_target_property(runtime_type trireme_runtime TYPE)
if(runtime_type STREQUAL "STATIC_LIBRARY")
  # errno of math functions is never read, and setting it keeps the compiler from using vectors.
  target_compile_options(trireme_runtime PRIVATE -fno-math-errno $<$<CONFIG:Release>:-O3>)
  # These have options of their own for what a processor can do, and time is spent in them.
  file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/kernels/*.cpp
       ${PROJECT_SOURCE_DIR}/runtime/executor/optimizer.cpp)
  set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(images ${PROJECT_SOURCE_DIR}/runtime/device/cuda/images.cpp)
  set_source_files_properties(${images} PROPERTIES
    OBJECT_DEPENDS "${TRIREME_CUDA_IMAGES}"
    COMPILE_DEFINITIONS "TRIREME_CUDA_KERNELS=$<BOOL:${TRIREME_NVCC}>;TRIREME_CUDA_FOLDER=\"${TRIREME_CUDA_FOLDER}\"")
  file(GLOB mpi_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/comm/mpi*.cpp
       ${PROJECT_SOURCE_DIR}/runtime/comm/mpi/*.cpp)
  if(mpi_sources)
    find_package(MPI REQUIRED COMPONENTS C)
    target_link_libraries(trireme_runtime PUBLIC MPI::MPI_C)
    # mpi.h without MPI's removed C++ classes, which live in a library of their own.
    target_compile_definitions(trireme_runtime PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  endif()
endif()

if(TRIREME_RUNTIME_ONLY)
  include(runtime_only)
  return()
endif()

# What does not run long is optimised little, and not at all under a sanitizer: it takes two thirds
# and half of the time to build.
if(TRIREME_SANITIZE)
  set(runs_briefly -O0)
else()
  set(runs_briefly -O1)
  target_compile_options(trireme_export PRIVATE ${runs_briefly})
  target_compile_options(trireme_import PRIVATE ${runs_briefly})
endif()
if(TRIREME_MLIR)
  trireme_library(ir/dialect GENERATED ${TRIREME_DIALECT_GENERATED}
                  DEPS trireme_expand trireme_mlir)
  trireme_library(codegen EXCLUDE "codegen/(tools|shared|export|import)/" GENERATED ${TRIREME_CODEGEN_GENERATED}
                  DEPS trireme_dialect ${json})
  # One executable per file of codegen/tools: trireme_opt.cpp -> trireme-opt.
  file(GLOB tools CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/codegen/tools/*.cpp)
  foreach(source IN LISTS tools)
    cmake_path(GET source STEM tool)
    string(REPLACE "_" "-" tool ${tool})
    add_executable(${tool} ${source})
    target_link_libraries(${tool} PRIVATE trireme_codegen)
    target_compile_options(${tool} PRIVATE ${runs_briefly})
  endforeach()
  # Each of their files would read most of MLIR again.
  trireme_join_sources(trireme_dialect)
  trireme_join_sources(trireme_codegen)
  target_compile_options(trireme_dialect PRIVATE ${runs_briefly})
  target_compile_options(trireme_codegen PRIVATE ${runs_briefly})
  target_precompile_headers(trireme_dialect PRIVATE ${TRIREME_MLIR_PRECOMPILED})
  target_precompile_headers(trireme_codegen REUSE_FROM trireme_dialect)

  # What `trireme` loads when it compiles (codegen/generator.h).
  add_library(trireme_generator MODULE ${PROJECT_SOURCE_DIR}/codegen/shared/generator.cpp)
  set(symbols ${PROJECT_SOURCE_DIR}/codegen/shared/symbols.ld)
  target_link_libraries(trireme_generator PRIVATE trireme_codegen)
  target_link_options(trireme_generator PRIVATE LINKER:--version-script=${symbols})
  target_compile_options(trireme_generator PRIVATE ${runs_briefly})
  set_target_properties(trireme_generator PROPERTIES LINK_DEPENDS ${symbols}
                                                     INSTALL_RPATH "${LLVM_LIBRARY_DIR}")
  install(TARGETS trireme_generator LIBRARY DESTINATION lib/trireme)
endif()

# cli/main.cpp is the executable; the rest is a library, which the tests link as well.
include(html_report)
trireme_library(cli EXCLUDE "cli/(main.cpp$|runtime_only/)" GENERATED ${TRIREME_HTML_ASSETS} 
                DEPS trireme_planner trireme_export trireme_import trireme_runtime CLI11::CLI11 ${json})
trireme_join_sources(trireme_cli)
target_compile_options(trireme_cli PRIVATE ${runs_briefly})
# Most of a command's time to compile went into reading these.
target_precompile_headers(trireme_cli PRIVATE <CLI/App.hpp> <nlohmann/json.hpp> <fmt/format.h>
                                              <fmt/ranges.h>)
get_target_property(cli_type trireme_cli TYPE)
set(cli_scope PUBLIC)
if(cli_type STREQUAL "INTERFACE_LIBRARY")
  set(cli_scope INTERFACE)
endif()
target_compile_definitions(trireme_cli ${cli_scope} TRIREME_RUNTIME_ONLY=0)
if(TARGET trireme_generator)
  add_dependencies(trireme_cli trireme_generator)
endif()
# Where `trireme package-runtime` finds what it packs.
set(package_runtime ${PROJECT_SOURCE_DIR}/cli/package_runtime_command.cpp)
set_property(SOURCE ${package_runtime} PROPERTY COMPILE_DEFINITIONS
  TRIREME_SOURCE_FOLDER="${PROJECT_SOURCE_DIR}"
  TRIREME_INCLUDE_FMT="${TRIREME_INCLUDE_fmt}"
  TRIREME_INCLUDE_NLOHMANN="${TRIREME_INCLUDE_nlohmann}"
  TRIREME_INCLUDE_TL="${TRIREME_INCLUDE_tl}"
  TRIREME_INCLUDE_CLI="${TRIREME_INCLUDE_CLI}"
  TRIREME_GTEST_SOURCES="${TRIREME_GTEST_SOURCES}")

file(GLOB main CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/main.cpp)
if(main)
  add_executable(trireme ${main})
  target_link_libraries(trireme PRIVATE trireme_cli)
  # Searches allocate small things by the million, which take a quarter of their time with glibc's
  # allocator. A sanitizer has its own.
  if(NOT TRIREME_SANITIZE)
    find_library(TRIREME_TCMALLOC NAMES tcmalloc_minimal libtcmalloc_minimal.so.4
                 DOC "Allocator of the command")
    if(NOT TRIREME_TCMALLOC)
      message(FATAL_ERROR "libtcmalloc_minimal is missing: install Debian's libtcmalloc-minimal4")
    endif()
    target_link_libraries(trireme PRIVATE ${TRIREME_TCMALLOC})
  endif()
  # The shared objects of a bundle call back into the executable that loads them.
  set_target_properties(trireme PROPERTIES ENABLE_EXPORTS ON)
  install(TARGETS trireme)
endif()
