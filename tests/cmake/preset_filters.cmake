# The filters of CMakePresets.json compile. CMake's regular expressions take nine groups at most; with a
# tenth ctest excludes nothing, or includes nothing, without an error.
#
# Run: cmake -DPRESETS=<CMakePresets.json> -P tests/cmake/preset_filters.cmake
file(READ ${PRESETS} presets)
string(JSON last LENGTH "${presets}" testPresets)
math(EXPR last "${last} - 1")
set(num_filters 0)
foreach(i RANGE ${last})
  foreach(kind include exclude)
    foreach(of name label)
      string(JSON filter ERROR_VARIABLE missing GET "${presets}" testPresets ${i} filter ${kind} ${of})
      if(NOT missing)
        math(EXPR num_filters "${num_filters} + 1")
        if("" MATCHES "${filter}")  # an error of CMake's that shows it, unless it compiles
          message(SEND_ERROR "a filter of the test presets matches everything: ${filter}")
        endif()
      endif()
    endforeach()
  endforeach()
endforeach()
if(num_filters EQUAL 0)
  message(SEND_ERROR "${PRESETS} has no filter: has their place changed?")
endif()
