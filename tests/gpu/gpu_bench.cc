// What the GPU's kernels reach, each beside the machine's own ceiling, measured in the same run. Not a test: it prints.
#include <ATen/ATen.h>

#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/comm/cpu_collective.h"
#include "common/comm/group_for_test.h"
#include "common/cuda/load.h"

namespace manta {
namespace {

using kernels::cuda::Type;

// Seconds a call, after warming up, over enough calls to fill a fifth of a second.
double Seconds(const cuda::Api* api, const std::function<void()>& call) {
  for (int i = 0; i < 3; ++i) call();
  MANTA_CHECK(api->synchronize().ok());
  for (int calls = 4;; calls *= 4) {
    const absl::Time start = absl::Now();
    for (int i = 0; i < calls; ++i) call();
    MANTA_CHECK(api->synchronize().ok());
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    if (seconds > 0.2) return seconds / calls;
  }
}

class Bench {
 public:
  explicit Bench(const cuda::Api* api) : api_(api) {
    const at::Tensor from = at::empty({int64_t{1} << 30}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
    at::Tensor to = at::empty_like(from);
    ceiling_ = 8.0 * from.numel() / Seconds(api, [&] { to.copy_(from); }) * 1e-9;
    std::printf("FIGURE memory copy, read + write: %.0f GB/s\n", ceiling_);
  }
  // A kernel bound by memory: bytes read and written at least.
  void Memory(const std::string& name, double bytes, const std::function<void()>& call) {
    const double seconds = Seconds(api_, call), rate = bytes / seconds * 1e-9;
    std::printf("FIGURE %s: %.1f us, %.0f GB/s, %.2f of the copy's\n", name.c_str(), seconds * 1e6, rate,
                rate / ceiling_);
  }

 private:
  const cuda::Api* const api_;
  double ceiling_;
};

void Kernels(const cuda::Api* api) {
  const auto floats = at::TensorOptions(at::kCUDA).dtype(at::kFloat), halves = floats.dtype(at::kBFloat16);
  const auto stream = [&] { return api->current_stream(); };
  const auto ok = [&](int error) { MANTA_CHECK(error == 0) << api->error_text(error); };
  Bench bench(api);
  {
    const int64_t n = 500'000'000;
    at::Tensor p = at::randn({n}, floats), g = at::randn({n}, floats), m = at::zeros({n}, floats),
               v = at::zeros({n}, floats), out = at::empty({n}, halves);
    kernels::cuda::AdamWArguments a;
    a.master = p.data_ptr<float>();
    a.gradient = g.data_ptr<float>();
    a.exp_avg = m.data_ptr<float>();
    a.exp_avg_sq = v.data_ptr<float>();
    a.parameters = out.data_ptr();
    a.n = n;
    a.lr = 1e-5;
    bench.Memory("adamw, 500M parameters", 30.0 * n, [&] { ok(api->adamw(a, stream())); });
  }
  for (const int64_t hidden : {1024, 4096}) {
    const int64_t rows = (int64_t{1} << 28) / hidden;
    const at::Tensor x = at::randn({rows, hidden}, halves), w = at::randn({hidden}, halves);
    at::Tensor y = at::empty_like(x);
    bench.Memory(absl::StrCat("rms_norm bf16 ", rows, "x", hidden), 4.0 * x.numel(), [&] {
      ok(api->rms_norm(Type::kBf16, x.data_ptr(), w.data_ptr(), y.data_ptr(), nullptr, rows, hidden, 1e-6f, stream()));
    });
  }
  {
    const int64_t rows = 65536, n = 3072;
    const at::Tensor x = at::randn({rows, 2 * n}, halves);
    at::Tensor y = at::empty({rows, n}, halves), dx = at::empty_like(x);
    bench.Memory("silu_mul bf16 65536x3072", 6.0 * rows * n,
                 [&] { ok(api->silu_mul(Type::kBf16, x.data_ptr(), y.data_ptr(), rows, n, stream())); });
    bench.Memory("silu_mul backward", 10.0 * rows * n, [&] {
      ok(api->silu_mul_backward(Type::kBf16, y.data_ptr(), x.data_ptr(), dx.data_ptr(), rows, n, stream()));
    });
  }
  {
    const int64_t rows = 32768, heads = 16, kv = 8, d = 128, total = heads + 2 * kv;
    const at::Tensor qkv = at::randn({rows, total * d}, halves), w = at::randn({d}, halves),
                     cos = at::randn({rows, d / 2}, floats), sin = at::randn({rows, d / 2}, floats);
    at::Tensor q = at::empty({rows, heads * d}, halves), k = at::empty({rows, kv * d}, halves), v = at::empty_like(k);
    bench.Memory("split_norm_rotate bf16, 16/8 heads of 128", 4.0 * qkv.numel() + 4.0 * rows * d, [&] {
      ok(api->split_norm_rotate(Type::kBf16, qkv.data_ptr(), w.data_ptr(), w.data_ptr(), cos.data_ptr<float>(),
                                sin.data_ptr<float>(), q.data_ptr(), k.data_ptr(), v.data_ptr(), nullptr, nullptr, rows,
                                {heads, kv, d}, 1e-6f, stream()));
    });
  }
  {
    const int64_t rows = 4096, vocab = 151936;
    at::Tensor logits = at::randn({rows, vocab}, halves), log_p = at::empty({rows}, floats),
               sum = at::empty({rows}, floats);
    const at::Tensor targets = at::randint(vocab, {rows}, floats.dtype(at::kLong)), g = at::randn({rows}, floats);
    bench.Memory("log_softmax_gather bf16 4096x151936", 2.0 * logits.numel(), [&] {
      ok(api->log_softmax_gather(Type::kBf16, logits.data_ptr(), targets.data_ptr<int64_t>(), 1,
                                 log_p.data_ptr<float>(), nullptr, sum.data_ptr<float>(), rows, vocab, stream()));
    });
    bench.Memory("log_softmax_gather backward", 4.0 * logits.numel(), [&] {
      ok(api->log_softmax_gather_backward(Type::kBf16, logits.data_ptr(), targets.data_ptr<int64_t>(), 1,
                                          sum.data_ptr<float>(), g.data_ptr<float>(), nullptr, nullptr,
                                          logits.data_ptr(), rows, vocab, stream()));
    });
    const at::Tensor wide = at::randn({256, vocab}, floats);
    at::Tensor in =
                   at::zeros({256 * static_cast<int64_t>(sizeof(kernels::cuda::SamplingRow))}, floats.dtype(at::kByte)),
               out =
                   at::zeros({256 * static_cast<int64_t>(sizeof(kernels::cuda::SampledRow))}, floats.dtype(at::kByte));
    for (const bool filters : {false, true}) {
      kernels::cuda::SamplingRow row;
      row.uniform = 0.37;
      if (filters) row.top_k = 50, row.top_p = 0.9f;
      const std::vector<kernels::cuda::SamplingRow> rows_in(256, row);
      MANTA_CHECK(api->copy(in.data_ptr(), rows_in.data(), rows_in.size() * sizeof(row)).ok());
      bench.Memory(absl::StrCat("sample 256x151936", filters ? " top-k 50, top-p 0.9" : ""), 4.0 * wide.numel(), [&] {
        ok(api->sample(wide.data_ptr<float>(), static_cast<const kernels::cuda::SamplingRow*>(in.data_ptr()),
                       static_cast<kernels::cuda::SampledRow*>(out.data_ptr()), 256, vocab, stream()));
      });
    }
  }
  for (const auto& [sequences, context] :
       std::vector<std::pair<int64_t, int64_t>>{{256, 1024}, {32, 8192}, {1, 2048}}) {
    const int64_t heads = 32, kv = 8, d = 128, block = 16, blocks = context / block;
    at::Tensor k = at::randn({sequences * blocks * block * kv * d}, halves), v = at::randn_like(k),
               q = at::randn({sequences, heads * d}, halves), out = at::empty_like(q);
    const auto ints = floats.dtype(at::kInt);
    const at::Tensor tables = at::randperm(sequences * blocks, ints), sequence = at::arange(sequences, ints),
                     position = at::full({sequences}, context - 1, ints);
    kernels::cuda::PagedAttentionArguments a;
    a.q = q.data_ptr();
    a.k_cache = k.data_ptr();
    a.v_cache = v.data_ptr();
    a.out = out.data_ptr();
    a.token_sequence = sequence.data_ptr<int32_t>();
    a.token_position = position.data_ptr<int32_t>();
    a.block_tables = tables.data_ptr<int32_t>();
    a.tokens = sequences;
    a.max_blocks = blocks;
    a.heads = heads;
    a.kv_heads = kv;
    a.head_dim = d;
    a.block_size = block;
    a.scale = 0.09f;
    bench.Memory(absl::StrCat("paged_attention bf16 decode, ", sequences, " x ", context, ", 32/8 heads of 128"),
                 4.0 * k.numel(), [&] { ok(api->paged_attention(Type::kBf16, a, stream())); });
  }
}

void Nccl(const cuda::Api* api, int size) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([=] {
      MANTA_CHECK(api->set_device(rank).ok());
      auto bootstrap = comm::CreateCpuCollective(
          comm::GroupOptionsForTest(rank, size, "nccl-bench", comm::CpuCollectiveOptions::Transport::kAuto));
      MANTA_CHECK(bootstrap.ok()) << bootstrap.status().ToString();
      auto nccl = api->new_nccl_collective(*std::move(bootstrap), absl::Seconds(60));
      MANTA_CHECK(nccl.ok()) << nccl.status().ToString();
      const auto device = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(rank));
      for (const int64_t n : {int64_t{1} << 10, int64_t{1} << 20, int64_t{1} << 29}) {
        at::Tensor x = at::zeros({n}, at::TensorOptions(device).dtype(at::kFloat));
        const auto run = [&](int calls) {
          for (int i = 0; i < calls; ++i) {
            MANTA_CHECK((*nccl)->AllReduce(x.data_ptr(), n, comm::DataType::kF32, comm::ReduceOp::kSum).ok());
          }
          const absl::Status status = (*nccl)->Wait();
          MANTA_CHECK(status.ok()) << status.ToString();
        };
        run(5);
        const int calls = n > (1 << 24) ? 10 : 200;
        const absl::Time start = absl::Now();
        run(calls);
        const double seconds = absl::ToDoubleSeconds(absl::Now() - start) / calls;
        if (rank == 0) {
          std::printf("FIGURE NCCL all_reduce, %d GPUs, %.3f MiB: %.1f us, %.1f GB/s\n", size, n * 4.0 / (1 << 20),
                      seconds * 1e6, n * 4.0 / seconds * 1e-9);
        }
      }
      MANTA_CHECK((*nccl)->Barrier().ok());
    });
  }
  for (std::thread& t : threads) t.join();
}

int Main() {
  const auto loaded = cuda::Load();
  if (!loaded.ok()) {
    std::fprintf(stderr, "gpu_bench: %s\n", loaded.status().ToString().c_str());
    return 69;
  }
  const cuda::Api* api = *loaded;
  MANTA_CHECK(api->set_device(0).ok());
  const auto info = api->device_info(0);
  MANTA_CHECK(info.ok());
  std::printf("FIGURE GPU: %s, %d multiprocessors, %.0f GB\n", info->name.c_str(), info->multiprocessors,
              static_cast<double>(info->total_bytes) * 1e-9);
  Kernels(api);
  if (api->device_count() > 1) Nccl(api, api->device_count());
  return 0;
}

}  // namespace
}  // namespace manta

int main() {
  return manta::Main();
}
