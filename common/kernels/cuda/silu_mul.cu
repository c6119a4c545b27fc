#include <algorithm>

#include "common/kernels/cuda/device.cuh"

namespace manta::kernels::cuda {
namespace {

__device__ __forceinline__ float Silu(float x) {
  return x / (1.0f + expf(-x));
}

template <typename T, int kCount>
__global__ void SiluMulKernel(const T* __restrict__ x, T* __restrict__ y, int64_t n) {
  const T* gate = x + blockIdx.y * 2 * n;
  const T* up = gate + n;
  T* out = y + blockIdx.y * n;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kCount; i < n;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x * kCount) {
    if constexpr (kCount > 1) {
      Pack<T> g = *reinterpret_cast<const Pack<T>*>(gate + i);
      const Pack<T> u = *reinterpret_cast<const Pack<T>*>(up + i);
#pragma unroll
      for (int j = 0; j < kCount; ++j) g.at[j] = FromFloat<T>(Silu(ToFloat(g.at[j])) * ToFloat(u.at[j]));
      *reinterpret_cast<Pack<T>*>(out + i) = g;
    } else {
      out[i] = FromFloat<T>(Silu(ToFloat(gate[i])) * ToFloat(up[i]));
    }
  }
}

template <typename T>
__global__ void SiluMulBackwardKernel(const T* __restrict__ dy, const T* __restrict__ x, T* __restrict__ dx,
                                      int64_t n) {
  const int64_t row = blockIdx.y;
  const T* gate = x + row * 2 * n;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const float g = ToFloat(gate[i]), u = ToFloat(gate[n + i]), d = ToFloat(dy[row * n + i]);
    const float sigmoid = 1.0f / (1.0f + expf(-g));
    dx[row * 2 * n + i] = FromFloat<T>(d * u * sigmoid * (1.0f + g * (1.0f - sigmoid)));
    dx[row * 2 * n + n + i] = FromFloat<T>(d * g * sigmoid);
  }
}

constexpr int64_t kMaxRows = 65535;  // of a launch's second dimension

}  // namespace

int SiluMul(Type type, const void* x, void* y, int64_t rows, int64_t n, Stream stream) {
  return ForType(type, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kCount = Pack<T>::kCount;
    for (int64_t begin = 0; begin < rows; begin += kMaxRows) {
      const auto* from = static_cast<const T*>(x) + begin * 2 * n;
      auto* to = static_cast<T*>(y) + begin * n;
      const auto count = static_cast<unsigned>(std::min(kMaxRows, rows - begin));
      if (CanPack<T>(n, from, to)) {
        const dim3 grid(static_cast<unsigned>((n / kCount + 255) / 256), count);
        SiluMulKernel<T, kCount><<<grid, 256, 0, AsStream(stream)>>>(from, to, n);
      } else {
        const dim3 grid(static_cast<unsigned>((n + 255) / 256), count);
        SiluMulKernel<T, 1><<<grid, 256, 0, AsStream(stream)>>>(from, to, n);
      }
    }
  });
}

int SiluMulBackward(Type type, const void* dy, const void* x, void* dx, int64_t rows, int64_t n, Stream stream) {
  return ForType(type, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t begin = 0; begin < rows; begin += kMaxRows) {
      const dim3 grid(static_cast<unsigned>((n + 255) / 256), static_cast<unsigned>(std::min(kMaxRows, rows - begin)));
      SiluMulBackwardKernel<T><<<grid, 256, 0, AsStream(stream)>>>(static_cast<const T*>(dy) + begin * n,
                                                                   static_cast<const T*>(x) + begin * 2 * n,
                                                                   static_cast<T*>(dx) + begin * 2 * n, n);
    }
  });
}

}  // namespace manta::kernels::cuda
