# Assembles the kernels' PTX for every GPU that bundles are made for, lists what each kernel needs, and
# fails if one spills registers.
#
#   cmake -DPTX=<file> [-DPTXAS=<program>] -P tests/cmake/ptx_spills.cmake
cmake_minimum_required(VERSION 3.25)
if(NOT PTXAS OR NOT EXISTS "${PTX}")
  message("SKIPPED: no ptxas, or a build without kernels")
  return()
endif()
foreach(arch sm_80 sm_90 sm_90a)
  execute_process(COMMAND ${PTXAS} -v -arch=${arch} ${PTX} -o ${PTX}.${arch}.cubin
                  RESULT_VARIABLE result OUTPUT_VARIABLE report ERROR_VARIABLE report)
  if(result)
    message(FATAL_ERROR "${arch}: ptxas failed:\n${report}")
  endif()
  string(REGEX MATCHALL "Compiling entry function '[^']+'" kernels "${report}")
  list(LENGTH kernels count)
  if(count LESS 90)
    message(FATAL_ERROR "${arch}: ${count} kernels, expected 90 and more")
  endif()
  string(REGEX MATCHALL "Function properties for [^\n]+\n[^\n]+|Used [0-9]+ registers" lines
         "${report}")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "Function properties for ([^\n]+)\n *" "\\1: " line "${line}")
    message("${arch} ${line}")
    if(line MATCHES "[1-9][0-9]* bytes spill")
      message(SEND_ERROR "${arch}: spills: ${line}")
    endif()
  endforeach()
endforeach()
