// Matrix products on the CPU in float32, batch-invariant: an element of the result is the same, bit for bit, whatever
// the number of rows, the other rows, the number of threads, and whether the weight was packed before.
//
// Each element sums over k in ascending order with fused multiply-add, in blocks of kBlockK whose sums are then added
// up in order. The code is compiled for AVX-512, AVX2 and plain x86-64; the machine's best is chosen at the first call.
// Functions are thread-safe; pointers need no alignment; the result must not overlap the inputs. Nothing here fails.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace manta::kernels {

inline constexpr int64_t kPanel = 32;    // columns packed side by side
inline constexpr int64_t kBlockK = 256;  // terms summed before they are added to the result

// A matrix seen through strides, in elements.
struct MatrixView {
  const float* data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
};

// y[m, n] = a[m, k] b[k, n] + bias, added to what y holds where `accumulate`. bias: [n] or null. y: rows contiguous, `ldy` apart.
// A weight w[n, k] as Hugging Face stores it is b through {w, 1, k}; x w^T is thus Gemm(m, n, k, {x, k, 1}, {w, 1, k},
// ...).
void Gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, const float* bias, bool accumulate, float* y,
          int64_t ldy);

// A weight [n, k] in the order in which the kernel reads it. Worth its memory when the weight is multiplied by few rows
// many times. Immutable.
class PackedWeight {
 public:
  // w: row-major [n, k].
  PackedWeight(const float* w, int64_t n, int64_t k);
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  const float* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* p) const;
  };
  int64_t n_, k_;
  std::unique_ptr<float[], Free> data_;  // [ceil(n / kPanel), k, kPanel], zeros beyond n
};

// y[m, n] = x[m, k] w^T + bias, added to what y holds where `accumulate`; rows of x `ldx` apart.
void Gemm(int64_t m, const float* x, int64_t ldx, const PackedWeight& w, const float* bias, bool accumulate, float* y,
          int64_t ldy);

}  // namespace manta::kernels
