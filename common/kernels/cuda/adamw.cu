#include <algorithm>
#include <cmath>

#include "common/kernels/cuda/device.cuh"

namespace manta::kernels::cuda {
namespace {

struct Scalars {
  float decay, one_minus_beta1, beta2, one_minus_beta2, step_size, root_correction, eps, gradient_scale;
};

// Explicit roundings: no fused multiply-add changes the bits between this and the CPU.
__device__ __forceinline__ void Update(const Scalars& s, float gradient, float& p, float& m, float& v) {
  const float g = __fmul_rn(gradient, s.gradient_scale);
  m = __fadd_rn(m, __fmul_rn(__fsub_rn(g, m), s.one_minus_beta1));
  v = __fadd_rn(__fmul_rn(v, s.beta2), __fmul_rn(__fmul_rn(g, g), s.one_minus_beta2));
  const float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), s.root_correction), s.eps);
  p = __fsub_rn(__fmul_rn(p, s.decay), __fmul_rn(s.step_size, __fdiv_rn(m, denominator)));
}

__global__ void AdamWKernel(float* __restrict__ master, const float* __restrict__ gradient, float* __restrict__ exp_avg,
                            float* __restrict__ exp_avg_sq, __nv_bfloat16* __restrict__ parameters, int64_t n,
                            Scalars s) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t quads = n / 4;
  for (int64_t i = thread; i < quads; i += stride) {
    float4 p = reinterpret_cast<float4*>(master)[i], m = reinterpret_cast<float4*>(exp_avg)[i],
           v = reinterpret_cast<float4*>(exp_avg_sq)[i];
    const float4 g = reinterpret_cast<const float4*>(gradient)[i];
    Update(s, g.x, p.x, m.x, v.x);
    Update(s, g.y, p.y, m.y, v.y);
    Update(s, g.z, p.z, m.z, v.z);
    Update(s, g.w, p.w, m.w, v.w);
    reinterpret_cast<float4*>(master)[i] = p;
    reinterpret_cast<float4*>(exp_avg)[i] = m;
    reinterpret_cast<float4*>(exp_avg_sq)[i] = v;
    if (parameters != nullptr) {
      __nv_bfloat16* out = parameters + i * 4;
      out[0] = __float2bfloat16(p.x);
      out[1] = __float2bfloat16(p.y);
      out[2] = __float2bfloat16(p.z);
      out[3] = __float2bfloat16(p.w);
    }
  }
  for (int64_t i = quads * 4 + thread; i < n; i += stride) {
    Update(s, gradient[i], master[i], exp_avg[i], exp_avg_sq[i]);
    if (parameters != nullptr) parameters[i] = __float2bfloat16(master[i]);
  }
}

}  // namespace

int AdamW(const AdamWArguments& a, Stream stream) {
  if (a.n <= 0 || a.step < 1) return a.n == 0 ? cudaSuccess : cudaErrorInvalidValue;
  const auto misaligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 != 0; };
  if (misaligned(a.master) || misaligned(a.gradient) || misaligned(a.exp_avg) || misaligned(a.exp_avg_sq)) {
    return cudaErrorMisalignedAddress;
  }
  const double correction1 = 1 - std::pow(a.beta1, static_cast<double>(a.step));
  const double correction2 = 1 - std::pow(a.beta2, static_cast<double>(a.step));
  const Scalars s{static_cast<float>(1 - a.lr * a.weight_decay),
                  static_cast<float>(1 - a.beta1),
                  static_cast<float>(a.beta2),
                  static_cast<float>(1 - a.beta2),
                  static_cast<float>(a.lr / correction1),
                  static_cast<float>(std::sqrt(correction2)),
                  static_cast<float>(a.eps),
                  a.gradient_scale};
  const int64_t blocks = std::min<int64_t>((a.n / 4 + 255) / 256 + 1, 132 * 16);
  AdamWKernel<<<static_cast<unsigned>(blocks), 256, 0, AsStream(stream)>>>(
      a.master, a.gradient, a.exp_avg, a.exp_avg_sq, static_cast<__nv_bfloat16*>(a.parameters), a.n, s);
  return cudaGetLastError();
}

}  // namespace manta::kernels::cuda
