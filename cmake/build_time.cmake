# What keeps the time to build short: headers of others are parsed once, and several files are compiled
# as one, so that what they all instantiate is compiled once. Not in Debug builds without a sanitizer,
# where every file must include what it uses and name what it defines for itself alone.
if(TRIREME_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Release")
  set(short_build ON)
else()
  set(short_build OFF)
endif()
# The runtime alone is built from other lists of files, by compilers that are not known.
set(join_sources ${short_build})
if(TRIREME_RUNTIME_ONLY)
  set(join_sources OFF)
endif()
option(TRIREME_JOIN_SOURCES "Compile several source files as one: shorter builds of everything, longer ones after a change"
       ${join_sources})

# trireme_join_sources(<target>)
function(trireme_join_sources target)
  if(TRIREME_JOIN_SOURCES)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # To GCC a file that another one includes is a header, whose classes others may see.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# trireme_precompile(<target> [<own options>]): unless it has options of its own, the first target's
# headers serve it.
function(trireme_precompile target own_options)
  if(NOT short_build)
    return()
  endif()
  get_property(first GLOBAL PROPERTY TRIREME_HEADERS)
  if(first AND NOT own_options)
    target_precompile_headers(${target} REUSE_FROM ${first})
    return()
  endif()
  target_precompile_headers(${target} PRIVATE <fmt/format.h> <nlohmann/json.hpp> <algorithm> <cmath>
                            <functional> <map> <memory> <optional> <string> <utility> <vector>)
  if(NOT own_options)
    set_property(GLOBAL PROPERTY TRIREME_HEADERS ${target})
  endif()
endfunction()
