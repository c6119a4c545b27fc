// bench_trainer --config CONFIG.json [--sequences N] [--length L] [--prompt P] [--group G] [--distinct D] [--steps S]
// [--microbatches M] [--save DIR]
//
// One trainer rank on random tokens: milliseconds of a GRPO update (forward, loss, backward, AdamW) and of a pass of
// log-probabilities, the median of S. Each G sequences in a row share their first P tokens, and have D different
// responses (0: as many as there are sequences). It prints; it asserts nothing. With --save the trained model is
// written to DIR.
#include <ATen/Parallel.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "CLI/CLI.hpp"
#include "common/base/file.h"
#include "common/base/packed.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "worker_train/engine/engine.h"

namespace manta::train {
namespace {

struct Arguments {
  std::string config, save;
  bool recompute = false;
  int sequences = 512, length = 12, prompt = 6, group = 1, distinct = 0, steps = 20, microbatches = 1;
};

v1::PackedBatch MakeBatch(const Arguments& a, int64_t vocabulary) {
  RandomStream random(1);
  v1::PackedBatch batch;
  for (int i = 0; i < a.sequences; ++i) {
    AppendPacked<int32_t>(batch.mutable_lengths(), a.length);
    AppendPacked<float>(batch.mutable_sample_mask(), 1);
    const auto advantage = static_cast<float>(random.NextNormal());
    const int member = i % a.group, response = a.distinct > 0 ? member % a.distinct : member;
    for (int t = 0; t < a.length; ++t) {
      const int source = i / a.group * a.group + (t < a.prompt ? 0 : response);  // the sequence that the token is of
      RandomStream token(/*seed=*/2, static_cast<uint64_t>(source), static_cast<uint64_t>(t));
      AppendPacked(batch.mutable_tokens(), static_cast<int32_t>(token.NextBelow(static_cast<uint64_t>(vocabulary))));
      AppendPacked(batch.mutable_token_mask(), t < a.prompt ? 0.0f : 1.0f);
      AppendPacked(batch.mutable_advantages(), advantage);
      AppendPacked(batch.mutable_prev_logprobs(), -5.5f);
      AppendPacked(batch.mutable_generation_logprobs(), -5.5f);
    }
  }
  const int each = (a.sequences + a.microbatches - 1) / a.microbatches;
  for (int i = 0; i < a.microbatches; ++i) {
    batch.add_microbatch_sizes(std::clamp(a.sequences - i * each, 0, each));
  }
  return batch;
}

absl::Status Measure(const char* name, int steps, double tokens, const std::function<absl::Status()>& body) {
  std::vector<double> times;
  for (int i = 0; i < steps + 2; ++i) {
    const auto start = std::chrono::steady_clock::now();
    MANTA_RETURN_IF_ERROR(body());
    if (i >= 2) times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  std::printf("%s: median %.2f ms, fastest %.2f ms, %.0f tokens/s\n", name, 1e3 * median, 1e3 * times[0],
              tokens / median);
  return absl::OkStatus();
}

absl::Status Run(const Arguments& a) {
  at::set_num_threads(1);
  MANTA_ASSIGN_OR_RETURN(const std::string config, ReadFile(a.config));
  v1::ConfigureTrainerRequest configure;
  configure.set_random_init(true);
  configure.set_init_config_json(config);
  configure.set_seed(1);
  configure.set_dtype(v1::DTYPE_F32);
  configure.set_world_size(1);
  configure.set_activation_checkpointing(a.recompute);
  v1::OptimizerConfig& optimizer = *configure.mutable_optimizer();
  optimizer.set_name("adamw");
  optimizer.set_lr(1e-4);
  optimizer.set_beta1(0.9);
  optimizer.set_beta2(0.98);
  optimizer.set_eps(1e-8);
  optimizer.set_max_grad_norm(1);
  MANTA_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(configure, nullptr));
  v1::TrainRequest train;
  *train.mutable_batch() = MakeBatch(a, engine->parameters().config().vocab_size);
  v1::ClippedPgLoss& loss = *train.mutable_clipped_pg();
  loss.set_ratio_clip_min(0.2);
  loss.set_ratio_clip_max(0.2);
  loss.set_token_level_loss(true);
  train.set_global_valid_toks(a.sequences * (a.length - a.prompt));
  train.set_global_valid_seqs(a.sequences);
  v1::LogprobRequest logprobs;
  logprobs.mutable_batch()->set_lengths(train.batch().lengths());
  logprobs.mutable_batch()->set_tokens(train.batch().tokens());
  *logprobs.mutable_batch()->mutable_microbatch_sizes() = train.batch().microbatch_sizes();
  const double tokens = static_cast<double>(a.sequences) * a.length;
  MANTA_RETURN_IF_ERROR(Measure("update", a.steps, tokens, [&] {
    v1::TrainReply reply;
    return engine->Train(train, &reply);
  }));
  MANTA_RETURN_IF_ERROR(Measure("log-probabilities", a.steps, tokens, [&] {
    v1::LogprobReply reply;
    return engine->ComputeLogprobs(logprobs, &reply);
  }));
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("most memory held: %.0f MB\n", static_cast<double>(usage.ru_maxrss) / 1024);
  if (a.save.empty()) return absl::OkStatus();
  v1::SaveCheckpointRequest save;
  save.set_directory(a.save);
  save.set_save_optimizer(true);
  v1::SaveCheckpointReply saved;
  return engine->Save(save, &saved);
}

}  // namespace
}  // namespace manta::train

int main(int argc, char** argv) {
  manta::train::Arguments arguments;
  CLI::App app("Measures one trainer rank");
  app.add_option("--config", arguments.config, "config.json of the model")->required();
  app.add_option("--sequences", arguments.sequences, "sequences a step");
  app.add_option("--length", arguments.length, "tokens a sequence");
  app.add_option("--prompt", arguments.prompt, "tokens of it that are not trained on");
  app.add_option("--group", arguments.group, "sequences that share a prompt")->check(CLI::PositiveNumber);
  app.add_option("--distinct", arguments.distinct, "different responses in a group; 0: all of them")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--steps", arguments.steps, "steps measured");
  app.add_option("--microbatches", arguments.microbatches, "microbatches a step");
  app.add_flag("--recompute", arguments.recompute, "activation checkpointing");
  app.add_option("--save", arguments.save, "folder for a checkpoint of the result");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = manta::train::Run(arguments);
  if (!status.ok()) std::fprintf(stderr, "bench_trainer: %s\n", std::string(status.message()).c_str());
  return manta::ExitCode(status);
}
