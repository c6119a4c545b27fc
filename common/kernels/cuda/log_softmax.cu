#include <cfloat>

#include "common/kernels/cuda/device.cuh"

namespace manta::kernels::cuda {
namespace {

constexpr int kThreads = 512;

// Running maximum m, s = sum exp(x - m) and t = sum exp(x - m) x of a part of a row; parts merge.
struct Part {
  float m = -FLT_MAX, s = 0, t = 0;
  template <int kCount>
  __device__ __forceinline__ void Add(float (&x)[kCount], float factor) {
    float largest = m;
#pragma unroll
    for (int j = 0; j < kCount; ++j) largest = fmaxf(largest, x[j] *= factor);
    if (largest > m) {
      const float scale = __expf(m - largest);
      s *= scale;
      t *= scale;
      m = largest;
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const float e = __expf(x[j] - m);
      s += e;
      t += e > 0.0f ? e * x[j] : 0.0f;  // -inf logits have no weight
    }
  }
  __device__ __forceinline__ void Merge(float om, float os, float ot) {
    const float to = fmaxf(m, om), a = __expf(m - to), b = __expf(om - to);
    s = s * a + os * b;
    t = t * a + ot * b;
    m = to;
  }
};

// Calls piece(index of the first, values as floats) for this thread's share of a row, 16 bytes at a time where kPacked.
template <typename T, bool kPacked, typename Piece>
__device__ __forceinline__ void ForEachPiece(const T* row, int64_t vocab, const Piece& piece) {
  constexpr int kCount = kPacked ? Pack<T>::kCount : 1;
  for (int64_t i = threadIdx.x * kCount; i < vocab; i += kThreads * kCount) {
    float values[kCount];
    if constexpr (kPacked) {
      const Pack<T> pack = *reinterpret_cast<const Pack<T>*>(row + i);
#pragma unroll
      for (int j = 0; j < kCount; ++j) values[j] = ToFloat(pack.at[j]);
    } else {
      values[0] = ToFloat(row[i]);
    }
    piece(i, values);
  }
}

template <typename T, bool kPacked>
__global__ void LogSoftmaxGatherKernel(const T* __restrict__ logits, const int64_t* __restrict__ targets,
                                       float inverse_temperature, float* __restrict__ log_probs,
                                       float* __restrict__ entropy, float* __restrict__ log_sum, int64_t vocab) {
  const T* row = logits + blockIdx.x * vocab;
  Part part;
  ForEachPiece<T, kPacked>(row, vocab, [&](int64_t, auto& values) { part.Add(values, inverse_temperature); });
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const float m = __shfl_xor_sync(kAllLanes, part.m, offset), s = __shfl_xor_sync(kAllLanes, part.s, offset),
                t = __shfl_xor_sync(kAllLanes, part.t, offset);
    part.Merge(m, s, t);
  }
  __shared__ Part parts[kThreads / kWarp];
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = part;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kThreads / kWarp; ++w) part.Merge(parts[w].m, parts[w].s, parts[w].t);
  const float total = part.m + logf(part.s);
  log_probs[blockIdx.x] = ToFloat(row[targets[blockIdx.x]]) * inverse_temperature - total;
  if (entropy != nullptr) entropy[blockIdx.x] = total - part.t / part.s;
  if (log_sum != nullptr) log_sum[blockIdx.x] = total;
}

template <typename T, bool kPacked>
__global__ void LogSoftmaxGatherBackwardKernel(const T* logits, const int64_t* __restrict__ targets,
                                               float inverse_temperature, const float* __restrict__ log_sum,
                                               const float* __restrict__ d_log_probs, const float* __restrict__ entropy,
                                               const float* __restrict__ d_entropy, T* d_logits, int64_t vocab) {
  const int64_t row = blockIdx.x, target = targets[row];
  const float total = log_sum[row], g = d_log_probs[row];
  const float h = d_entropy != nullptr ? entropy[row] : 0.0f, dh = d_entropy != nullptr ? d_entropy[row] : 0.0f;
  ForEachPiece<T, kPacked>(logits + row * vocab, vocab, [&](int64_t begin, auto& values) {
    constexpr int kCount = sizeof(values) / sizeof(float);
    Pack<T> out;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const float log_p = values[j] * inverse_temperature - total, p = __expf(log_p);
      float d = g * ((begin + j == target ? 1.0f : 0.0f) - p);
      if (dh != 0.0f && p > 0.0f) d -= dh * p * (log_p + h);
      out.at[j] = FromFloat<T>(d * inverse_temperature);
    }
    if constexpr (kPacked) {
      *reinterpret_cast<Pack<T>*>(d_logits + row * vocab + begin) = out;
    } else {
      d_logits[row * vocab + begin] = out.at[0];
    }
  });
}

}  // namespace

int LogSoftmaxGather(Type type, const void* logits, const int64_t* targets, float inverse_temperature, float* log_probs,
                     float* entropy, float* log_sum, int64_t rows, int64_t vocab, Stream stream) {
  if (rows == 0) return cudaSuccess;
  return ForType(type, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel = CanPack<T>(vocab, logits) ? LogSoftmaxGatherKernel<T, true> : LogSoftmaxGatherKernel<T, false>;
    kernel<<<static_cast<unsigned>(rows), kThreads, 0, AsStream(stream)>>>(
        static_cast<const T*>(logits), targets, inverse_temperature, log_probs, entropy, log_sum, vocab);
  });
}

int LogSoftmaxGatherBackward(Type type, const void* logits, const int64_t* targets, float inverse_temperature,
                             const float* log_sum, const float* d_log_probs, const float* entropy,
                             const float* d_entropy, void* d_logits, int64_t rows, int64_t vocab, Stream stream) {
  if (rows == 0) return cudaSuccess;
  return ForType(type, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel = CanPack<T>(vocab, logits, d_logits) ? LogSoftmaxGatherBackwardKernel<T, true>
                                                            : LogSoftmaxGatherBackwardKernel<T, false>;
    kernel<<<static_cast<unsigned>(rows), kThreads, 0, AsStream(stream)>>>(
        static_cast<const T*>(logits), targets, inverse_temperature, log_sum, d_log_probs, entropy, d_entropy,
        static_cast<T*>(d_logits), vocab);
  });
}

}  // namespace manta::kernels::cuda
