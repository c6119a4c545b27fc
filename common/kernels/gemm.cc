#include "common/kernels/gemm.h"

#include <cstdlib>
#include <new>

#include "common/kernels/cpu/table.h"
#include "common/kernels/parallel.h"

namespace manta::kernels {
namespace {

// Multiply-adds below which waking a second thread costs more than it saves.
constexpr int64_t kWorthAThread = 200'000;

void Run(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, const float* packed, const float* bias,
         bool accumulate, float* y, int64_t ldy) {
  if (m <= 0 || n <= 0) return;
  const cpu::Table& table = cpu::Kernels();
  const int64_t panels = (n + kPanel - 1) / kPanel, cost = m * k * kPanel + 1;
  ParallelFor(panels, (kWorthAThread + cost - 1) / cost, [&](int64_t begin, int64_t end) {
    const int64_t n_end = end * kPanel < n ? end * kPanel : n;
    table.gemm(m, begin * kPanel, n_end, k, a, b, packed, bias, accumulate, y, ldy);
  });
}

}  // namespace

void Gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, const float* bias, bool accumulate, float* y,
          int64_t ldy) {
  Run(m, n, k, a, b, nullptr, bias, accumulate, y, ldy);
}

void Gemm(int64_t m, const float* x, int64_t ldx, const PackedWeight& w, const float* bias, bool accumulate, float* y,
          int64_t ldy) {
  Run(m, w.n(), w.k(), {x, ldx, 1}, {}, w.data(), bias, accumulate, y, ldy);
}

void PackedWeight::Free::operator()(float* p) const {
  std::free(p);
}

PackedWeight::PackedWeight(const float* w, int64_t n, int64_t k) : n_(n), k_(k) {
  const int64_t panels = (n + kPanel - 1) / kPanel;
  const size_t bytes = static_cast<size_t>(panels * k * kPanel) * sizeof(float);
  data_.reset(static_cast<float*>(std::aligned_alloc(64, bytes == 0 ? 64 : bytes)));
  if (data_ == nullptr) throw std::bad_alloc();
  const cpu::Table& table = cpu::Kernels();
  for (int64_t i = 0; i < panels; ++i) table.pack({w, 1, k}, i, n, 0, k, data_.get() + i * k * kPanel);
}

}  // namespace manta::kernels
