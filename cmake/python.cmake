# The Python package: python/module.cpp as trireme/_core beside the sources of python/trireme, in
# <build>/python. A wheel (pyproject.toml) has the same two parts.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
set(PYBIND11_FINDPYTHON ON)
find_package(pybind11 2.10 REQUIRED CONFIG)

pybind11_add_module(trireme_python MODULE NO_EXTRAS ${PROJECT_SOURCE_DIR}/python/module.cpp)
target_link_libraries(trireme_python PRIVATE trireme_planner trireme_import)
target_include_directories(trireme_python PRIVATE ${PROJECT_SOURCE_DIR})
set_target_properties(trireme_python PROPERTIES
  OUTPUT_NAME _core
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python/trireme)
install(TARGETS trireme_python LIBRARY DESTINATION trireme COMPONENT python)

# Copied again whenever one of them changes.
file(GLOB python_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/trireme/*)
list(FILTER python_sources EXCLUDE REGEX "__pycache__")
foreach(source IN LISTS python_sources)
  cmake_path(GET source FILENAME name)
  configure_file(${source} ${PROJECT_BINARY_DIR}/python/trireme/${name} COPYONLY)
endforeach()
