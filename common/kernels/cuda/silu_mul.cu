#include <algorithm>
#include <type_traits>

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

template <typename T, int kCount>
__global__ void SiluMulBackwardKernel(const T* __restrict__ dy, const T* __restrict__ x, T* __restrict__ dx,
                                      int64_t n) {
  const int64_t row = blockIdx.y;
  using Piece = std::conditional_t<kCount == 1, T, Pack<T>>;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kCount; i < n;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x * kCount) {
    Piece gates = *reinterpret_cast<const Piece*>(x + row * 2 * n + i);
    Piece ups = *reinterpret_cast<const Piece*>(x + row * 2 * n + n + i);
    const Piece ds = *reinterpret_cast<const Piece*>(dy + row * n + i);
    T* gate = reinterpret_cast<T*>(&gates);
    T* up = reinterpret_cast<T*>(&ups);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const float g = ToFloat(gate[j]), u = ToFloat(up[j]), d = ToFloat(reinterpret_cast<const T*>(&ds)[j]);
      const float sigmoid = 1.0f / (1.0f + expf(-g));
      gate[j] = FromFloat<T>(d * u * sigmoid * (1.0f + g * (1.0f - sigmoid)));
      up[j] = FromFloat<T>(d * g * sigmoid);
    }
    *reinterpret_cast<Piece*>(dx + row * 2 * n + i) = gates;
    *reinterpret_cast<Piece*>(dx + row * 2 * n + n + i) = ups;
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
      const auto* tdy = static_cast<const T*>(dy) + begin * n;
      const auto* tx = static_cast<const T*>(x) + begin * 2 * n;
      auto* tdx = static_cast<T*>(dx) + begin * 2 * n;
      const int count = CanPack<T>(n, tdy, tx, tdx) ? Pack<T>::kCount : 1;
      const dim3 grid(static_cast<unsigned>((n / count + 255) / 256),
                      static_cast<unsigned>(std::min(kMaxRows, rows - begin)));
      if (count > 1) {
        SiluMulBackwardKernel<T, Pack<T>::kCount><<<grid, 256, 0, AsStream(stream)>>>(tdy, tx, tdx, n);
      } else {
        SiluMulBackwardKernel<T, 1><<<grid, 256, 0, AsStream(stream)>>>(tdy, tx, tdx, n);
      }
    }
  });
}

}  // namespace manta::kernels::cuda
