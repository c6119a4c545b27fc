#include "common/kernels/cuda/device.cuh"

namespace manta::kernels::cuda {
namespace {

constexpr int kMaxPairsPerLane = 4;  // of a head: head_dim / 2 / 32, so head_dim up to 256

// A warp a head of a row. Lane l holds the pairs (i, i + head_dim / 2) for i = l, l + 32, ...
template <typename T>
__global__ void SplitNormRotateKernel(const T* __restrict__ qkv, const T* __restrict__ q_norm,
                                      const T* __restrict__ k_norm, const float* __restrict__ cos,
                                      const float* __restrict__ sin, T* __restrict__ q, T* __restrict__ k,
                                      T* __restrict__ v, float* __restrict__ q_inverse, float* __restrict__ k_inverse,
                                      int heads, int kv_heads, int head_dim, float eps) {
  const int64_t row = blockIdx.x;
  const int total = heads + 2 * kv_heads, half = head_dim / 2;
  const int lane = threadIdx.x % kWarp;
  for (int head = threadIdx.x / kWarp; head < total; head += blockDim.x / kWarp) {
    const T* from = qkv + (row * total + head) * head_dim;
    if (head >= heads + kv_heads) {
      T* to = v + (row * kv_heads + head - heads - kv_heads) * head_dim;
      for (int i = lane; i < head_dim; i += kWarp) to[i] = from[i];
      continue;
    }
    const bool is_q = head < heads;
    T* to = is_q ? q + (row * heads + head) * head_dim : k + (row * kv_heads + head - heads) * head_dim;
    const T* norm = is_q ? q_norm : k_norm;
    float low[kMaxPairsPerLane], high[kMaxPairsPerLane];
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kMaxPairsPerLane; ++j) {
      const int i = lane + j * kWarp;
      low[j] = i < half ? ToFloat(from[i]) : 0.0f;
      high[j] = i < half ? ToFloat(from[i + half]) : 0.0f;
      sum += low[j] * low[j] + high[j] * high[j];
    }
    if (norm != nullptr) {
      const float scale = rsqrtf(WarpSum(sum) / static_cast<float>(head_dim) + eps);
      float* inverse = is_q ? q_inverse : k_inverse;
      if (lane == 0 && inverse != nullptr) {
        inverse[is_q ? row * heads + head : row * kv_heads + head - heads] = scale;
      }
#pragma unroll
      for (int j = 0; j < kMaxPairsPerLane; ++j) {
        const int i = lane + j * kWarp;
        if (i >= half) continue;
        // Rounded to T where transformers rounds.
        low[j] = ToFloat(FromFloat<T>(ToFloat(FromFloat<T>(low[j] * scale)) * ToFloat(norm[i])));
        high[j] = ToFloat(FromFloat<T>(ToFloat(FromFloat<T>(high[j] * scale)) * ToFloat(norm[i + half])));
      }
    }
#pragma unroll
    for (int j = 0; j < kMaxPairsPerLane; ++j) {
      const int i = lane + j * kWarp;
      if (i >= half) continue;
      const float c = cos[row * half + i], s = sin[row * half + i];
      to[i] = FromFloat<T>(low[j] * c - high[j] * s);
      to[i + half] = FromFloat<T>(high[j] * c + low[j] * s);
    }
  }
}

}  // namespace

int SplitNormRotate(Type type, const void* qkv, const void* q_norm, const void* k_norm, const float* cos,
                    const float* sin, void* q, void* k, void* v, float* q_inverse, float* k_inverse, int64_t rows,
                    HeadShape shape, float eps, Stream stream) {
  if (rows == 0) return cudaSuccess;
  if (shape.head_dim % 2 != 0 || shape.head_dim > 2 * kWarp * kMaxPairsPerLane || shape.head_dim <= 0) {
    return cudaErrorInvalidValue;
  }
  const int64_t total = shape.heads + 2 * shape.kv_heads;
  const int threads = static_cast<int>(kWarp * (total < 16 ? total : 16));
  return ForType(type, [&](auto zero) {
    using T = decltype(zero);
    SplitNormRotateKernel<T><<<static_cast<unsigned>(rows), threads, 0, AsStream(stream)>>>(
        static_cast<const T*>(qkv), static_cast<const T*>(q_norm), static_cast<const T*>(k_norm), cos, sin,
        static_cast<T*>(q), static_cast<T*>(k), static_cast<T*>(v), q_inverse, k_inverse, static_cast<int>(shape.heads),
        static_cast<int>(shape.kv_heads), static_cast<int>(shape.head_dim), eps);
  });
}

}  // namespace manta::kernels::cuda
