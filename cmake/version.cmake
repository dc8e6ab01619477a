# ir/base/version.h from the project version and, in a git checkout, `git describe`.
set(TRIREME_GIT_DESCRIPTION "")
find_package(Git QUIET)
if(EXISTS ${PROJECT_SOURCE_DIR}/packed_description.txt)  # an archive of `trireme package-runtime`
  file(READ ${PROJECT_SOURCE_DIR}/packed_description.txt TRIREME_GIT_DESCRIPTION)
  string(STRIP "${TRIREME_GIT_DESCRIPTION}" TRIREME_GIT_DESCRIPTION)
elseif(Git_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty
                  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                  OUTPUT_VARIABLE TRIREME_GIT_DESCRIPTION
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/version.h.in
               ${TRIREME_GENERATED_DIR}/ir/base/version.h @ONLY)
