// bench_model MODEL_DIR: one thread's time for the model's three uses: forward and backward over a packed batch,
// forward alone (log-probabilities), and a decode step of 32 rows without its attention over the cache.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "common/model/forward.h"
#include "common/model/log_prob.h"
#include "common/model/packed_attention.h"

namespace manta::model {
namespace {

double Seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Body>
double Best(int rounds, Body&& body) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const double begin = Seconds();
    body();
    best = std::min(best, Seconds() - begin);
  }
  return best;
}

int Run(const char* folder) {
  const auto config = LoadModelConfig(folder);
  if (!config.ok()) return std::fprintf(stderr, "%s\n", config.status().ToString().c_str()), 1;
  auto parameters = Parameters::Load(*config, folder, at::kFloat);
  if (!parameters.ok()) return std::fprintf(stderr, "%s\n", parameters.status().ToString().c_str()), 1;
  std::vector<int64_t> cu = {0};
  for (int i = 0; i < 32; ++i) cu.push_back(cu.back() + 64);
  const int64_t n = cu.back();
  const at::Tensor tokens = at::arange(n).mul(7).remainder(config->vocab_size), targets = tokens.roll(-1);
  const at::Tensor positions = PackedPositions(cu);
  const auto log_probs = [&] {
    PackedAttention attention(cu);
    return TokenLogProbs(*parameters, *Forward(*parameters, tokens, positions, attention), targets, {.entropy = true})
        ->log_probs;
  };
  const double flops = 2.0 * static_cast<double>(FlatSize(parameters->table()) * n);
  double seconds;
  {
    at::NoGradGuard no_grad;
    seconds = Best(20, log_probs);
    std::printf("log-probabilities of %ld tokens: %.2f ms, %.0f GFLOP/s\n", static_cast<long>(n), seconds * 1e3,
                flops / seconds * 1e-9);
  }
  parameters->EnableGradients();
  seconds = Best(20, [&] { log_probs().sum().backward(); });
  std::printf("forward and backward: %.2f ms, %.0f GFLOP/s\n", seconds * 1e3, 3 * flops / seconds * 1e-9);

  at::NoGradGuard no_grad;
  parameters->PackForInference();
  std::vector<int64_t> ones = {0};
  for (int i = 0; i < 32; ++i) ones.push_back(i + 1);
  seconds = Best(200, [&] {
    PackedAttention attention(ones);
    (void)Logits(*parameters, *Forward(*parameters, tokens.narrow(0, 0, 32), positions.narrow(0, 0, 32), attention));
  });
  std::printf("decode step of 32 rows: %.3f ms, %.0f GFLOP/s\n", seconds * 1e3,
              flops / static_cast<double>(n) * 32 / seconds * 1e-9);
  return 0;
}

}  // namespace
}  // namespace manta::model

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: bench_model MODEL_DIR\n"), 64;
  at::set_num_threads(1);
  return manta::model::Run(argv[1]);
}
