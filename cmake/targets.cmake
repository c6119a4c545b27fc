# manta_library(NAME SRCS a.cc ... [DEPS t ...] [ATEN])               a static library manta_NAME
# manta_executable(NAME SRCS ... [DEPS ...] [ATEN])                   build/bin/NAME
# manta_test(NAME SRCS ... [DEPS ...] [ATEN] [TIMEOUT seconds])       a GoogleTest program registered with ctest
# manta_benchmark(NAME SRCS ... [DEPS ...] [ATEN])                    build/bin/NAME, a Google Benchmark program, not a test
#
# ATEN: the sources use <ATen/ATen.h>; they share one precompiled header.

macro(_manta_parse)
  cmake_parse_arguments(A "ATEN" "TIMEOUT" "SRCS;DEPS" ${ARGN})
  if(A_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "unknown arguments: ${A_UNPARSED_ARGUMENTS}")
  endif()
endmacro()

function(_manta_link target aten)
  target_link_libraries(${target} PUBLIC ${ARGN})
  if(aten)
    target_link_libraries(${target} PUBLIC torch_cpu)
    # As the precompiled header is built: executables would get -fPIE instead.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -pthread -fPIC)
    target_precompile_headers(${target} REUSE_FROM aten_pch)
  endif()
endfunction()

function(manta_library name)
  _manta_parse(${ARGN})
  add_library(manta_${name} STATIC ${A_SRCS})
  _manta_link(manta_${name} ${A_ATEN} ${A_DEPS})
endfunction()

function(manta_executable name)
  _manta_parse(${ARGN})
  add_executable(${name} ${A_SRCS})
  _manta_link(${name} ${A_ATEN} ${A_DEPS})
endfunction()

function(manta_test name)
  _manta_parse(${ARGN})
  add_executable(${name} ${A_SRCS})
  _manta_link(${name} ${A_ATEN} ${A_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  # What a test that is killed leaves behind lies in the build folder, and two build folders' tests do not meet.
  set(scratch "${CMAKE_BINARY_DIR}/tests/tmp")
  file(MAKE_DIRECTORY "${scratch}")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${A_TIMEOUT}
                       ENVIRONMENT "MANTA_BUILD_DIR=${CMAKE_BINARY_DIR};TMPDIR=${scratch};TEST_TMPDIR=${scratch}")
endfunction()

function(manta_benchmark name)
  _manta_parse(${ARGN})
  add_executable(${name} ${A_SRCS})
  _manta_link(${name} ${A_ATEN} ${A_DEPS} benchmark::benchmark benchmark::benchmark_main)
endfunction()
