# manta_static_grpc(TARGET ...): the programs get gRPC, Protocol Buffers, Abseil and OpenSSL out of their archives. Loading and relocating some 50 shared libraries costs 10 to 20 ms of CPU at each start, which is most of what
# starting a small worker costs. Programs that link LibTorch stay as they are: their time goes elsewhere, and LibTorch
# brings a C++ library of its own.
#
# The archives are named before everything else, so that their symbols are taken and none of the shared libraries that
# the targets name is needed any more. That is how mold (and lld) resolve; GNU ld takes from an archive only what it has
# missed so far, so without mold programs are linked dynamically.
set(MANTA_STATIC_GRPC OFF)
if(MANTA_MOLD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT MANTA_SANITIZER)
  pkg_check_modules(MANTA_GRPC_CLOSURE QUIET grpc++ protobuf)
  set(MANTA_STATIC_ARCHIVES)
  foreach(library ${MANTA_GRPC_CLOSURE_STATIC_LIBRARIES})
    if(library MATCHES "^(dl|pthread|rt|m|atomic)$")
      continue()
    endif()
    find_library(MANTA_ARCHIVE_${library} NAMES lib${library}.a HINTS ${MANTA_GRPC_CLOSURE_LIBRARY_DIRS})
    mark_as_advanced(MANTA_ARCHIVE_${library})
    if(NOT MANTA_ARCHIVE_${library})
      message(STATUS "gRPC: linked dynamically, lib${library}.a is missing")
      set(MANTA_STATIC_ARCHIVES)
      break()
    endif()
    list(APPEND MANTA_STATIC_ARCHIVES ${MANTA_ARCHIVE_${library}})
  endforeach()
  if(MANTA_STATIC_ARCHIVES)
    list(REMOVE_DUPLICATES MANTA_STATIC_ARCHIVES)
    set(MANTA_STATIC_GRPC ON)
  endif()
endif()

function(manta_static_grpc)
  if(NOT MANTA_STATIC_GRPC)
    return()
  endif()
  foreach(target ${ARGN})
    target_link_options(${target} PRIVATE "LINKER:--as-needed" ${MANTA_STATIC_ARCHIVES})
  endforeach()
endfunction()
