# The CUDA backend's kernels, compiled by nvcc. Nothing else of CUDA is needed to build: the driver
# and the libraries are loaded at run time.
#
#   TRIREME_NVCC           path of nvcc, or false: build without kernels
#   TRIREME_CUDA_IMAGES    what is compiled: code for sm_80 and sm_90, and PTX for later GPUs
if(NOT TRIREME_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TRIREME_CUDA=${TRIREME_CUDA}: must be AUTO, ON or OFF")
endif()
set(TRIREME_NVCC "")
set(TRIREME_CUDA_IMAGES "")
if(NOT TRIREME_CUDA STREQUAL "OFF")
  find_program(TRIREME_NVCC_PROGRAM nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda/bin)
  if(TRIREME_NVCC_PROGRAM)
    # 12.0 is the first with C++20 and with sm_90a.
    execute_process(COMMAND ${TRIREME_NVCC_PROGRAM} --version OUTPUT_VARIABLE nvcc_version
                    ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" matched "${nvcc_version}")
    set(nvcc_fault "${TRIREME_NVCC_PROGRAM} is older than 12.0")
    if(matched AND CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12.0)
      # It may not know the host's compiler, of which it only reads headers; g++ also where the rest
      # is built by Clang.
      find_program(TRIREME_NVCC_HOST NAMES g++ c++)
      set(probe ${PROJECT_BINARY_DIR}/cuda_probe)
      file(CONFIGURE OUTPUT ${probe}.cu CONTENT "#include <cmath>\n__global__ void probe() {}\n")
      execute_process(COMMAND ${TRIREME_NVCC_PROGRAM} -std=c++20 -ccbin ${TRIREME_NVCC_HOST}
                              -arch=compute_80 -ptx -o ${probe}.ptx ${probe}.cu
                      RESULT_VARIABLE nvcc_fails OUTPUT_VARIABLE nvcc_says ERROR_VARIABLE nvcc_says)
      if(nvcc_fails)
        set(nvcc_fault "${TRIREME_NVCC_PROGRAM} does not work with ${TRIREME_NVCC_HOST}: ${nvcc_says}")
      else()
        set(TRIREME_NVCC ${TRIREME_NVCC_PROGRAM})
      endif()
    endif()
  else()
    set(nvcc_fault "no nvcc on the path, in CUDA_HOME or in /usr/local/cuda")
  endif()
  if(TRIREME_NVCC)
    message(STATUS "GPU kernels by ${TRIREME_NVCC}")
  elseif(TRIREME_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TRIREME_CUDA=ON: ${nvcc_fault}. It takes CUDA 12.0 or later; AUTO builds "
                        "without GPU kernels where there is none.")
  else()
    message(STATUS "No GPU kernels: ${nvcc_fault}")
  endif()
endif()

set(TRIREME_CUDA_FOLDER ${PROJECT_BINARY_DIR}/cuda)
# No contraction: results are those of the host's kernels but for the order of sums.
set(TRIREME_NVCC_FLAGS -std=c++20 -O3 --expt-relaxed-constexpr --fmad=false -I${PROJECT_SOURCE_DIR})
set(TRIREME_NVCC_WARNINGS "")
if(TRIREME_WERROR)  # nvcc's, and those of ptxas, of which spilled registers are one
  set(TRIREME_NVCC_WARNINGS -Werror all-warnings -Xptxas --warning-as-error,--warn-on-spills)
endif()

# trireme_cuda_image(<file> <input> <nvcc arguments>...): adds the file to TRIREME_CUDA_IMAGES.
function(trireme_cuda_image file input)
  set(output ${TRIREME_CUDA_FOLDER}/${file})
  set(depfile "")
  set(lower "")
  if(input MATCHES "[.]cu$")
    set(depfile DEPFILE ${output}.d)
    set(lower COMMAND ${CMAKE_COMMAND} -DPTX=${output} -P
        ${PROJECT_SOURCE_DIR}/cmake/lower_ptx.cmake)
    list(APPEND ARGN ${TRIREME_NVCC_FLAGS} -ccbin ${TRIREME_NVCC_HOST} -MD -MF ${output}.d
         -MT ${output})
  endif()
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${TRIREME_CUDA_FOLDER}
    COMMAND ${TRIREME_NVCC} ${TRIREME_NVCC_WARNINGS} ${ARGN} -o ${output} ${input}
    ${lower}
    DEPENDS ${input}
    ${depfile}
    COMMENT "nvcc ${file}"
    VERBATIM)
  set(TRIREME_CUDA_IMAGES ${TRIREME_CUDA_IMAGES} ${output} PARENT_SCOPE)
endfunction()

# The kernels are compiled once, to PTX, which is then assembled for each kind of GPU.
if(TRIREME_NVCC)
  set(ptx ${TRIREME_CUDA_FOLDER}/kernels_80.ptx)
  trireme_cuda_image(kernels_80.ptx ${PROJECT_SOURCE_DIR}/runtime/device/cuda/kernels/all.cu
                     -arch=compute_80 -ptx)
  trireme_cuda_image(kernels_sm_80.cubin ${ptx} -arch=sm_80 -cubin)
  trireme_cuda_image(kernels_sm_90.cubin ${ptx} -arch=sm_90 -cubin)
endif()
