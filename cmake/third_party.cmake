# The headers of others that the runtime needs: fmt, nlohmann_json, tl-expected and CLI11, used from
# headers alone. An archive of `trireme package-runtime` brings them in third_party/; elsewhere they
# are where Debian's packages put them.
#
#   TRIREME_THIRD_PARTY   per header: folder of headers, a header in it, Debian's package
set(TRIREME_THIRD_PARTY
    "fmt|fmt/format.h|libfmt-dev"
    "nlohmann|nlohmann/json.hpp|nlohmann-json3-dev"
    "tl|tl/expected.hpp|libexpected-dev"
    "CLI|CLI/CLI.hpp|libcli11-dev")

set(bundled ${PROJECT_SOURCE_DIR}/third_party/include)
set(TRIREME_THIRD_PARTY_DIRS "")
foreach(entry IN LISTS TRIREME_THIRD_PARTY)
  string(REPLACE "|" ";" entry "${entry}")
  list(GET entry 0 name)
  list(GET entry 1 header)
  list(GET entry 2 package)
  if(EXISTS ${bundled}/${header})
    set(TRIREME_INCLUDE_${name} ${bundled} CACHE PATH "Folder of ${header}" FORCE)
  endif()
  find_path(TRIREME_INCLUDE_${name} ${header} DOC "Folder of ${header}")
  if(NOT TRIREME_INCLUDE_${name})
    message(FATAL_ERROR "${header} is missing: install Debian's ${package}, set "
                        "TRIREME_INCLUDE_${name} to the folder that holds it, or build from an "
                        "archive of `trireme package-runtime`, which brings it")
  endif()
  list(APPEND TRIREME_THIRD_PARTY_DIRS ${TRIREME_INCLUDE_${name}})
endforeach()

# GoogleTest's sources, with which an archive builds its tests. Debian's googletest has them.
find_path(TRIREME_GTEST_SOURCES googletest/src/gtest-all.cc
          PATHS ${PROJECT_SOURCE_DIR}/third_party/googletest /usr/src/googletest NO_DEFAULT_PATH
          DOC "Folder of GoogleTest's sources")

# The targets that find_package() would make, of headers alone.
if(TRIREME_RUNTIME_ONLY)
  list(REMOVE_DUPLICATES TRIREME_THIRD_PARTY_DIRS)
  foreach(target fmt::fmt tl::expected nlohmann_json::nlohmann_json CLI11::CLI11)
    add_library(${target} INTERFACE IMPORTED)
    # The compiler looks in /usr/include by itself, and must not be told to.
    foreach(folder IN LISTS TRIREME_THIRD_PARTY_DIRS)
      if(NOT folder STREQUAL "/usr/include")
        target_include_directories(${target} INTERFACE ${folder})
      endif()
    endforeach()
  endforeach()
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
endif()
