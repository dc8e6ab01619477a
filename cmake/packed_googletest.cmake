# GoogleTest for a build of the runtime alone: from the sources that an archive brought, without their
# own build, or as installed. Makes GTest::gtest, GTest::gmock and GTest::gtest_main, or nothing.
set(packed ${PROJECT_SOURCE_DIR}/third_party/googletest)
if(EXISTS ${packed}/googletest/src/gtest-all.cc)
  add_library(packed_googletest STATIC ${packed}/googletest/src/gtest-all.cc
              ${packed}/googletest/src/gtest_main.cc ${packed}/googlemock/src/gmock-all.cc)
  target_include_directories(packed_googletest SYSTEM
    PUBLIC ${packed}/googletest/include ${packed}/googlemock/include
    PRIVATE ${packed}/googletest ${packed}/googlemock)
  target_link_libraries(packed_googletest PUBLIC Threads::Threads)
  foreach(name gtest gmock gtest_main)
    add_library(GTest::${name} ALIAS packed_googletest)
  endforeach()
else()
  find_package(GTest QUIET)
endif()
