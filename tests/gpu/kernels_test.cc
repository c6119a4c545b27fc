// Each CUDA kernel against a reference in double precision on the CPU.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "tests/gpu/device_memory.h"
#include "worker_train/optimizer/adamw.h"

namespace manta {
namespace {

using kernels::cuda::Type;
using testing::Empty;
using testing::IntsToDevice;
using testing::Rounded;
using testing::ToDevice;
using testing::ToHost;

std::vector<float> Normal(uint64_t seed, size_t n, float scale = 1) {
  RandomStream random(seed);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(random.NextNormal()) * scale;
  return values;
}

// |a - b| <= tolerance * (1 + |b|), everywhere.
void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected, double tolerance,
                const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]) / (1 + std::abs(expected[i]));
    if (!(error <= tolerance)) {
      FAIL() << what << " [" << i << "]: " << actual[i] << " for " << expected[i] << ", error " << error;
    }
    worst = std::max(worst, error);
  }
  std::printf("  %s: worst error %.2g (tolerance %.2g)\n", what.c_str(), worst, tolerance);
}

double Tolerance(Type type) {
  return type == Type::kF32 ? 2e-5 : 1.2e-2;
}

const char* TypeName(Type type) {
  return type == Type::kF32 ? "f32" : "bf16";
}

constexpr Type kTypes[] = {Type::kF32, Type::kBf16};

TEST(GpuAdamW, GivesTheCpusBits) {
  MANTA_NEED_GPU(api);
  for (const int64_t n : {1, 5, 1000, 100003}) {
    std::vector<float> master = Normal(1, n), m(n, 0), v(n, 0);
    at::Tensor dp = ToDevice(master), dm = ToDevice(m), dv = ToDevice(v), out = Empty(n, Type::kBf16);
    const train::AdamWOptions options{.lr = 3e-4, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    for (int step = 1; step <= 4; ++step) {
      const std::vector<float> gradient = Normal(10 + step, n, 0.1f);
      const at::Tensor dg = ToDevice(gradient);
      train::AdamWStep(options, step, 0.5f, gradient, std::span(master), std::span(m), std::span(v));
      kernels::cuda::AdamWArguments a;
      a.master = dp.data_ptr<float>();
      a.gradient = dg.data_ptr<float>();
      a.exp_avg = dm.data_ptr<float>();
      a.exp_avg_sq = dv.data_ptr<float>();
      a.parameters = out.data_ptr();
      a.n = n;
      a.lr = options.lr;
      a.weight_decay = options.weight_decay;
      a.beta1 = options.beta1;
      a.beta2 = options.beta2;
      a.eps = options.eps;
      a.step = step;
      a.gradient_scale = 0.5f;
      ASSERT_EQ(api->adamw(a, api->current_stream()), 0);
      ASSERT_TRUE(api->synchronize().ok());
    }
    EXPECT_EQ(ToHost(dp), master);
    EXPECT_EQ(ToHost(dm), m);
    EXPECT_EQ(ToHost(dv), v);
    EXPECT_EQ(ToHost(out), Rounded(master, Type::kBf16));
  }
}

TEST(GpuRmsNorm, ForwardAndBackward) {
  MANTA_NEED_GPU(api);
  for (const Type type : kTypes) {
    for (const auto& [rows, n] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 8}, {7, 64}, {5, 33}, {3, 1024}, {130, 4096}}) {
      const auto x = Rounded(Normal(1, rows * n), type), w = Rounded(Normal(2, n), type),
                 dy = Rounded(Normal(3, rows * n), type);
      const at::Tensor tx = ToDevice(x, type), tw = ToDevice(w, type), tdy = ToDevice(dy, type);
      at::Tensor y = Empty(rows * n, type), dx = Empty(rows * n, type), inverse = Empty(rows),
                 dw = at::zeros({n}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
      const double eps = 1e-6;
      ASSERT_EQ(api->rms_norm(type, tx.data_ptr(), tw.data_ptr(), y.data_ptr(), inverse.data_ptr<float>(), rows, n,
                              static_cast<float>(eps), api->current_stream()),
                0);
      ASSERT_EQ(api->rms_norm_backward(type, tdy.data_ptr(), tx.data_ptr(), tw.data_ptr(), inverse.data_ptr<float>(),
                                       dx.data_ptr(), dw.data_ptr<float>(), rows, n, api->current_stream()),
                0);
      std::vector<double> ey(rows * n), edx(rows * n), edw(n, 0);
      for (int64_t r = 0; r < rows; ++r) {
        double square = 0, dot = 0;
        for (int64_t i = 0; i < n; ++i) square += static_cast<double>(x[r * n + i]) * x[r * n + i];
        const double scale = 1 / std::sqrt(square / n + eps);
        for (int64_t i = 0; i < n; ++i) dot += dy[r * n + i] * w[i] * x[r * n + i] * scale;
        for (int64_t i = 0; i < n; ++i) {
          const double normed = x[r * n + i] * scale;
          ey[r * n + i] = normed * w[i];
          edx[r * n + i] = (dy[r * n + i] * w[i] - normed * dot / n) * scale;
          edw[i] += dy[r * n + i] * normed;
        }
      }
      const std::string what = absl::StrCat("rms_norm ", TypeName(type), " ", rows, "x", n);
      ExpectNear(ToHost(y), ey, Tolerance(type), what);
      ExpectNear(ToHost(dx), edx, Tolerance(type), what + " dx");
      ExpectNear(ToHost(dw), edw, 1e-4, what + " dw");
    }
  }
}

TEST(GpuSplitNormRotate, AgreesWithItsFormula) {
  MANTA_NEED_GPU(api);
  struct Case {
    int64_t rows, heads, kv_heads, head_dim;
    bool norm;
  };
  for (const Type type : kTypes) {
    for (const Case& c : {Case{3, 4, 2, 16, false}, Case{5, 2, 2, 64, true}, Case{2, 16, 8, 128, true},
                          Case{1, 3, 1, 256, true}, Case{4, 6, 3, 80, false}}) {
      const int64_t total = c.heads + 2 * c.kv_heads, d = c.head_dim, half = d / 2;
      const auto qkv = Rounded(Normal(1, c.rows * total * d), type), qn = Rounded(Normal(2, d), type),
                 kn = Rounded(Normal(3, d), type);
      std::vector<float> cos(c.rows * half), sin(c.rows * half);
      for (size_t i = 0; i < cos.size(); ++i) {
        cos[i] = static_cast<float>(std::cos(0.37 * static_cast<double>(i)));
        sin[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)));
      }
      const at::Tensor tqkv = ToDevice(qkv, type), tqn = ToDevice(qn, type), tkn = ToDevice(kn, type),
                       tcos = ToDevice(cos), tsin = ToDevice(sin);
      at::Tensor q = Empty(c.rows * c.heads * d, type), k = Empty(c.rows * c.kv_heads * d, type),
                 v = Empty(c.rows * c.kv_heads * d, type), qi = Empty(c.rows * c.heads),
                 ki = Empty(c.rows * c.kv_heads);
      ASSERT_EQ(
          api->split_norm_rotate(type, tqkv.data_ptr(), c.norm ? tqn.data_ptr() : nullptr,
                                 c.norm ? tkn.data_ptr() : nullptr, tcos.data_ptr<float>(), tsin.data_ptr<float>(),
                                 q.data_ptr(), k.data_ptr(), v.data_ptr(), qi.data_ptr<float>(), ki.data_ptr<float>(),
                                 c.rows, {c.heads, c.kv_heads, d}, 1e-6f, api->current_stream()),
          0);
      std::vector<double> eq, ek, ev;
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t h = 0; h < total; ++h) {
          const float* x = &qkv[(r * total + h) * d];
          std::vector<double> head(x, x + d);
          if (h >= c.heads + c.kv_heads) {
            ev.insert(ev.end(), head.begin(), head.end());
            continue;
          }
          if (c.norm) {
            double square = 0;
            for (double e : head) square += e * e;
            for (int64_t i = 0; i < d; ++i) head[i] *= (h < c.heads ? qn : kn)[i] / std::sqrt(square / d + 1e-6);
          }
          auto& out = h < c.heads ? eq : ek;
          for (int64_t i = 0; i < d; ++i) {
            const int64_t j = i % half;
            const double cs = cos[r * half + j], sn = sin[r * half + j];
            out.push_back(i < half ? head[i] * cs - head[i + half] * sn : head[i] * cs + head[j] * sn);
          }
        }
      }
      const std::string what = absl::StrCat("split_norm_rotate ", TypeName(type), " head_dim ", d);
      ExpectNear(ToHost(q), eq, Tolerance(type), what + " q");
      ExpectNear(ToHost(k), ek, Tolerance(type), what + " k");
      ExpectNear(ToHost(v), ev, 0, what + " v");
    }
  }
}

TEST(GpuSiluMul, ForwardAndBackward) {
  MANTA_NEED_GPU(api);
  for (const Type type : kTypes) {
    for (const auto& [rows, n] : std::vector<std::pair<int64_t, int64_t>>{{1, 8}, {3, 33}, {70000, 8}, {17, 3072}}) {
      const auto x = Rounded(Normal(1, rows * 2 * n, 3), type), dy = Rounded(Normal(2, rows * n), type);
      const at::Tensor tx = ToDevice(x, type), tdy = ToDevice(dy, type);
      at::Tensor y = Empty(rows * n, type), dx = Empty(rows * 2 * n, type);
      ASSERT_EQ(api->silu_mul(type, tx.data_ptr(), y.data_ptr(), rows, n, api->current_stream()), 0);
      ASSERT_EQ(
          api->silu_mul_backward(type, tdy.data_ptr(), tx.data_ptr(), dx.data_ptr(), rows, n, api->current_stream()),
          0);
      std::vector<double> ey(rows * n), edx(rows * 2 * n);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < n; ++i) {
          const double g = x[r * 2 * n + i], u = x[r * 2 * n + n + i], d = dy[r * n + i], s = 1 / (1 + std::exp(-g));
          ey[r * n + i] = g * s * u;
          edx[r * 2 * n + i] = d * u * s * (1 + g * (1 - s));
          edx[r * 2 * n + n + i] = d * g * s;
        }
      }
      const std::string what = absl::StrCat("silu_mul ", TypeName(type), " ", rows, "x", n);
      ExpectNear(ToHost(y), ey, Tolerance(type), what);
      ExpectNear(ToHost(dx), edx, Tolerance(type), what + " dx");
    }
  }
}

TEST(GpuLogSoftmaxGather, ForwardAndBackward) {
  MANTA_NEED_GPU(api);
  for (const Type type : kTypes) {
    for (const auto& [rows, vocab] : std::vector<std::pair<int64_t, int64_t>>{{2, 5}, {9, 1000}, {3, 151936}}) {
      auto logits = Rounded(Normal(1, rows * vocab, 4), type);
      logits[3] = -std::numeric_limits<float>::infinity();  // a filtered token
      std::vector<int64_t> targets(rows);
      for (int64_t r = 0; r < rows; ++r) targets[r] = (r * 7919) % vocab;
      const auto g = Normal(2, rows), h = Normal(3, rows);
      const float inverse_temperature = 1.25f;
      const at::Tensor tl = ToDevice(logits, type), tt = IntsToDevice(targets), tg = ToDevice(g), th = ToDevice(h);
      at::Tensor log_probs = Empty(rows), entropy = Empty(rows), log_sum = Empty(rows), d = Empty(rows * vocab, type);
      ASSERT_EQ(api->log_softmax_gather(type, tl.data_ptr(), tt.data_ptr<int64_t>(), inverse_temperature,
                                        log_probs.data_ptr<float>(), entropy.data_ptr<float>(),
                                        log_sum.data_ptr<float>(), rows, vocab, api->current_stream()),
                0);
      ASSERT_EQ(
          api->log_softmax_gather_backward(type, tl.data_ptr(), tt.data_ptr<int64_t>(), inverse_temperature,
                                           log_sum.data_ptr<float>(), tg.data_ptr<float>(), entropy.data_ptr<float>(),
                                           th.data_ptr<float>(), d.data_ptr(), rows, vocab, api->current_stream()),
          0);
      std::vector<double> el(rows), ee(rows), ed(rows * vocab);
      for (int64_t r = 0; r < rows; ++r) {
        double max = -1e300, sum = 0, mean = 0;
        std::vector<double> z(vocab);
        for (int64_t i = 0; i < vocab; ++i)
          max = std::max(max, z[i] = logits[r * vocab + i] * double{inverse_temperature});
        for (double e : z) sum += std::exp(e - max);
        const double total = max + std::log(sum);
        for (double e : z) mean += std::isinf(e) ? 0 : std::exp(e - total) * e;
        el[r] = z[targets[r]] - total;
        ee[r] = total - mean;
        for (int64_t i = 0; i < vocab; ++i) {
          const double p = std::exp(z[i] - total);
          const double from_entropy = p > 0 ? h[r] * p * (z[i] - total + ee[r]) : 0;
          ed[r * vocab + i] = (g[r] * ((i == targets[r]) - p) - from_entropy) * inverse_temperature;
        }
      }
      const std::string what = absl::StrCat("log_softmax_gather ", TypeName(type), " ", rows, "x", vocab);
      ExpectNear(ToHost(log_probs), el, 2e-5, what);
      ExpectNear(ToHost(entropy), ee, 2e-4, what + " entropy");
      ExpectNear(ToHost(d), ed, Tolerance(type), what + " d_logits");
    }
  }
}

}  // namespace
}  // namespace manta
