// What the kernels share: conversions, reductions over a warp and a block, launch checks. Device code only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "common/kernels/cuda/kernels.h"

namespace manta::kernels::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ float ToFloat(float x) {
  return x;
}
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <typename T>
__device__ __forceinline__ T FromFloat(float x);
template <>
__device__ __forceinline__ float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16(x);
}

// 16 bytes of T at once.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T at[kCount];
};

__device__ __forceinline__ float WarpSum(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}

// The sum over all threads of a block (a multiple of 32, at most 1024), in a fixed order; on every thread.
__device__ __forceinline__ float BlockSum(float x) {
  __shared__ float sums[kWarp];
  x = WarpSum(x);
  const int warps = blockDim.x / kWarp;
  __syncthreads();  // an earlier use may still be read
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  return WarpSum(static_cast<int>(threadIdx.x % kWarp) < warps ? sums[threadIdx.x % kWarp] : 0.0f);
}

inline cudaStream_t AsStream(Stream stream) {
  return static_cast<cudaStream_t>(stream);
}

// Whether rows of n elements of T can be read in packs.
template <typename T>
bool CanPack(int64_t n, const void* a, const void* b = nullptr, const void* c = nullptr) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  return n % Pack<T>::kCount == 0 && aligned(a) && aligned(b) && aligned(c);
}

// Runs `body` with a value of the type's C++ type.
template <typename Body>
int ForType(Type type, const Body& body) {
  if (type == Type::kF32) {
    body(float{});
  } else {
    body(__nv_bfloat16{});
  }
  return static_cast<int>(cudaGetLastError());
}

}  // namespace manta::kernels::cuda
