# One executable per folder of tests/, registered case by case under the label of the folder.
include(GoogleTest)
set(sanitized 0)
if(TRIREME_SANITIZE)
  set(sanitized 1)
endif()
if(TRIREME_RUNTIME_ONLY)
  include(packed_googletest)
  if(NOT TARGET GTest::gtest)
    message(STATUS "No tests: neither GoogleTest (Debian: libgtest-dev, libgmock-dev) nor its "
                   "sources (`trireme package-runtime --tests` packs them) are here")
    return()
  endif()
else()
  find_package(GTest REQUIRED)
endif()

# tests/support: helpers of several folders. It names no library, so that base_test does not build
# the planner; each test links the libraries of its own folder, and of this one the files it needs, which are
# compiled alone for that.
file(GLOB support_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/*.cpp)
if(TRIREME_RUNTIME_ONLY)  # what the tests for GPUs use; others know programs that only a planner makes
  list(FILTER support_sources INCLUDE REGEX "/(emulated_[a-z]+|launch_bounds|op_case|training|warp|warp_kernels)\\.cpp$")
endif()
set(TRIREME_TEST_SUPPORT "")
if(support_sources)
  set(TRIREME_TEST_SUPPORT trireme_test_support)
  add_library(trireme_test_support STATIC ${support_sources})
  target_include_directories(trireme_test_support PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(trireme_test_support PRIVATE TRIREME_SANITIZED=${sanitized})
  target_compile_options(trireme_test_support PRIVATE -O1)
  # Most of what an emulated GPU does is products.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/support/emulated_cublaslt.cpp PROPERTIES
                              COMPILE_OPTIONS -O3)
  # It compiles CUDA C++, with #pragma unroll.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/support/warp_kernels.cpp PROPERTIES
                              COMPILE_OPTIONS -Wno-unknown-pragmas)
  if(TRIREME_RUNTIME_ONLY)  # elsewhere all headers of others are where the compiler looks by itself
    target_link_libraries(trireme_test_support PRIVATE trireme_base GTest::gtest)
  endif()
endif()

# The bundles that the tests for GPUs train: made by the test gpu_bundles, or brought by an archive.
set(gpu_bundles ${PROJECT_BINARY_DIR}/gpu_bundles)
if(TRIREME_RUNTIME_ONLY)
  set(gpu_bundles ${PROJECT_SOURCE_DIR}/bundles)
endif()

# trireme_test(<name> <folder of tests/> DEPS <target>... [BINARY] [OPTIMISED] [PROPERTIES ...])
#
# Executable <name>_test from every .cpp below the folder, if there is any. BINARY: the tests start
# the `trireme` command, so it is built first. OPTIMISED: much of their time is spent in their own code.
# PROPERTIES: more of its tests. Long ones have a COST, about their seconds: they begin first, so that
# no core is idle at the end.
function(trireme_test name folder)
  cmake_parse_arguments(ARG "BINARY;OPTIMISED" "" "DEPS;PROPERTIES" ${ARGN})
  if(ARG_OPTIMISED AND NOT TRIREME_SANITIZE)
    set(optimisation -O1)
  else()
    set(optimisation -O0)
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${folder}/*.cpp)
  if(NOT sources)
    return()
  endif()
  set(target ${name}_test)
  add_executable(${target} ${sources})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE ${TRIREME_TEST_SUPPORT} ${ARG_DEPS}
                        GTest::gmock GTest::gtest GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE
    TRIREME_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    TRIREME_BINARY="${PROJECT_BINARY_DIR}/trireme"
    TRIREME_HAVE_MLIR=$<BOOL:${TRIREME_MLIR}>
    TRIREME_GPU_BUNDLES="${gpu_bundles}"
    TRIREME_SANITIZED=${sanitized})
  set_property(GLOBAL APPEND PROPERTY TRIREME_TEST_SOURCES ${sources})
  trireme_join_sources(${target})
  # Builds take half as long: most of a test's time went into reading GoogleTest and into optimising
  # code that runs once. The first executable's headers serve all that are optimised like it.
  set(headers_of TRIREME_TEST_HEADERS${optimisation})
  get_property(headers GLOBAL PROPERTY ${headers_of})
  if(headers)
    target_precompile_headers(${target} REUSE_FROM ${headers})
  else()
    target_precompile_headers(${target} PRIVATE <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h>
                                                <nlohmann/json.hpp>)
    set_property(GLOBAL PROPERTY ${headers_of} ${target})
  endif()
  target_compile_options(${target} PRIVATE ${optimisation})
  # A test may load the shared object of a bundle, which calls back into the executable.
  # No macro of its own, for it would keep the headers from being shared.
  set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON DEFINE_SYMBOL "")
  if(ARG_BINARY AND TARGET trireme)
    add_dependencies(${target} trireme)
  endif()
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
    TEST_PREFIX "${name}/"
    PROPERTIES LABELS ${name} TIMEOUT 600 ${ARG_PROPERTIES})
endfunction()

# Every test for GPUs is named, as one for compute-sanitizer or not.
function(trireme_test_of_sanitized_tests)
  add_test(NAME sanitized_tests
           COMMAND ${PROJECT_SOURCE_DIR}/tests/gpu/sanitized $<TARGET_FILE:gpu_test>)
  set_tests_properties(sanitized_tests PROPERTIES LABELS gpu ${ARGN})
endfunction()

# Those for GPUs: on the machine's own with TRIREME_GPU=real (tests/gpu/run), else on an emulated one.
if(TRIREME_RUNTIME_ONLY)
  trireme_test(gpu gpu OPTIMISED DEPS trireme_runtime)
  trireme_test_of_sanitized_tests()
  return()
endif()
# Trainings need bundles, and those the code generator; under a sanitizer, which makes them slow, they
# are left to the equivalence tests.
if(TARGET trireme AND TRIREME_MLIR AND NOT TRIREME_SANITIZE)
  trireme_test(gpu gpu OPTIMISED DEPS trireme_runtime BINARY PROPERTIES FIXTURES_REQUIRED gpu_bundles)
  add_test(NAME gpu_bundles COMMAND ${PROJECT_SOURCE_DIR}/tests/gpu/prepare $<TARGET_FILE:trireme>
                                    ${gpu_bundles} cuda:sm_90)  # what the emulated GPU is
  set_tests_properties(gpu_bundles PROPERTIES LABELS gpu FIXTURES_SETUP gpu_bundles)
  add_test(NAME without_gpu COMMAND ${PROJECT_SOURCE_DIR}/tests/gpu/without_gpu
                                    $<TARGET_FILE:trireme> ${gpu_bundles}/gpt-fp32.bundle)
  set_tests_properties(without_gpu PROPERTIES LABELS gpu FIXTURES_REQUIRED gpu_bundles
                       SKIP_RETURN_CODE 77)
  trireme_test_of_sanitized_tests(FIXTURES_REQUIRED gpu_bundles)
else()
  trireme_test(gpu gpu OPTIMISED DEPS trireme_runtime)
  trireme_test_of_sanitized_tests()
endif()

trireme_test(base ir/base DEPS trireme_base)
trireme_test(spec ir/spec DEPS trireme_spec)
trireme_test(program ir/program DEPS trireme_program)
trireme_test(graph ir/graph DEPS trireme_graph)
trireme_test(plan ir/plan DEPS trireme_plan)
trireme_test(schedule ir/schedule DEPS trireme_schedule)
trireme_test(expand ir/expand OPTIMISED DEPS trireme_expand)
trireme_test(cost cost_models DEPS trireme_cost)
trireme_test(planner planner OPTIMISED DEPS trireme_planner)
trireme_test(export export DEPS trireme_export)
trireme_test(import import DEPS trireme_import trireme_export)
trireme_test(runtime runtime OPTIMISED DEPS trireme_runtime)
if(TRIREME_MLIR)
  trireme_test(cli cli DEPS trireme_cli trireme_dialect BINARY)
else()
  trireme_test(cli cli DEPS trireme_cli BINARY)
endif()
trireme_test(validation validation DEPS trireme_planner BINARY)
trireme_test(fuzz fuzz DEPS trireme_cost trireme_runtime)
trireme_test(golden golden DEPS trireme_cli BINARY)
if(TRIREME_MLIR)
  trireme_test(dialect ir/dialect DEPS trireme_dialect)
  trireme_test(codegen codegen OPTIMISED DEPS trireme_codegen trireme_runtime)
  trireme_test(equivalence equivalence OPTIMISED DEPS trireme_cost trireme_runtime trireme_codegen
               PROPERTIES COST 20)
else()
  trireme_test(equivalence equivalence OPTIMISED DEPS trireme_cost trireme_runtime PROPERTIES COST 20)
endif()

# A test that no executable compiles would pass for ever.
file(GLOB_RECURSE orphans CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*.cpp)
get_property(compiled GLOBAL PROPERTY TRIREME_TEST_SOURCES)
list(REMOVE_ITEM orphans ${compiled} ${support_sources})
if(NOT TRIREME_MLIR)
  list(FILTER orphans EXCLUDE REGEX "/tests/(ir/dialect|codegen)/")
endif()
if(orphans)
  list(JOIN orphans "\n  " orphans)
  message(FATAL_ERROR "These files belong to no test executable; tests/ mirrors the folders of the "
                      "sources (cmake/tests.cmake):\n  ${orphans}")
endif()

# The Python package, by pytest; mypy checks its types.
if(TARGET trireme_python AND TARGET trireme)
  add_test(NAME python
           COMMAND ${PROJECT_SOURCE_DIR}/tests/python/run ${Python_EXECUTABLE}
                   ${PROJECT_BINARY_DIR}/python-tests ${PROJECT_BINARY_DIR}/python)
  set_tests_properties(python PROPERTIES LABELS python TIMEOUT 600 COST 20
                       ENVIRONMENT "TRIREME_BINARY=$<TARGET_FILE:trireme>")
endif()

# The layering check: that this tree passes it, and that it finds what it should.
add_test(NAME layering
         COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}
                 -P ${PROJECT_SOURCE_DIR}/cmake/layering.cmake)
add_test(NAME layering_check
         COMMAND ${CMAKE_COMMAND} -DSCRATCH=${PROJECT_BINARY_DIR}/layering_check
                 -P ${PROJECT_SOURCE_DIR}/tests/cmake/layering_check.cmake)
set_tests_properties(layering layering_check PROPERTIES LABELS layering)
add_test(NAME preset_filters
         COMMAND ${CMAKE_COMMAND} -DPRESETS=${PROJECT_SOURCE_DIR}/CMakePresets.json
                 -P ${PROJECT_SOURCE_DIR}/tests/cmake/preset_filters.cmake)

# The pages of --report in a headless Chromium. Debian's Selenium belongs to Debian's Python.
find_program(TRIREME_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(TARGET trireme AND TRIREME_SYSTEM_PYTHON)
  add_test(NAME html_report
           COMMAND ${TRIREME_SYSTEM_PYTHON} ${PROJECT_SOURCE_DIR}/tests/html_report/html_report_test.py
                   $<TARGET_FILE:trireme> ${PROJECT_SOURCE_DIR}
                   $<$<BOOL:${TRIREME_MLIR}>:--compiler=$<TARGET_FILE:trireme>>
           COMMAND_EXPAND_LISTS)
  set_tests_properties(html_report PROPERTIES LABELS cli TIMEOUT 600 COST 40
                       SKIP_RETURN_CODE 77)
endif()

# The table of validation errors is that of these cost models; without measurement files it is skipped.
if(TARGET trireme AND TRIREME_SYSTEM_PYTHON AND NOT TRIREME_SANITIZE)
  add_test(NAME validation_table
           COMMAND ${TRIREME_SYSTEM_PYTHON} ${PROJECT_SOURCE_DIR}/cost_models/validate.py --check
                   $<TARGET_FILE:trireme>)
  set_tests_properties(validation_table PROPERTIES LABELS cost TIMEOUT 300
                       SKIP_RETURN_CODE 77)
endif()

# The commands of the pages for people run as they are written, and print what the pages show.
if(TARGET trireme AND TRIREME_SYSTEM_PYTHON AND NOT TRIREME_SANITIZE)
  file(GLOB pages CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/docs/*.md)
  list(REMOVE_ITEM pages docs/python.md)  # tests/python runs that
  if(NOT TRIREME_MLIR)
    list(REMOVE_ITEM pages docs/training.md)  # it compiles
  endif()
  foreach(page IN LISTS pages ITEMS README.md)
    add_test(NAME pages/${page}
             COMMAND ${TRIREME_SYSTEM_PYTHON} ${PROJECT_SOURCE_DIR}/tests/docs/pages_test.py
                     $<TARGET_FILE:trireme> ${PROJECT_SOURCE_DIR} ${page})
    set_tests_properties(pages/${page} PROPERTIES LABELS pages TIMEOUT 600)
  endforeach()
endif()

# tests/gpu/run, with commands that are made up.
if(TRIREME_SYSTEM_PYTHON AND NOT TRIREME_SANITIZE)
  add_test(NAME gpu_run COMMAND ${TRIREME_SYSTEM_PYTHON} ${PROJECT_SOURCE_DIR}/tests/gpu/run_test.py
                                ${PROJECT_SOURCE_DIR})
  set_tests_properties(gpu_run PROPERTIES LABELS gpu TIMEOUT 300)
endif()

# Steps that are predicted from a GPU's calibration.
if(TARGET trireme AND TRIREME_SYSTEM_PYTHON AND NOT TRIREME_SANITIZE)
  add_test(NAME predicted_gpu_steps
           COMMAND ${TRIREME_SYSTEM_PYTHON} ${PROJECT_SOURCE_DIR}/tests/gpu/predict_test.py
                   $<TARGET_FILE:trireme> ${PROJECT_SOURCE_DIR})
  set_tests_properties(predicted_gpu_steps PROPERTIES LABELS cli TIMEOUT 600)
endif()

# The scripts of bench/gpu, with stand-ins for what they run.
if(TRIREME_SYSTEM_PYTHON)
  add_test(NAME gpu_bench
           COMMAND ${TRIREME_SYSTEM_PYTHON} ${PROJECT_SOURCE_DIR}/tests/gpu/bench_test.py ${PROJECT_SOURCE_DIR})
  set_tests_properties(gpu_bench PROPERTIES LABELS cli TIMEOUT 600 COST 20)
  if(NOT TRIREME_SANITIZE)
    add_test(NAME gpu_attention
             COMMAND ${TRIREME_SYSTEM_PYTHON} ${PROJECT_SOURCE_DIR}/tests/gpu/bench_test.py ${PROJECT_SOURCE_DIR}
                     $<TARGET_FILE:gpu_test>)
    set_tests_properties(gpu_attention PROPERTIES LABELS gpu TIMEOUT 600)
  endif()
endif()

# GPU memory beside the arenas, as on a GPU machine, but on an emulated GPU.
if(TARGET trireme AND TRIREME_MLIR AND TRIREME_SYSTEM_PYTHON AND NOT TRIREME_SANITIZE)
  add_test(NAME gpu_memory COMMAND ${TRIREME_SYSTEM_PYTHON} ${PROJECT_SOURCE_DIR}/bench/gpu/memory
                                   $<TARGET_FILE:gpu_test> ${gpu_bundles}/gpt-bf16.bundle)
  set_tests_properties(gpu_memory PROPERTIES LABELS gpu FIXTURES_REQUIRED gpu_bundles TIMEOUT 600)
endif()

# The runtime alone, built from an archive, and what a GPU machine builds of one.
if(TARGET trireme AND NOT TRIREME_SANITIZE)
  add_test(NAME runtime_only
           COMMAND ${PROJECT_SOURCE_DIR}/tests/runtime_only/run $<TARGET_FILE:trireme>
                   ${PROJECT_BINARY_DIR}/runtime_only $<BOOL:${TRIREME_MLIR}>)
  add_test(NAME runtime_with_tests
           COMMAND ${PROJECT_SOURCE_DIR}/tests/runtime_only/with_tests $<TARGET_FILE:trireme>
                   ${PROJECT_BINARY_DIR}/runtime_with_tests $<BOOL:${TRIREME_MLIR}>)
  set_tests_properties(runtime_only runtime_with_tests PROPERTIES LABELS cli TIMEOUT 600 COST 60)
endif()

# What the GPU kernels need, the library's and generated ones.
get_filename_component(TRIREME_CUDA_BIN "${TRIREME_NVCC}" DIRECTORY)
find_program(TRIREME_PTXAS ptxas HINTS "${TRIREME_CUDA_BIN}" PATHS /usr/local/cuda/bin)
if(TRIREME_NVCC AND NOT TRIREME_PTXAS)
  message(FATAL_ERROR "${TRIREME_NVCC} is here, but not the ptxas that belongs to it")
elseif(NOT TRIREME_NVCC AND NOT TRIREME_CUDA STREQUAL "OFF")
  message(WARNING "The GPU kernels are NOT COMPILED here, and their tests are skipped: "
                  "${nvcc_fault}. -DTRIREME_CUDA=ON makes this an error, OFF silent.")
endif()
add_test(NAME gpu_registers
         COMMAND ${CMAKE_COMMAND} -DPTX=${TRIREME_CUDA_FOLDER}/kernels_80.ptx
                 -DFOLDER=${PROJECT_BINARY_DIR}/gpu_registers -DPTXAS=${TRIREME_PTXAS}
                 $<$<AND:$<TARGET_EXISTS:trireme>,$<BOOL:${TRIREME_MLIR}>>:-DBUNDLES=${gpu_bundles}>
                 -P ${PROJECT_SOURCE_DIR}/tests/cmake/gpu_registers.cmake
         COMMAND_EXPAND_LISTS)
set_tests_properties(gpu_registers PROPERTIES LABELS runtime COST 60 TIMEOUT 600
                     SKIP_REGULAR_EXPRESSION "SKIPPED")
if(TARGET trireme AND TRIREME_MLIR AND NOT TRIREME_SANITIZE)
  set_tests_properties(gpu_registers PROPERTIES FIXTURES_REQUIRED gpu_bundles
    DEPENDS "equivalence/GpuCode.OfGpt2AssemblesWithoutSpills;equivalence/GpuCode.OfLlamaAssemblesWithoutSpills")
endif()
target_compile_definitions(equivalence_test PRIVATE
  TRIREME_PTXAS="$<$<BOOL:${TRIREME_PTXAS}>:${TRIREME_PTXAS}>")
if(TRIREME_NVCC)
  target_include_directories(runtime_test SYSTEM PRIVATE ${TRIREME_CUDA_BIN}/../include)
endif()

# lit: tests/lit/**/*.mlir, run by trireme-opt and FileCheck.
file(GLOB_RECURSE lit_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/lit/*.mlir)
if(TARGET trireme-opt AND lit_sources)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  find_file(TRIREME_LIT lit.py REQUIRED NO_DEFAULT_PATH
            PATHS ${LLVM_TOOLS_BINARY_DIR}/../build/utils/lit)
  configure_file(${PROJECT_SOURCE_DIR}/tests/lit/lit.site.cfg.py.in
                 ${PROJECT_BINARY_DIR}/lit/lit.site.cfg.py @ONLY)
  add_test(NAME lit COMMAND ${Python3_EXECUTABLE} ${TRIREME_LIT} -sv ${PROJECT_BINARY_DIR}/lit)
  set_tests_properties(lit PROPERTIES LABELS lit TIMEOUT 600 COST 20)
endif()
