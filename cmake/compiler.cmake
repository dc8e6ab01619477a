# Language level, optimisation, warnings, sanitizers and the compiler cache.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")

find_program(TRIREME_CCACHE ccache)
if(TRIREME_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this ccache caches nothing that uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros ${TRIREME_CCACHE})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(CMAKE_PCH_INSTANTIATE_TEMPLATES ON)
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
endif()

# Designated initialisers that leave fields at their default are wanted.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers)
if(TRIREME_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # No symbol of ours is replaced when the Python module is loaded: GCC may inline functions that a
  # header declares, as Clang does anyway. Searches take 3 % fewer instructions.
  add_compile_options(-fno-semantic-interposition)
  # GCC 12 reports these inside std::string, std::optional and std::vector when it inlines them
  # (GCC bugs 105329, 105562, 105651, 107852): off or no error, for they point at no line of ours.
  add_compile_options(-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
                      -Wno-error=maybe-uninitialized -Wno-error=free-nonheap-object
                      -Wno-error=null-dereference)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # libstdc++ 12's std::stable_sort calls its own std::get_temporary_buffer, deprecated in C++17, and
  # Clang reports it in every caller. GCC reports what is deprecated in our code.
  add_compile_options(-Wno-deprecated-declarations)
endif()

if(TRIREME_SANITIZE)
  # Line tables are all that a report of a sanitizer needs; full debug information costs a fifth of
  # the time to build.
  set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
  add_compile_options(-fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  # They were a third of the time to build: AddressSanitizer finds what is read or written through
  # a null pointer or beyond an object, and nothing here casts down.
  if(TRIREME_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize=null,object-size,vptr)
  endif()
  add_link_options(-fsanitize=${TRIREME_SANITIZE})
  if(TRIREME_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)  # std::atomic_thread_fence, which TSan does not model.
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options(-Wno-pass-failed)  # Loops that are vector code only without their checks.
  endif()
endif()

# Generated headers are included by the same kind of path as the others: "ir/base/version.h".
set(TRIREME_GENERATED_DIR ${PROJECT_BINARY_DIR}/generated)
