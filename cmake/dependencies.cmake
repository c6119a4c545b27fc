# Imported targets of what Manta links. Protobuf and gRPC come first: LibTorch's wheel carries an older protobuf.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(ZLIB REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(SIMDJSON REQUIRED IMPORTED_TARGET simdjson)

# LibTorch out of the wheel, as two targets of our own: its CMake package wants a CUDA toolkit even for the CPU.
set(MANTA_TORCH "${CMAKE_SOURCE_DIR}/.deps/torch" CACHE PATH "LibTorch: a folder with lib and include")
set(MANTA_NVIDIA "${CMAKE_SOURCE_DIR}/.deps/nvidia" CACHE PATH "libraries out of NVIDIA's wheels")
if(NOT EXISTS "${MANTA_TORCH}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch is not in ${MANTA_TORCH}: run `make setup` first")
endif()
add_library(torch_cpu INTERFACE)
target_include_directories(torch_cpu SYSTEM INTERFACE "${MANTA_TORCH}/include")
target_link_libraries(torch_cpu INTERFACE "${MANTA_TORCH}/lib/libtorch_cpu.so" "${MANTA_TORCH}/lib/libc10.so")
target_link_options(torch_cpu INTERFACE "LINKER:-rpath,${MANTA_TORCH}/lib" "LINKER:--allow-shlib-undefined"
                    "LINKER:-rpath,${MANTA_NVIDIA}/cu13/lib")

# One precompiled ATen header, shared by every target that computes (manta_library(... ATEN)).
add_library(aten_pch OBJECT "${CMAKE_SOURCE_DIR}/cmake/aten_pch.cc")
target_link_libraries(aten_pch PUBLIC torch_cpu)
target_compile_options(aten_pch PUBLIC -pthread)  # as its users have it, through protobuf: the header must match
target_precompile_headers(aten_pch PRIVATE <ATen/ATen.h>)

set(MANTA_HAS_CUDA OFF)
if(MANTA_CUDA)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
  find_library(MANTA_NCCL nccl HINTS /usr/local/cuda/lib64 ${MANTA_NVIDIA}/nccl/lib)
  if(CMAKE_CUDA_COMPILER AND MANTA_NCCL AND EXISTS "${MANTA_TORCH}/lib/libtorch_cuda.so")
    set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 knows no later one for nvcc 13
    set(CMAKE_CUDA_ARCHITECTURES OFF)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(MANTA_HAS_CUDA ON)
    set(MANTA_CUDA_FLAGS "-gencode=arch=compute_90a,code=sm_90a" "-gencode=arch=compute_80,code=[sm_80,compute_80]"
        --expt-relaxed-constexpr CACHE STRING "how nvcc is called: which GPUs it compiles for")
    add_library(torch_cuda INTERFACE)
    target_link_libraries(torch_cuda INTERFACE torch_cpu "${MANTA_TORCH}/lib/libtorch_cuda.so"
                          "${MANTA_TORCH}/lib/libc10_cuda.so" CUDA::cudart ${MANTA_NCCL})
    target_include_directories(torch_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
    target_link_options(torch_cuda INTERFACE "LINKER:-rpath,${MANTA_NVIDIA}/cusparselt/lib"
                        "LINKER:-rpath,${MANTA_NVIDIA}/nvshmem/lib")
  endif()
endif()
message(STATUS "CUDA: ${MANTA_HAS_CUDA}")
