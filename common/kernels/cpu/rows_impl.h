// Row operations; see rows.h. Compiled once per instruction set.
#pragma once

#include "common/kernels/cpu/simd.h"
#include "common/kernels/cpu/table.h"

namespace {

using manta::kernels::HeadsShape;

MANTA_INLINE float Log(float x) {
  return __builtin_logf(x);
}

// 1 / sqrt(mean(x^2) + eps)
MANTA_INLINE float InverseRms(int64_t n, const float* x, float eps) {
  F16 sum = Zero();
  for (int64_t i = 0; i < n; i += kLanes) {
    const F16 v = LoadPart(x + i, n - i);
    sum = MulAdd(v, v, sum);
  }
  return 1.0f / __builtin_sqrtf(Sum(sum) / static_cast<float>(n) + eps);
}

void RmsNormForward(int64_t rows, int64_t n, const float* x, const float* w, float eps, float* y, float* inverse) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    inverse[r] = InverseRms(n, x, eps);
    const F16 scale = Broadcast(inverse[r]);
    for (int64_t i = 0; i < n; i += kLanes) {
      StorePart(y + i, LoadPart(x + i, n - i) * scale * LoadPart(w + i, n - i), n - i);
    }
  }
}

// d_x = inverse (g - normed mean(g normed)) with g = d_y w and normed = x inverse; d_w += d_y normed.
void RmsNormBackward(int64_t rows, int64_t n, const float* d_y, int64_t ld_dy, const float* x, int64_t ldx,
                     const float* w, const float* inverse, float* d_x, int64_t ld_dx, float* d_w) {
  for (int64_t r = 0; r < rows; ++r, d_y += ld_dy, x += ldx, d_x += ld_dx) {
    const F16 scale = Broadcast(inverse[r]);
    F16 dot = Zero();
    for (int64_t i = 0; i < n; i += kLanes) {
      const F16 dy = LoadPart(d_y + i, n - i), normed = LoadPart(x + i, n - i) * scale;
      dot = MulAdd(dy * LoadPart(w + i, n - i), normed, dot);
      if (d_w != nullptr) StorePart(d_w + i, MulAdd(dy, normed, LoadPart(d_w + i, n - i)), n - i);
    }
    const F16 mean = Broadcast(Sum(dot) / static_cast<float>(n));
    for (int64_t i = 0; i < n; i += kLanes) {
      const F16 g = LoadPart(d_y + i, n - i) * LoadPart(w + i, n - i), normed = LoadPart(x + i, n - i) * scale;
      StorePart(d_x + i, (g - normed * mean) * scale, n - i);
    }
  }
}

// One head: (a, b) -> (a cos - b sin, b cos + a sin), where a and b are its halves, scaled by `norm` * w first where w
// is not null. sign -1 turns back.
MANTA_INLINE void RotateHead(int64_t half, const float* x, float norm, const float* w, const float* cos,
                             const float* sin, float sign, float* y) {
  const F16 scale = Broadcast(norm), turn = Broadcast(sign);
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t left = half - i;
    F16 a = LoadPart(x + i, left), b = LoadPart(x + half + i, left);
    if (w != nullptr) {
      a = a * scale * LoadPart(w + i, left);
      b = b * scale * LoadPart(w + half + i, left);
    }
    const F16 c = LoadPart(cos + i, left), s = LoadPart(sin + i, left) * turn;
    StorePart(y + i, a * c - b * s, left);
    StorePart(y + half + i, b * c + a * s, left);
  }
}

void SplitForward(int64_t rows, const HeadsShape& shape, const float* qkv, const float* q_norm, const float* k_norm,
                  float eps, const float* cos, const float* sin, float* q, float* k, float* v, float* q_inverse,
                  float* k_inverse) {
  const int64_t dim = shape.head_dim, half = dim / 2, kv_size = shape.kv_heads * dim;
  for (int64_t r = 0; r < rows; ++r, cos += half, sin += half) {
    for (int64_t h = 0; h < shape.heads; ++h, qkv += dim, q += dim) {
      const float norm = q_norm == nullptr ? 1 : (*q_inverse++ = InverseRms(dim, qkv, eps));
      RotateHead(half, qkv, norm, q_norm, cos, sin, 1, q);
    }
    for (int64_t h = 0; h < shape.kv_heads; ++h, qkv += dim, k += dim) {
      const float norm = k_norm == nullptr ? 1 : (*k_inverse++ = InverseRms(dim, qkv, eps));
      RotateHead(half, qkv, norm, k_norm, cos, sin, 1, k);
    }
    std::memcpy(v, qkv, static_cast<size_t>(kv_size) * sizeof(float));
    qkv += kv_size;
    v += kv_size;
  }
}

void SplitBackward(int64_t rows, const HeadsShape& shape, const float* d_q, const float* d_k, const float* d_v,
                   const float* qkv, const float* q_norm, const float* k_norm, const float* q_inverse,
                   const float* k_inverse, const float* cos, const float* sin, float* d_qkv, float* d_q_norm,
                   float* d_k_norm) {
  const int64_t dim = shape.head_dim, half = dim / 2, kv_size = shape.kv_heads * dim;
  const int64_t rotated = shape.heads + shape.kv_heads;
  for (int64_t r = 0; r < rows; ++r, cos += half, sin += half) {
    for (int64_t h = 0; h < rotated; ++h, d_qkv += dim) {
      const bool query = h < shape.heads;
      const float* d = query ? d_q : d_k;
      (query ? d_q : d_k) += dim;
      RotateHead(half, d, 1, nullptr, cos, sin, -1, d_qkv);
      if (q_norm == nullptr) continue;
      // In place: the rotation has been undone in d_qkv.
      RmsNormBackward(1, dim, d_qkv, dim, qkv, dim, query ? q_norm : k_norm, query ? q_inverse++ : k_inverse++, d_qkv,
                      dim, query ? d_q_norm : d_k_norm);
      qkv += dim;
    }
    if (q_norm != nullptr) qkv += kv_size;
    std::memcpy(d_qkv, d_v, static_cast<size_t>(kv_size) * sizeof(float));
    d_qkv += kv_size;
    d_v += kv_size;
  }
}

MANTA_INLINE F16 Sigmoid(const F16& x) {
  const F16 one = Broadcast(1);
  return one / (one + Exp(Zero() - x));
}

void SiluMulForward(int64_t rows, int64_t n, const float* x, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += 2 * n, y += n) {
    for (int64_t i = 0; i < n; i += kLanes) {
      const F16 gate = LoadPart(x + i, n - i), up = LoadPart(x + n + i, n - i);
      StorePart(y + i, gate * Sigmoid(gate) * up, n - i);
    }
  }
}

void SiluMulBackward(int64_t rows, int64_t n, const float* d_y, const float* x, float* d_x) {
  const F16 one = Broadcast(1);
  for (int64_t r = 0; r < rows; ++r, x += 2 * n, d_x += 2 * n, d_y += n) {
    for (int64_t i = 0; i < n; i += kLanes) {
      const F16 gate = LoadPart(x + i, n - i), up = LoadPart(x + n + i, n - i), d = LoadPart(d_y + i, n - i);
      const F16 s = Sigmoid(gate);
      StorePart(d_x + i, d * up * s * (one + gate * (one - s)), n - i);
      StorePart(d_x + n + i, d * gate * s, n - i);
    }
  }
}

void LogSoftmaxGather(int64_t rows, int64_t vocab, const float* logits, float temperature, const int64_t* targets,
                      float* log_probs, float* lse, float* entropy) {
  const F16 inverse = Broadcast(1 / temperature);
  const float lowest = -__builtin_inff();
  for (int64_t r = 0; r < rows; ++r, logits += vocab) {
    F16 largest = Broadcast(lowest);
    for (int64_t i = 0; i < vocab; i += kLanes) largest = Max(largest, LoadPart(logits + i, vocab - i, lowest));
    const F16 shift = Broadcast(MaxLane(largest)) * inverse;
    F16 sum = Zero(), weighted = Zero();
    for (int64_t i = 0; i < vocab; i += kLanes) {
      // Beyond the row: -inf, whose exponential is 0; its product with -inf is kept out by the second fill.
      const F16 d = LoadPart(logits + i, vocab - i, lowest) * inverse - shift;
      const F16 e = Exp(d);
      sum = sum + e;
      if (entropy != nullptr) weighted = MulAdd(e, Max(d, Broadcast(-1e4f)), weighted);
    }
    const float total = Sum(sum);
    const float max_logit = MaxLane(shift), log_total = Log(total);
    lse[r] = max_logit + log_total;
    log_probs[r] = logits[targets[r]] * (1 / temperature) - max_logit - log_total;
    // H = log Z - sum p x
    if (entropy != nullptr) entropy[r] = log_total - Sum(weighted) / total;
  }
}

void LogSoftmaxGatherBackward(int64_t rows, int64_t vocab, float* logits, float temperature, const int64_t* targets,
                              const float* lse, const float* entropy, const float* d_log_probs,
                              const float* d_entropy) {
  const float inverse = 1 / temperature;
  for (int64_t r = 0; r < rows; ++r, logits += vocab) {
    const float g = d_log_probs == nullptr ? 0 : d_log_probs[r];
    const F16 scale = Broadcast(inverse), shift = Broadcast(lse[r]), minus_g = Broadcast(-g * inverse);
    const F16 h = Broadcast(d_entropy == nullptr ? 0 : entropy[r]);
    const F16 minus_e = Broadcast(d_entropy == nullptr ? 0 : -d_entropy[r] * inverse);
    for (int64_t i = 0; i < vocab; i += kLanes) {
      const F16 log_p = LoadPart(logits + i, vocab - i) * scale - shift;
      const F16 p = Exp(log_p);
      F16 d = minus_g;
      if (d_entropy != nullptr) d = MulAdd(minus_e, Max(log_p, Broadcast(-1e4f)) + h, d);
      StorePart(logits + i, p * d, vocab - i);
    }
    logits[targets[r]] += g * inverse;
  }
}

}  // namespace
