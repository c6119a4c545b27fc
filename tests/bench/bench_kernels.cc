// The CPU kernels against ATen on one thread. Prints a line a case: GFLOP/s of ours and of ATen's, and the ratio.
//
// Weights of the sizes that small language models have; m is the number of rows (tokens of a decode step, or of a
// batch).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "common/kernels/attention.h"
#include "common/kernels/gemm.h"

namespace manta {
namespace {

// Of this thread's own time, so that a busy machine does not count.
double Seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The fastest of a few rounds: others share the machine.
template <typename Body>
double Best(Body&& body) {
  body();
  const double begin = Seconds();
  body();
  const int repeats = std::clamp(static_cast<int>(0.003 / (Seconds() - begin + 1e-9)), 1, 2000);
  double best = 1e9;
  for (int round = 0; round < 12; ++round) {
    const double start = Seconds();
    for (int i = 0; i < repeats; ++i) body();
    best = std::min(best, (Seconds() - start) / repeats);
  }
  return best;
}

void Print(const char* name, int64_t m, int64_t n, int64_t k, double flops, double ours, double theirs) {
  std::printf("%-14s m=%-5ld n=%-5ld k=%-5ld ours %7.1f GFLOP/s  ATen %7.1f GFLOP/s  ratio %.2f\n", name,
              static_cast<long>(m), static_cast<long>(n), static_cast<long>(k), flops / ours * 1e-9,
              flops / theirs * 1e-9, theirs / ours);
}

void BenchGemm(int64_t n, int64_t k) {
  const at::Tensor w = at::randn({n, k});
  const kernels::PackedWeight packed(w.data_ptr<float>(), n, k);
  for (const int64_t m : {1, 2, 4, 8, 16, 32, 64, 512}) {
    const at::Tensor x = at::randn({m, k});
    at::Tensor y = at::empty({m, n}), z = at::empty({m, n});
    const at::Tensor wt = w.t();
    const double theirs = Best([&] { at::mm_out(z, x, wt); });
    const double ours =
        Best([&] { kernels::Gemm(m, x.data_ptr<float>(), k, packed, nullptr, false, y.data_ptr<float>(), n); });
    const double flops = 2.0 * static_cast<double>(m * n * k);
    Print("packed", m, n, k, flops, ours, theirs);
    if (m < 64) continue;
    const double unpacked = Best([&] {
      kernels::Gemm(m, n, k, {x.data_ptr<float>(), k, 1}, {w.data_ptr<float>(), 1, k}, nullptr, false,
                    y.data_ptr<float>(), n);
    });
    Print("unpacked", m, n, k, flops, unpacked, theirs);
    at::Tensor g = at::zeros({n, k}), h = at::zeros({n, k});
    const double ours_grad = Best([&] {
      kernels::Gemm(n, k, m, {y.data_ptr<float>(), 1, n}, {x.data_ptr<float>(), k, 1}, nullptr, true,
                    g.data_ptr<float>(), k);
    });
    const double theirs_grad = Best([&] { h.addmm_(y.t(), x); });
    Print("weight grad", m, n, k, flops, ours_grad, theirs_grad);
  }
}

void BenchAttention(int64_t tokens, int64_t heads, int64_t kv_heads, int64_t dim) {
  const at::Tensor q = at::randn({tokens, heads, dim}), k = at::randn({tokens, kv_heads, dim}), v = at::randn_like(k);
  at::Tensor out = at::empty_like(q), lse = at::empty({tokens, heads}), dq = at::empty_like(q), dk = at::empty_like(k),
             dv = at::empty_like(v);
  const int64_t cu[] = {0, tokens};
  const kernels::AttentionShape shape{heads, kv_heads, dim, 0.1f, 0};
  const auto run = [&] {
    kernels::AttentionForward(shape, {1, cu}, q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(),
                              out.data_ptr<float>(), lse.data_ptr<float>());
  };
  const double ours = Best(run);
  const auto first = [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
  const double theirs = Best(
      [&] { at::scaled_dot_product_attention(first(q), first(k), first(v), {}, 0.0, true, 0.1, heads != kv_heads); });
  const double flops = 2.0 * static_cast<double>(tokens * tokens * heads * dim);  // half of the square, twice
  Print("attention", tokens, heads, dim, flops, ours, theirs);
  const double backward = Best([&] {
    kernels::AttentionBackward(shape, {1, cu}, q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(),
                               out.data_ptr<float>(), lse.data_ptr<float>(), q.data_ptr<float>(), dq.data_ptr<float>(),
                               dk.data_ptr<float>(), dv.data_ptr<float>());
  });
  std::printf("%-14s m=%-5ld %ld heads of %-5ld ours %7.1f GFLOP/s\n", "its backward", static_cast<long>(tokens),
              static_cast<long>(heads), static_cast<long>(dim), 2.5 * flops / backward * 1e-9);
}

}  // namespace
}  // namespace manta

int main() {
  at::NoGradGuard no_grad;
  at::set_num_threads(1);
  manta::BenchGemm(384, 128);
  manta::BenchGemm(2048, 128);
  manta::BenchGemm(1024, 1024);
  for (const int64_t tokens : {32, 256}) {
    manta::BenchAttention(tokens, 8, 4, 16);
    manta::BenchAttention(tokens, 8, 4, 64);
  }
}
