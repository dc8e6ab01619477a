# Lists what the GPU kernels need of a multiprocessor, and fails if one spills registers.
#
#   cmake -DPTX=<file> -DFOLDER=<folder> [-DPTXAS=<program>] [-DBUNDLES=<folder>]
#         -P tests/cmake/gpu_registers.cmake
#
# PTX: the library's kernels, here for one GPU; where warnings are errors the build has assembled them for
# sm_80 and sm_90 without a spill. BUNDLES: of which generated kernels are taken, some in fp64, of odd sizes
# and of split models; what models need is in the logs in FOLDER/models, which the tests GpuCode write. What ptxas says goes into
# FOLDER, as SOURCE.TARGET.log; the list is <FOLDER>.md.
cmake_minimum_required(VERSION 3.25)
if(NOT EXISTS "${PTX}")
  message("SKIPPED: a build without GPU kernels: of CUDA, nvcc is not here or TRIREME_CUDA is OFF")
  return()
elseif(NOT PTXAS)
  message("SKIPPED: no ptxas beside nvcc or in PATH")
  return()
endif()
set(target sm_90)
file(MAKE_DIRECTORY ${FOLDER})
file(GLOB logs ${FOLDER}/*.log)
list(APPEND logs ${FOLDER}.md)
file(REMOVE ${logs})  # perhaps of bundles that are no more

# assemble(<source> <file>)
function(assemble source file)
  execute_process(COMMAND ${PTXAS} -v --warning-as-error -arch=${target} ${file} -o ${FOLDER}/cubin
                  RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(result)
    message(FATAL_ERROR "${source}, ${target}: ptxas failed:\n${said}")
  endif()
  file(WRITE ${FOLDER}/${source}.${target}.log "${said}")
endfunction()
assemble(library ${PTX})
if(BUNDLES)
  foreach(source gpt-fp64 llama-fp64 odd-gpt-bf16 odd-gpt-fp32 odd-llama-bf16 split-llama-bf16)
    assemble(${source} ${BUNDLES}/${source}.bundle/kernels.ptx)
  endforeach()
endif()
file(REMOVE ${FOLDER}/cubin)

# number(<variable> <regular expression with one group> <text>): the greatest match, or 0.
function(number variable expression text)
  set(greatest 0)
  string(REGEX MATCHALL "${expression}" matches "${text}")
  foreach(match IN LISTS matches)
    string(REGEX REPLACE "${expression}" "\\1" value "${match}")
    if(value GREATER greatest)
      set(greatest ${value})
    endif()
  endforeach()
  set(${variable} ${greatest} PARENT_SCOPE)
endfunction()

set(rows "")
set(spills "")
set(num_library 0)
set(num_generated 0)
file(GLOB logs ${FOLDER}/*.log ${FOLDER}/models/*.log)
foreach(log IN LISTS logs)
  get_filename_component(name ${log} NAME)
  string(REGEX MATCH "^(.*)\\.(sm_[0-9a-z]+)\\.log$" name "${name}")
  set(source ${CMAKE_MATCH_1})
  set(target ${CMAKE_MATCH_2})
  file(READ ${log} said)
  # A list of what is said of one kernel each, device functions that it calls included.
  string(REGEX REPLACE "[][;]" "" said "${said}")
  string(REPLACE "Compiling entry function '" ";" said "${said}")
  list(POP_FRONT said)
  foreach(part IN LISTS said)
    string(REGEX MATCH "^[^']+" kernel "${part}")
    number(registers "Used ([0-9]+) registers" "${part}")
    number(shared "([0-9]+) bytes smem" "${part}")
    number(stack "([0-9]+) bytes stack frame" "${part}")
    number(spilled "([0-9]+) bytes spill" "${part}")
    if(registers EQUAL 0)
      message(FATAL_ERROR "${log} does not say how many registers ${kernel} uses:\n${part}")
    endif()
    if(spilled GREATER 0)
      list(APPEND spills "${source}, ${kernel}, ${target}: ${spilled} bytes")
    endif()
    list(APPEND rows "| ${source} | ${kernel} | ${target} | ${registers} | ${shared} | ${stack} | ${spilled} |")
    if(source STREQUAL "library")
      math(EXPR num_library "${num_library} + 1")
    else()
      math(EXPR num_generated "${num_generated} + 1")
    endif()
  endforeach()
endforeach()

set(text "# Registers of the GPU kernels\n\n")
list(JOIN rows "\n" rows)
string(APPEND text "By ptxas: registers of a thread, bytes of shared memory of a block, bytes of a "
       "thread's stack, and of them bytes of spilled registers.\n\n"
       "| source | kernel | target | registers | shared | stack | spilled |\n"
       "|---|---|---|--:|--:|--:|--:|\n${rows}\n")
file(WRITE ${FOLDER}.md "${text}")
if(num_library LESS 90)
  message(FATAL_ERROR "${num_library} kernels of the library, expected 90 and more")
endif()
if(BUNDLES AND num_generated LESS 80)
  message(FATAL_ERROR "${num_generated} generated kernels, expected 80 and more")
endif()
if(spills)
  list(JOIN spills "\n  " spills)
  message(FATAL_ERROR "Kernels that spill registers (all: ${FOLDER}.md):\n  ${spills}")
endif()
message("passed: ${num_library} kernels of the library and ${num_generated} generated ones "
        "without spills: ${FOLDER}.md")
