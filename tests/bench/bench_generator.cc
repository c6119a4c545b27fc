// bench_generator: tokens per second of the generator's engine on the CPU, without RPC.
//
//   bench_generator --model DIR [--prompts 32] [--prompt-tokens 20] [--new-tokens 128] [--threads 2] [--rounds 3]
//                   [--temperature 0] [--samples 1] [--apart] [--json] [--prompt-file FILE.json]
//
// Runs the prompts together, `rounds` times after one round to warm up, ignoring end-of-sequence tokens, and prints
// each round's tokens per second; with --json one object that also holds the tokens. The prefix cache is off, so every
// round does the same work.
#include <cstdio>
#include <memory>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "common/base/allocation.h"
#include "common/base/file.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"
#include "worker_gen/service/loaded_generator.h"

namespace manta::gen {
namespace {

struct Options {
  std::string model, prompt_file;
  int prompts = 32, prompt_tokens = 20, new_tokens = 128, threads = 2, rounds = 3, samples = 1;
  double temperature = 0;
  bool json = false, apart = false;
};

class Collect : public RequestSink {
 public:
  Collect(std::vector<int32_t>* tokens, absl::BlockingCounter* done) : tokens_(tokens), done_(done) {}
  void OnToken(const GeneratedToken& token) override { tokens_->push_back(token.token); }
  void OnFinish(const absl::Status& status, const Completion&) override {
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    done_->DecrementCount();
  }

 private:
  std::vector<int32_t>* const tokens_;
  absl::BlockingCounter* const done_;
};

absl::StatusOr<std::vector<std::vector<int32_t>>> Prompts(const Options& options, int32_t vocab_size) {
  std::vector<std::vector<int32_t>> prompts(options.prompts);
  if (!options.prompt_file.empty()) {
    MANTA_ASSIGN_OR_RETURN(const std::string text, ReadFile(options.prompt_file));
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_array()) return absl::InvalidArgumentError(options.prompt_file + ": not a list of lists of token ids");
    return json.get<std::vector<std::vector<int32_t>>>();
  }
  RandomStream random(1);
  for (auto& prompt : prompts) {
    for (int i = 0; i < options.prompt_tokens; ++i)
      prompt.push_back(static_cast<int32_t>(3 + random.NextBelow(vocab_size - 3)));
  }
  return prompts;
}

absl::Status Run(const Options& options) {
  v1::ConfigureGeneratorRequest request;
  request.set_model_path(options.model);
  request.mutable_device()->set_kind(v1::DEVICE_KIND_CPU);
  request.mutable_device()->set_num_threads(options.threads);
  request.set_dtype(v1::DTYPE_F32);
  request.set_prefix_cache(false);
  MANTA_ASSIGN_OR_RETURN(const auto generator, LoadedGenerator::Load(request));
  Engine& engine = generator->engine();
  MANTA_ASSIGN_OR_RETURN(const auto prompts, Prompts(options, engine.options().vocab_size));

  nlohmann::json result;
  result["tokens_per_second"] = nlohmann::json::array();
  std::vector<std::vector<int32_t>> tokens;
  for (int round = 0; round <= options.rounds; ++round) {
    tokens.assign(prompts.size() * options.samples, {});
    absl::BlockingCounter done(static_cast<int>(tokens.size()));
    MANTA_RETURN_IF_ERROR(engine.Pause(false).status());
    std::vector<GenerationRequest> generations;
    for (size_t i = 0; i < tokens.size(); ++i) {
      GenerationRequest& generation = generations.emplace_back();
      generation.prompt = prompts[i / options.samples];
      generation.options.temperature = options.temperature;
      generation.options.seed = i;
      generation.options.max_new_tokens = options.new_tokens;
      generation.options.ignore_eos = true;
      generation.sink = std::make_shared<Collect>(&tokens[i], &done);
      if (!options.apart && (i + 1) % options.samples != 0) continue;
      for (const auto& id : engine.SubmitSamples(std::move(generations))) MANTA_RETURN_IF_ERROR(id.status());
      generations.clear();
    }
    const absl::Time start = absl::Now();
    engine.Resume();
    done.Wait();
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    int64_t count = 0;
    for (const auto& sample : tokens) count += static_cast<int64_t>(sample.size());
    if (round == 0) continue;  // warm-up
    result["tokens_per_second"].push_back(static_cast<double>(count) / seconds);
    if (!options.json)
      std::printf("round %d: %.0f tokens/s (%.3f s)\n", round, static_cast<double>(count) / seconds, seconds);
  }
  if (options.json) {
    result["tokens"] = tokens;
    std::printf("%s\n", result.dump().c_str());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace manta::gen

int main(int argc, char** argv) {
  manta::KeepFreedMemory();  // as manta-gen does
  manta::gen::Options options;
  CLI::App app("Tokens per second of the generator's engine on the CPU");
  app.add_option("--model", options.model, "folder with config.json and safetensors")->required();
  app.add_option("--prompts", options.prompts, "how many sequences run together")->check(CLI::Range(1, 4096));
  app.add_option("--prompt-tokens", options.prompt_tokens, "length of each prompt")->check(CLI::Range(1, 1 << 20));
  app.add_option("--new-tokens", options.new_tokens, "tokens to generate for each")->check(CLI::Range(1, 1 << 20));
  app.add_option("--threads", options.threads, "CPU threads")->check(CLI::Range(1, 1024));
  app.add_option("--rounds", options.rounds, "measured rounds")->check(CLI::Range(1, 1000));
  app.add_option("--temperature", options.temperature, "0: greedy");
  app.add_option("--prompt-file", options.prompt_file,
                 "JSON: a list of lists of token ids, in place of random prompts");
  app.add_option("--samples", options.samples, "of each prompt, submitted together")->check(CLI::Range(1, 4096));
  app.add_flag("--apart", options.apart, "submit the samples one by one: each computes its prompt");
  app.add_flag("--json", options.json, "print one JSON object with all rounds and the tokens");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = manta::gen::Run(options);
  if (!status.ok()) std::fprintf(stderr, "bench_generator: error: %s\n", std::string(status.message()).c_str());
  return manta::ExitCode(status);
}
