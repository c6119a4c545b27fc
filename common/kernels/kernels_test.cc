// The CPU kernels against plain loops in double, and their promise: no bit depends on neighbours, packing or threads.
#include <cmath>
#include <cstring>
#include <vector>

#include "common/base/random.h"
#include "common/kernels/attention.h"
#include "common/kernels/gemm.h"
#include "common/kernels/parallel.h"
#include "common/kernels/rows.h"
#include "gtest/gtest.h"

namespace manta::kernels {
namespace {

using Floats = std::vector<float>;

Floats Random(int64_t n, uint64_t seed, double scale = 1) {
  RandomStream random(seed);
  Floats x(n);
  for (float& v : x) v = static_cast<float>(random.NextNormal() * scale);
  return x;
}

double MaxDiff(const Floats& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    worst = d <= worst ? worst : d;  // keeps NaN
  }
  return worst;
}

bool SameBits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

TEST(GemmTest, AgreesWithDouble) {
  for (const auto& [m, n, k] : {std::tuple{1, 1, 1},
                               {1, 32, 64},
                               {2, 33, 7},
                               {3, 129, 300},
                               {5, 200, 64},
                               {13, 31, 513},
                               {24, 64, 256},
                               {25, 70, 17},
                               {64, 96, 48},
                               {7, 5, 0}}) {
    const Floats a = Random(m * k, 1), w = Random(n * k, 2), bias = Random(n, 3), old = Random(m * n, 4);
    std::vector<double> expected(m * n), added(m * n);
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        for (int p = 0; p < k; ++p) sum += static_cast<double>(a[i * k + p]) * w[j * k + p];
        expected[i * n + j] = sum + bias[j];
        added[i * n + j] = sum + old[i * n + j];
      }
    }
    const double tolerance = 1e-5 * (1 + std::sqrt(k));
    Floats y(m * n, NAN);
    Gemm(m, n, k, {a.data(), k, 1}, {w.data(), 1, k}, bias.data(), false, y.data(), n);
    EXPECT_LE(MaxDiff(y, expected), tolerance) << m << " " << n << " " << k;

    Floats packed(m * n, NAN);
    const PackedWeight weight(w.data(), n, k);
    Gemm(m, a.data(), k, weight, bias.data(), false, packed.data(), n);
    EXPECT_TRUE(SameBits(y.data(), packed.data(), m * n));

    // Through the other layouts: both operands transposed, added to what is there.
    Floats at(m * k), wt(n * k), sum = old;
    for (int i = 0; i < m; ++i) {
      for (int p = 0; p < k; ++p) at[p * m + i] = a[i * k + p];
    }
    for (int j = 0; j < n; ++j) {
      for (int p = 0; p < k; ++p) wt[p * n + j] = w[j * k + p];
    }
    Gemm(m, n, k, {at.data(), 1, m}, {wt.data(), n, 1}, nullptr, true, sum.data(), n);
    EXPECT_LE(MaxDiff(sum, added), tolerance);
  }
}

TEST(GemmTest, RowsDoNotDependOnTheirNumberOrOnThreads) {
  const int64_t m = 70, n = 300, k = 530;
  const Floats a = Random(m * k, 5), w = Random(n * k, 6);
  Floats all(m * n), some(m * n);
  Gemm(m, n, k, {a.data(), k, 1}, {w.data(), 1, k}, nullptr, false, all.data(), n);
  const PackedWeight packed(w.data(), n, k);
  for (int threads : {1, 2, 3}) {
    SetThreads(threads);
    for (int64_t rows : {1, 2, 3, 4, 6, 7, 11, 12, 13, 17, 64}) {
      const int64_t first = (rows * 7) % (m - rows + 1);
      Gemm(rows, a.data() + first * k, k, packed, nullptr, false, some.data(), n);
      EXPECT_TRUE(SameBits(some.data(), all.data() + first * n, rows * n))
          << rows << " rows, " << threads << " threads";
    }
  }
  SetThreads(1);
}

TEST(RowsTest, RmsNorm) {
  for (const int64_t n : {1, 15, 16, 64, 100}) {
    const int64_t rows = 3;
    const Floats x = Random(rows * n, 7), w = Random(n, 8), dy = Random(rows * n, 9);
    Floats y(rows * n), inverse(rows), dx(rows * n), dw(n, 1.0f);
    RmsNormForward(rows, n, x.data(), w.data(), 1e-5f, y.data(), inverse.data());
    RmsNormBackward(rows, n, dy.data(), x.data(), w.data(), inverse.data(), dx.data(), dw.data());
    std::vector<double> ey(rows * n), edx(rows * n), edw(n, 1.0);
    for (int64_t r = 0; r < rows; ++r) {
      double square = 0, dot = 0;
      for (int64_t i = 0; i < n; ++i) square += std::pow(x[r * n + i], 2);
      const double inv = 1 / std::sqrt(square / n + 1e-5);
      for (int64_t i = 0; i < n; ++i) {
        ey[r * n + i] = x[r * n + i] * inv * w[i];
        edw[i] += dy[r * n + i] * x[r * n + i] * inv;
        dot += dy[r * n + i] * w[i] * x[r * n + i] * inv;
      }
      for (int64_t i = 0; i < n; ++i) {
        edx[r * n + i] = inv * (dy[r * n + i] * w[i] - x[r * n + i] * inv * dot / n);
      }
    }
    EXPECT_LE(MaxDiff(y, ey), 1e-5);
    EXPECT_LE(MaxDiff(dx, edx), 2e-5);
    EXPECT_LE(MaxDiff(dw, edw), 1e-5);
  }
}

TEST(RowsTest, SiluMul) {
  const int64_t rows = 2, n = 37;
  Floats x = Random(rows * 2 * n, 10, 4), y(rows * n), dx(rows * 2 * n);
  x[0] = -100;  // the exponential overflows float32
  x[1] = 100;
  const Floats dy = Random(rows * n, 11);
  SiluMulForward(rows, n, x.data(), y.data());
  SiluMulBackward(rows, n, dy.data(), x.data(), dx.data());
  std::vector<double> ey(rows * n), edx(rows * 2 * n);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; ++i) {
      const double g = x[r * 2 * n + i], u = x[r * 2 * n + n + i], s = 1 / (1 + std::exp(-g)), d = dy[r * n + i];
      ey[r * n + i] = g * s * u;
      edx[r * 2 * n + i] = d * u * s * (1 + g * (1 - s));
      edx[r * 2 * n + n + i] = d * g * s;
    }
  }
  EXPECT_LE(MaxDiff(y, ey), 3e-5);
  EXPECT_LE(MaxDiff(dx, edx), 3e-5);
}

TEST(RowsTest, LogSoftmaxGather) {
  const int64_t rows = 3, vocab = 201;
  const float temperature = 0.7f;
  const Floats logits = Random(rows * vocab, 12, 5), g = Random(rows, 13), ge = Random(rows, 14);
  const std::vector<int64_t> targets = {0, 200, 77};
  Floats lp(rows), lse(rows), entropy(rows), d = logits;
  LogSoftmaxGather(rows, vocab, logits.data(), temperature, targets.data(), lp.data(), lse.data(), entropy.data());
  LogSoftmaxGatherBackward(rows, vocab, d.data(), temperature, targets.data(), lse.data(), entropy.data(), g.data(),
                           ge.data());
  std::vector<double> elp(rows), eentropy(rows), ed(rows * vocab);
  for (int64_t r = 0; r < rows; ++r) {
    double total = 0, h = 0;
    const double t = temperature;
    for (int64_t j = 0; j < vocab; ++j) total += std::exp(logits[r * vocab + j] / t);
    const auto log_p = [&](int64_t j) { return logits[r * vocab + j] / t - std::log(total); };
    for (int64_t j = 0; j < vocab; ++j) h -= std::exp(log_p(j)) * log_p(j);
    elp[r] = log_p(targets[r]);
    eentropy[r] = h;
    for (int64_t j = 0; j < vocab; ++j) {
      const double p = std::exp(log_p(j));
      ed[r * vocab + j] = (g[r] * ((j == targets[r]) - p) - ge[r] * p * (log_p(j) + h)) / t;
    }
  }
  EXPECT_LE(MaxDiff(lp, elp), 2e-5);
  EXPECT_LE(MaxDiff(entropy, eentropy), 1e-5);
  EXPECT_LE(MaxDiff(d, ed), 1e-5);
}

// Attention in double; returns out, or with d_out the gradients of q, k, v one after the other.
std::vector<double> ReferenceAttention(const AttentionShape& s, const std::vector<int64_t>& cu, const Floats& q,
                                       const Floats& k, const Floats& v, const Floats* d_out) {
  const int64_t group = s.num_heads / s.num_kv_heads, dim = s.head_dim;
  std::vector<double> out(q.size()), dq(q.size()), dk(k.size()), dv(v.size());
  for (size_t seq = 0; seq + 1 < cu.size(); ++seq) {
    for (int64_t i = cu[seq]; i < cu[seq + 1]; ++i) {
      for (int64_t h = 0; h < s.num_heads; ++h) {
        const float* qi = &q[(i * s.num_heads + h) * dim];
        const auto at = [&](int64_t j) { return (j * s.num_kv_heads + h / group) * dim; };
        const int64_t first = s.window > 0 ? std::max(cu[seq], i - s.window + 1) : cu[seq];
        std::vector<double> p;
        double total = 0, delta = 0;
        for (int64_t j = first; j <= i; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < dim; ++d) dot += static_cast<double>(qi[d]) * k[at(j) + d];
          p.push_back(std::exp(dot * s.scale));
          total += p.back();
        }
        double* o = &out[(i * s.num_heads + h) * dim];
        for (int64_t j = first; j <= i; ++j) {
          for (int64_t d = 0; d < dim; ++d) o[d] += (p[j - first] /= d == 0 ? total : 1) * v[at(j) + d];
        }
        if (d_out == nullptr) continue;
        const float* g = &(*d_out)[(i * s.num_heads + h) * dim];
        for (int64_t d = 0; d < dim; ++d) delta += g[d] * o[d];
        for (int64_t j = first; j <= i; ++j) {
          double dp = 0;
          for (int64_t d = 0; d < dim; ++d) dp += static_cast<double>(g[d]) * v[at(j) + d];
          const double ds = p[j - first] * (dp - delta) * s.scale;
          for (int64_t d = 0; d < dim; ++d) {
            dq[(i * s.num_heads + h) * dim + d] += ds * k[at(j) + d];
            dk[at(j) + d] += ds * qi[d];
            dv[at(j) + d] += p[j - first] * g[d];
          }
        }
      }
    }
  }
  if (d_out == nullptr) return out;
  dq.insert(dq.end(), dk.begin(), dk.end());
  dq.insert(dq.end(), dv.begin(), dv.end());
  return dq;
}

TEST(AttentionTest, AgreesWithDouble) {
  const std::vector<int64_t> cu = {0, 1, 40, 40, 75};
  for (const int64_t dim : {6, 16, 40, 64, 80}) {
    for (const int64_t window : {0, 5, 33}) {
      const AttentionShape s{4, 2, dim, static_cast<float>(1 / std::sqrt(dim)), window};
      const int64_t tokens = cu.back();
      const Floats q = Random(tokens * 4 * dim, 15), k = Random(tokens * 2 * dim, 16), v = Random(tokens * 2 * dim, 17);
      const Floats d_out = Random(tokens * 4 * dim, 18);
      Floats out(q.size(), NAN), lse(tokens * 4), grads(q.size() + 2 * k.size(), NAN);
      AttentionForward(s, {4, cu.data()}, q.data(), k.data(), v.data(), out.data(), lse.data());
      EXPECT_LE(MaxDiff(out, ReferenceAttention(s, cu, q, k, v, nullptr)), 5e-6) << dim << " " << window;
      AttentionBackward(s, {4, cu.data()}, q.data(), k.data(), v.data(), out.data(), lse.data(), d_out.data(),
                        grads.data(), grads.data() + q.size(), grads.data() + q.size() + k.size());
      EXPECT_LE(MaxDiff(grads, ReferenceAttention(s, cu, q, k, v, &d_out)), 3e-5) << dim << " " << window;
    }
  }
}

TEST(AttentionTest, SequencesDoNotDependOnTheirNeighbours) {
  const AttentionShape s{4, 2, 24, 0.2f, 0};
  const std::vector<int64_t> cu = {0, 9, 60, 77};
  const Floats q = Random(77 * 96, 19), k = Random(77 * 48, 20), v = Random(77 * 48, 21);
  Floats all(77 * 96), alone(77 * 96);
  AttentionForward(s, {3, cu.data()}, q.data(), k.data(), v.data(), all.data(), nullptr);
  for (int seq = 0; seq < 3; ++seq) {
    // Shorter sequences too: the first queries do not see what follows.
    for (const int64_t length : {cu[seq + 1] - cu[seq], int64_t{5}}) {
      const int64_t own[] = {0, length}, at = cu[seq];
      AttentionForward(s, {1, own}, q.data() + at * 96, k.data() + at * 48, v.data() + at * 48, alone.data(), nullptr);
      EXPECT_TRUE(SameBits(alone.data(), all.data() + at * 96, length * 96));
    }
  }
}

// Three trees: one whose branches share rows in pieces, one that goes on where the sequence before it ended, one alone.
TEST(AttentionTest, PrefixesAreAsIfTheyWereCopied) {
  const std::vector<int64_t> cu = {0, 30, 33, 40, 41, 60, 71, 76};
  const std::vector<std::vector<int64_t>> prefixes = {{}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 30, 31}, {0, 1}, {}, {}, {}};
  std::vector<std::vector<int64_t>> paths = prefixes;
  for (int64_t row = 41; row < 60; ++row) paths[5].push_back(row);
  std::vector<int64_t> cu_prefixes = {0}, prefix_rows, cu_copied = {0}, copied;
  for (size_t s = 0; s < paths.size(); ++s) {
    prefix_rows.insert(prefix_rows.end(), paths[s].begin(), paths[s].end());
    cu_prefixes.push_back(static_cast<int64_t>(prefix_rows.size()));
    for (int64_t row = cu[s]; row < cu[s + 1]; ++row) paths[s].push_back(row);
    copied.insert(copied.end(), paths[s].begin(), paths[s].end());
    cu_copied.push_back(static_cast<int64_t>(copied.size()));
  }
  const AttentionRows rows{7, cu.data(), cu_prefixes.data(), prefix_rows.data()}, plain{7, cu_copied.data()};
  const int64_t n = cu.back(), m = cu_copied.back(), dim = 20;
  const auto copy = [&](const Floats& x, int64_t width) {
    Floats y;
    for (const int64_t row : copied) y.insert(y.end(), x.begin() + row * width, x.begin() + (row + 1) * width);
    return y;
  };
  for (const int64_t window : {0, 3, 20}) {
    const AttentionShape s{4, 2, dim, 0.3f, window};
    const Floats q = Random(n * 4 * dim, 22), k = Random(n * 2 * dim, 23), v = Random(n * 2 * dim, 24);
    const Floats q2 = copy(q, 4 * dim), k2 = copy(k, 2 * dim), v2 = copy(v, 2 * dim);
    Floats out(q.size(), NAN), lse(n * 4, NAN), out2(q2.size()), lse2(m * 4);
    AttentionForward(s, rows, q.data(), k.data(), v.data(), out.data(), lse.data());
    AttentionForward(s, plain, q2.data(), k2.data(), v2.data(), out2.data(), lse2.data());
    EXPECT_EQ(copy(out, 4 * dim), out2);
    EXPECT_EQ(copy(lse, 4), lse2);
    // Backward: of the copies, only those have a gradient that stand for the row itself; theirs add up.
    const Floats d_out = Random(n * 4 * dim, 25);
    Floats d_out2(q2.size(), 0.0f);
    for (size_t seq = 0; seq < paths.size(); ++seq) {
      for (int64_t i = cu_copied[seq + 1] - (cu[seq + 1] - cu[seq]); i < cu_copied[seq + 1]; ++i) {
        std::copy_n(d_out.begin() + copied[i] * 4 * dim, 4 * dim, d_out2.begin() + i * 4 * dim);
      }
    }
    Floats d_q(q.size(), NAN), d_k(k.size(), NAN), d_v(k.size(), NAN), d_q2(q2.size()), d_k2(k2.size()),
        d_v2(k2.size());
    AttentionBackward(s, rows, q.data(), k.data(), v.data(), out.data(), lse.data(), d_out.data(), d_q.data(),
                      d_k.data(), d_v.data());
    AttentionBackward(s, plain, q2.data(), k2.data(), v2.data(), out2.data(), lse2.data(), d_out2.data(), d_q2.data(),
                      d_k2.data(), d_v2.data());
    const auto add_up = [&](const Floats& x, int64_t width) {
      std::vector<double> y(n * width, 0.0);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t d = 0; d < width; ++d) y[copied[i] * width + d] += x[i * width + d];
      }
      return y;
    };
    EXPECT_LE(MaxDiff(d_q, add_up(d_q2, 4 * dim)), 1e-5);
    EXPECT_LE(MaxDiff(d_k, add_up(d_k2, 2 * dim)), 1e-5);
    EXPECT_LE(MaxDiff(d_v, add_up(d_v2, 2 * dim)), 1e-5);
    // The number of threads changes no bit.
    Floats t_k(k.size(), NAN), t_v(k.size(), NAN), t_q(q.size(), NAN);
    SetThreads(3);
    AttentionBackward(s, rows, q.data(), k.data(), v.data(), out.data(), lse.data(), d_out.data(), t_q.data(),
                      t_k.data(), t_v.data());
    SetThreads(1);
    EXPECT_EQ(t_q, d_q);
    EXPECT_EQ(t_k, d_k);
    EXPECT_EQ(t_v, d_v);
  }
}

}  // namespace
}  // namespace manta::kernels
