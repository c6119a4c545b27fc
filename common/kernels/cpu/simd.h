// Sixteen floats at a time, in GCC's vector extension: one AVX-512 register, two of AVX2, four of SSE. The width is the
// same for each, so that sums run in the same lanes. Included by the files that are compiled once per instruction set;
// everything here is inlined into them and nothing has external linkage.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define MANTA_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define MANTA_VECTOR_BYTES 32
#else
#define MANTA_VECTOR_BYTES 16
#endif
#define MANTA_INLINE inline __attribute__((always_inline))

namespace {

typedef float Reg __attribute__((vector_size(MANTA_VECTOR_BYTES)));
typedef float RegU __attribute__((vector_size(MANTA_VECTOR_BYTES), aligned(4), may_alias));
typedef int32_t IntReg __attribute__((vector_size(MANTA_VECTOR_BYTES)));

constexpr int kLanes = 16;
constexpr int kRegs = 64 / MANTA_VECTOR_BYTES;
constexpr int kRegLanes = MANTA_VECTOR_BYTES / 4;

struct F16 {
  Reg r[kRegs];
};

#define MANTA_EACH for (int i = 0; i < kRegs; ++i)

MANTA_INLINE F16 Load(const float* p) {
  F16 x;
  MANTA_EACH x.r[i] = *reinterpret_cast<const RegU*>(p + i * kRegLanes);
  return x;
}
MANTA_INLINE void Store(float* p, const F16& x) {
  MANTA_EACH* reinterpret_cast<RegU*>(p + i * kRegLanes) = x.r[i];
}
MANTA_INLINE F16 Broadcast(float f) {
  F16 x;
  MANTA_EACH x.r[i] = f - Reg{};
  return x;
}
MANTA_INLINE F16 Zero() {
  F16 x;
  MANTA_EACH x.r[i] = Reg{};
  return x;
}
// The first n lanes (0 < n <= 16), zeros or `fill` beyond.
MANTA_INLINE F16 LoadPart(const float* p, int64_t n, float fill = 0) {
  if (n >= kLanes) return Load(p);
#if defined(__AVX512F__)
  return {
      {reinterpret_cast<Reg>(_mm512_mask_loadu_ps(_mm512_set1_ps(fill), static_cast<__mmask16>((1u << n) - 1), p))}};
#endif
  alignas(64) float buffer[kLanes];
  for (int i = 0; i < kLanes; ++i) buffer[i] = i < n ? p[i] : fill;
  return Load(buffer);
}
MANTA_INLINE void StorePart(float* p, const F16& x, int64_t n) {
  if (n >= kLanes) return Store(p, x);
#if defined(__AVX512F__)
  return _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), reinterpret_cast<__m512>(x.r[0]));
#endif
  alignas(64) float buffer[kLanes];
  Store(buffer, x);
  for (int i = 0; i < n; ++i) p[i] = buffer[i];
}

MANTA_INLINE F16 operator+(F16 a, const F16& b) {
  MANTA_EACH a.r[i] += b.r[i];
  return a;
}
MANTA_INLINE F16 operator-(F16 a, const F16& b) {
  MANTA_EACH a.r[i] -= b.r[i];
  return a;
}
MANTA_INLINE F16 operator*(F16 a, const F16& b) {
  MANTA_EACH a.r[i] *= b.r[i];
  return a;
}
MANTA_INLINE F16 operator/(F16 a, const F16& b) {
  MANTA_EACH a.r[i] /= b.r[i];
  return a;
}
// a * b + c, fused where the machine has it (-ffp-contract=fast).
MANTA_INLINE F16 MulAdd(const F16& a, const F16& b, F16 c) {
  MANTA_EACH c.r[i] = a.r[i] * b.r[i] + c.r[i];
  return c;
}
MANTA_INLINE F16 MulAdd(float a, const F16& b, F16 c) {
  MANTA_EACH c.r[i] = a * b.r[i] + c.r[i];
  return c;
}
MANTA_INLINE F16 Max(F16 a, const F16& b) {
  MANTA_EACH a.r[i] = a.r[i] > b.r[i] ? a.r[i] : b.r[i];
  return a;
}

typedef float Four __attribute__((vector_size(16)));
typedef float FourU __attribute__((vector_size(16), aligned(4), may_alias));

// Lanes i and i + 8, then 4, 2, 1 apart: always the same tree.
MANTA_INLINE float Sum(const F16& x) {
  alignas(64) float b[kLanes];
  Store(b, x);
  const FourU* f = reinterpret_cast<const FourU*>(b);
  const Four s = (f[0] + f[2]) + (f[1] + f[3]);
  return (s[0] + s[2]) + (s[1] + s[3]);
}
MANTA_INLINE float MaxLane(const F16& x) {
  alignas(64) float b[kLanes];
  Store(b, x);
  const FourU* f = reinterpret_cast<const FourU*>(b);
  const Four low = f[0] > f[1] ? f[0] : f[1], high = f[2] > f[3] ? f[2] : f[3];
  const Four m = low > high ? low : high;
  const float a = m[0] > m[1] ? m[0] : m[1], c = m[2] > m[3] ? m[2] : m[3];
  return a > c ? a : c;
}
typedef int32_t IntFour __attribute__((vector_size(16)));

// 4 x 4 floats transposed: rows of src are `ld` apart, rows of dst `ld_dst`.
MANTA_INLINE void Transpose4(const float* src, int64_t ld, float* dst, int64_t ld_dst) {
  const Four a = *reinterpret_cast<const FourU*>(src), b = *reinterpret_cast<const FourU*>(src + ld);
  const Four c = *reinterpret_cast<const FourU*>(src + 2 * ld), d = *reinterpret_cast<const FourU*>(src + 3 * ld);
  const Four ab0 = __builtin_shuffle(a, b, IntFour{0, 4, 1, 5}), ab1 = __builtin_shuffle(a, b, IntFour{2, 6, 3, 7});
  const Four cd0 = __builtin_shuffle(c, d, IntFour{0, 4, 1, 5}), cd1 = __builtin_shuffle(c, d, IntFour{2, 6, 3, 7});
  *reinterpret_cast<FourU*>(dst) = __builtin_shuffle(ab0, cd0, IntFour{0, 1, 4, 5});
  *reinterpret_cast<FourU*>(dst + ld_dst) = __builtin_shuffle(ab0, cd0, IntFour{2, 3, 6, 7});
  *reinterpret_cast<FourU*>(dst + 2 * ld_dst) = __builtin_shuffle(ab1, cd1, IntFour{0, 1, 4, 5});
  *reinterpret_cast<FourU*>(dst + 3 * ld_dst) = __builtin_shuffle(ab1, cd1, IntFour{2, 3, 6, 7});
}

// Lanes outside [begin, end) replaced by `fill`.
MANTA_INLINE F16 KeepLanes(F16 x, int64_t begin, int64_t end, float fill) {
  const int32_t low = static_cast<int32_t>(begin < 0 ? 0 : begin),
                high = static_cast<int32_t>(end > kLanes ? kLanes : end);
  const Reg filled = fill - Reg{};
  MANTA_EACH {
    IntReg lane;
    for (int j = 0; j < kRegLanes; ++j) lane[j] = i * kRegLanes + j;
    x.r[i] = lane < low ? filled : x.r[i];
    x.r[i] = lane >= high ? filled : x.r[i];
  }
  return x;
}

// e^x: 2^n e^r with |r| <= ln(2) / 2 and e^r by its Taylor sum to r^7; relative error below 2e-7. Below -87.3 the
// result is 0, above 88.7 infinite.
MANTA_INLINE F16 Exp(const F16& x) {
  F16 y;
  MANTA_EACH {
    Reg v = x.r[i];
    const Reg low = Reg{} - 87.33f, high = Reg{} + 88.72f;
    const IntReg under = v<low, over = v> high;
    v = under ? low : v;
    v = over ? high : v;
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    const Reg magic = Reg{} + 12582912.0f;
    const Reg shifted = v * 1.44269504f + magic;
    const Reg n = shifted - magic;
    Reg r = v - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    Reg p = r * (1.0f / 5040) + (1.0f / 720);
    p = p * r + (1.0f / 120);
    p = p * r + (1.0f / 24);
    p = p * r + (1.0f / 6);
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    IntReg bits;
    std::memcpy(&bits, &shifted, sizeof(bits));
    // Two steps of 2^(n/2), so that neither factor leaves the exponent's range.
    const IntReg exponent = bits - 0x4B400000;
    const IntReg half = exponent >> 1, rest = exponent - half;
    const IntReg s1 = (half + 127) << 23, s2 = (rest + 127) << 23;
    Reg f1, f2;
    std::memcpy(&f1, &s1, sizeof(f1));
    std::memcpy(&f2, &s2, sizeof(f2));
    p = p * f1 * f2;
    p = under ? Reg{} : p;
    y.r[i] = over ? Reg{} + __builtin_inff() : p;
  }
  return y;
}

}  // namespace
