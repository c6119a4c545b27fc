#include <algorithm>

#include "common/kernels/cuda/device.cuh"

namespace manta::kernels::cuda {
namespace {

// A block a row. The row is read twice; the second time it comes from the cache.
template <typename T, bool kPacked>
__global__ void RmsNormKernel(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y,
                              float* __restrict__ inverse, int64_t n, float eps) {
  const T* row = x + blockIdx.x * n;
  T* out = y + blockIdx.x * n;
  constexpr int kCount = kPacked ? Pack<T>::kCount : 1;
  float sum = 0;
  for (int64_t i = threadIdx.x * kCount; i < n; i += blockDim.x * kCount) {
    if constexpr (kPacked) {
      const Pack<T> pack = *reinterpret_cast<const Pack<T>*>(row + i);
#pragma unroll
      for (int j = 0; j < kCount; ++j) sum += ToFloat(pack.at[j]) * ToFloat(pack.at[j]);
    } else {
      sum += ToFloat(row[i]) * ToFloat(row[i]);
    }
  }
  const float scale = rsqrtf(BlockSum(sum) / static_cast<float>(n) + eps);
  if (threadIdx.x == 0 && inverse != nullptr) inverse[blockIdx.x] = scale;
  // Rounded to T before the weight is applied, as transformers does.
  for (int64_t i = threadIdx.x * kCount; i < n; i += blockDim.x * kCount) {
    if constexpr (kPacked) {
      Pack<T> pack = *reinterpret_cast<const Pack<T>*>(row + i);
      const Pack<T> weight = *reinterpret_cast<const Pack<T>*>(w + i);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        pack.at[j] = FromFloat<T>(ToFloat(FromFloat<T>(ToFloat(pack.at[j]) * scale)) * ToFloat(weight.at[j]));
      }
      *reinterpret_cast<Pack<T>*>(out + i) = pack;
    } else {
      out[i] = FromFloat<T>(ToFloat(FromFloat<T>(ToFloat(row[i]) * scale)) * ToFloat(w[i]));
    }
  }
}

template <typename T>
__global__ void RmsNormInputGradient(const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ w,
                                     const float* __restrict__ inverse, T* __restrict__ dx, int64_t n) {
  const int64_t begin = blockIdx.x * n;
  const float scale = inverse[blockIdx.x];
  float dot = 0;  // sum of dy w x/rms
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    dot += ToFloat(dy[begin + i]) * ToFloat(w[i]) * ToFloat(x[begin + i]) * scale;
  }
  const float mean = BlockSum(dot) / static_cast<float>(n);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float g = ToFloat(dy[begin + i]) * ToFloat(w[i]);
    dx[begin + i] = FromFloat<T>((g - ToFloat(x[begin + i]) * scale * mean) * scale);
  }
}

// A block takes a strip of columns and a share of the rows.
template <typename T>
__global__ void RmsNormWeightGradient(const T* __restrict__ dy, const T* __restrict__ x,
                                      const float* __restrict__ inverse, float* __restrict__ dw, int64_t rows,
                                      int64_t n) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= n) return;
  float sum = 0;
  for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) {
    sum += ToFloat(dy[r * n + column]) * ToFloat(x[r * n + column]) * inverse[r];
  }
  atomicAdd(dw + column, sum);
}

int RowThreads(int64_t work) {
  int threads = kWarp;
  while (threads < work && threads < 512) threads *= 2;
  return threads;
}

}  // namespace

int RmsNorm(Type type, const void* x, const void* w, void* y, float* inverse, int64_t rows, int64_t n, float eps,
            Stream stream) {
  if (rows == 0) return cudaSuccess;
  return ForType(type, [&](auto zero) {
    using T = decltype(zero);
    const auto* tx = static_cast<const T*>(x);
    const auto* tw = static_cast<const T*>(w);
    auto* ty = static_cast<T*>(y);
    const auto blocks = static_cast<unsigned>(rows);
    if (CanPack<T>(n, x, w, y)) {
      RmsNormKernel<T, true>
          <<<blocks, RowThreads(n / Pack<T>::kCount), 0, AsStream(stream)>>>(tx, tw, ty, inverse, n, eps);
    } else {
      RmsNormKernel<T, false><<<blocks, RowThreads(n), 0, AsStream(stream)>>>(tx, tw, ty, inverse, n, eps);
    }
  });
}

int RmsNormBackward(Type type, const void* dy, const void* x, const void* w, const float* inverse, void* dx, float* dw,
                    int64_t rows, int64_t n, Stream stream) {
  if (rows == 0) return cudaSuccess;
  return ForType(type, [&](auto zero) {
    using T = decltype(zero);
    const auto* tdy = static_cast<const T*>(dy);
    const auto* tx = static_cast<const T*>(x);
    RmsNormInputGradient<T><<<static_cast<unsigned>(rows), RowThreads(n), 0, AsStream(stream)>>>(
        tdy, tx, static_cast<const T*>(w), inverse, static_cast<T*>(dx), n);
    if (dw != nullptr) {
      const dim3 grid(static_cast<unsigned>((n + 127) / 128),
                      static_cast<unsigned>(std::min<int64_t>(128, (rows + 15) / 16)));
      RmsNormWeightGradient<T><<<grid, 128, 0, AsStream(stream)>>>(tdy, tx, inverse, dw, rows, n);
    }
  });
}

}  // namespace manta::kernels::cuda
