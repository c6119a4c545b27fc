# Language standard, warnings, compiler cache, linker and sanitizers for everything that is built here.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # asserts stay: a CHECK that never runs protects nobody

find_program(MANTA_CCACHE ccache)
if(MANTA_CCACHE)
  # The settings let precompiled headers hit the cache, from any build folder of this checkout.
  set(MANTA_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${MANTA_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MANTA_LAUNCHER})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${MANTA_LAUNCHER})
endif()

find_program(MANTA_MOLD mold)
if(MANTA_MOLD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
                    $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers> $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
include_directories(${CMAKE_SOURCE_DIR})

if(MANTA_SANITIZER)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MANTA_SANITIZER}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer> $<$<COMPILE_LANGUAGE:CXX>:-g1>)
  add_link_options(-fsanitize=${MANTA_SANITIZER})
endif()
