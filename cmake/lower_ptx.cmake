# cmake -DPTX=<file> -P lower_ptx.cmake
#
# nvcc says that its PTX is of its own version, which drivers before that version of CUDA refuse,
# whatever is in it. This says 8.0, of CUDA 12.0; the assembler, which reads it next, refuses what
# that does not have.
file(READ ${PTX} text)
string(REGEX REPLACE "\n[.]version [0-9.]+\n" "\n.version 8.0\n" lowered "${text}")
if(NOT lowered MATCHES "\n[.]version 8[.]0\n")
  message(FATAL_ERROR "${PTX} has no line with its version")
endif()
file(WRITE ${PTX} "${lowered}")
