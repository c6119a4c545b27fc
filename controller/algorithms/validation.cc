#include "controller/algorithms/validation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "controller/algorithms/loss_proto.h"
#include "controller/rollout/rollout_metrics.h"

namespace manta::controller {
namespace {

constexpr int64_t kExamples = 3;

std::string Quoted(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// The first sample of each of the first `count` problems, a line each.
std::string Examples(const std::vector<std::string>& problems, std::span<const Sample> samples, int64_t samples_per_prompt,
                     int64_t count) {
  std::string text;
  for (size_t i = 0; i < std::min(static_cast<size_t>(count), problems.size()); ++i) {
    const Sample& sample = samples[i * static_cast<size_t>(samples_per_prompt)];
    absl::StrAppendFormat(&text, "  %-24s -> %-12s %s (expected %s)\n", Quoted(problems[i]), Quoted(sample.response_text),
                          !sample.status.ok() ? "failed" : sample.reward > 0.5 ? "right" : "wrong",
                          Quoted(sample.ground_truth));
  }
  return text;
}

}  // namespace

double PassAtK(int64_t n, int64_t c, int64_t k) {
  if (n - c < k) return 1;
  double none = 1;
  for (int64_t i = n - c + 1; i <= n; ++i) none *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - none;
}

Task<absl::StatusOr<ValidationResult>> RunValidation(LoopContext context, const Dataset& dataset,
                                                     ValidationOptions options) {
  ValidationResult result;
  if (dataset.rows.empty()) co_return result;
  const int64_t count = options.max_samples > 0
                            ? std::min<int64_t>(options.max_samples, static_cast<int64_t>(dataset.rows.size()))
                            : static_cast<int64_t>(dataset.rows.size());
  RolloutOptions rollout;
  rollout.sampling = ValidationSampling(context.config.policy.generation);
  rollout.max_total_length = static_cast<int>(context.config.policy.max_total_sequence_length);
  rollout.samples_per_prompt = static_cast<int>(options.samples_per_prompt);

  std::vector<std::string> problems;
  int64_t overlong = 0;
  double pass_k = 0, scored_prompts = 0, correct = 0, scored = 0;
  absl::Status first_failure;
  for (int64_t begin = 0; begin < count; begin += options.batch_size) {
    std::vector<RolloutPrompt> prompts;
    for (int64_t row = begin; row < std::min(count, begin + options.batch_size); ++row) {
      MANTA_CO_ASSIGN_OR_RETURN(std::optional<RolloutPrompt> prompt, context.prompts.Prompt(dataset, row));
      if (!prompt) {
        ++overlong;
        continue;
      }
      problems.push_back(dataset.rows[row].problem);
      prompts.push_back(std::move(*prompt));
    }
    if (prompts.empty()) continue;
    rollout.seed = SampleSeed(options.seed, 0, static_cast<uint64_t>(begin));
    std::vector<Sample> samples = co_await context.rollouts->Run(std::move(prompts), rollout);
    if (context.stop.cancelled()) co_return context.stop.status();
    for (size_t i = 0; i < samples.size(); i += static_cast<size_t>(options.samples_per_prompt)) {
      int64_t n = 0, c = 0;
      for (int64_t j = 0; j < options.samples_per_prompt; ++j) {
        const Sample& sample = samples[i + static_cast<size_t>(j)];
        if (!sample.status.ok()) {
          if (first_failure.ok()) first_failure = sample.status;
          continue;
        }
        ++n;
        c += sample.reward > 0.5 ? 1 : 0;
        correct += sample.reward;
      }
      scored += static_cast<double>(n);
      if (n >= options.pass_k) {
        ++scored_prompts;
        pass_k += PassAtK(n, c, options.pass_k);
      }
    }
    std::move(samples.begin(), samples.end(), std::back_inserter(result.samples));
  }
  if (scored == 0 && !first_failure.ok()) co_return Annotate(first_failure, "every validation sample failed");

  const auto rollout_metrics = RolloutMetrics(result.samples);
  for (const char* name : {"mean_gen_tokens_per_sample", "num_failed_samples", "truncation_rate"}) {
    if (auto it = rollout_metrics.find(name); it != rollout_metrics.end()) result.metrics[name] = it->second;
  }
  if (auto it = rollout_metrics.find("mean_gen_tokens_per_sample"); it != rollout_metrics.end()) {
    result.metrics["avg_length"] = it->second;
  }
  if (overlong > 0) result.metrics["num_overlong_prompts"] = static_cast<double>(overlong);
  if (scored > 0) result.metrics["accuracy"] = correct / scored;
  if (scored_prompts > 0) result.metrics["pass_k"] = pass_k / scored_prompts;

  result.examples = Examples(problems, result.samples, options.samples_per_prompt, kExamples);
  result.printed = Examples(problems, result.samples, options.samples_per_prompt, options.samples_to_print);
  co_return result;
}

}  // namespace manta::controller
