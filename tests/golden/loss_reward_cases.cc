// Rewards before they become advantages, dynamic sampling, and packing.
#include <algorithm>
#include <map>

#include "controller/algorithms/packing.h"
#include "controller/algorithms/reward_shaping.h"
#include "tests/golden/loss_case.h"

namespace manta::golden {
namespace {

using nlohmann::json;

bool Enabled(const json& tree) {
  return tree.value("enabled", false);
}

void RunShaping(Report& report, const LossCase& c, const json& shaping) {
  std::vector<double> rewards = c.Get("in.total_reward").data;
  const std::vector<double> unshaped = rewards;
  if (Enabled(shaping)) {
    if (const auto coefficient = OptionalNumber(shaping, "stop_properly_penalty_coef")) {
      controller::ShapeTruncated(rewards, c.Get("in.truncated").As<uint8_t>(), *coefficient);
    } else {
      std::vector<int64_t> lengths;
      if (c.Has("in.response_token_lengths")) {
        lengths = c.Get("in.response_token_lengths").As<int64_t>();
      } else {
        for (const json& messages : c.hparams().at("message_lengths")) {
          for (const json& message : messages) {
            if (message.at(0) != "assistant") continue;
            lengths.push_back(message.at(1).get<int64_t>());
            break;
          }
        }
      }
      controller::ShapeOverlong(rewards, lengths, shaping.at("max_response_length").get<int64_t>(),
                                shaping.at("overlong_buffer_length").get<int64_t>(),
                                Number(shaping.at("overlong_buffer_penalty")));
    }
  }
  CompareTensor(report, c, "out.total_reward", rewards, c.tolerance("f32"));
  if (c.Has("out.unshaped_total_reward")) {
    CompareTensor(report, c, "out.unshaped_total_reward", unshaped, c.tolerance("f32"));
  }
}

void RunScaling(Report& report, const LossCase& c, const json& scaling) {
  for (const auto& [name, tensor] : c.tensors()) {
    if (!name.starts_with("in.")) continue;
    std::vector<double> rewards = tensor.data;
    if (Enabled(scaling)) {
      controller::ScaleRewards(rewards, Number(scaling.at("source_min")), Number(scaling.at("source_max")),
                               Number(scaling.at("target_min")), Number(scaling.at("target_max")));
    }
    CompareTensor(report, c, "out." + name.substr(3), rewards, c.tolerance("f32"));
  }
}

void RunMask(Report& report, const LossCase& c, const std::string& flags, bool enabled) {
  std::vector<float> mask = c.Get("in.loss_multiplier").As<float>();
  std::vector<uint8_t> flagged = c.Get(flags).As<uint8_t>();
  if (!enabled) std::fill(flagged.begin(), flagged.end(), uint8_t{0});
  controller::MaskRows(mask, flagged);
  CompareTensor(report, c, "out.loss_multiplier", mask, kExact);
  if (c.outputs().contains("num_masked")) {
    CompareScalar(report, c, "num_masked",
                  static_cast<double>(std::count_if(flagged.begin(), flagged.end(), [](uint8_t f) { return f != 0; })),
                  Number(c.outputs().at("num_masked")), kExact);
  }
}

// The prompts of a generation batch that dynamic sampling keeps.
void RunDynamicSampling(Report& report, const LossCase& c) {
  const json& grpo = c.hparams().at("grpo");
  const bool leave_one_out = grpo.value("use_leave_one_out_baseline", false);
  const auto wanted = static_cast<size_t>(grpo.at("num_prompts_per_step").get<int64_t>() *
                                          grpo.at("num_generations_per_prompt").get<int64_t>());
  std::vector<double> cache, cached_rewards;  // sample ids
  for (const json& step : c.outputs().at("steps")) {
    const std::string batch = std::to_string(step.at("gen_batch").get<int>()), in = "in." + batch + ".";
    if (step.contains("raises")) {
      report.Skip(c.name(), "batch " + batch + ": the original sees the limit one batch late");
      continue;
    }
    std::vector<double> kept;
    if (c.Has(in + "rewards")) {
      const LossTensor& prompts = c.Get(in + "prompt_ids");
      std::map<std::vector<double>, int64_t> index;
      std::vector<int64_t> groups;
      for (int64_t row = 0; row < prompts.dim(0); ++row) {
        const auto begin = prompts.data.begin() + row * prompts.dim(1);
        groups.push_back(
            index.try_emplace(std::vector<double>(begin, begin + prompts.dim(1)), index.size()).first->second);
      }
      for (size_t row : controller::SelectInformativeRows(groups, c.Get(in + "rewards").data)) {
        kept.push_back(c.Get(in + "sample_id").data[row]);
        cached_rewards.push_back(c.Get(in + "rewards").data[row]);
      }
    } else {
      // The case holds no arrays: prompts whose answers all got the same reward.
      const std::vector<int64_t> groups = {0, 0, 1, 1, 2, 2, 3, 3};
      kept.resize(controller::SelectInformativeRows(groups, std::vector<double>(8, 1.0)).size());
    }
    cache.insert(cache.end(), kept.begin(), kept.end());
    if (step.contains("kept")) {
      CompareScalar(report, c, "batch" + batch + ".kept", static_cast<double>(kept.size()), Number(step.at("kept")),
                    kExact);
    }
    if (step.contains("math_kept_this_batch_sample_ids")) {
      Comparison ids(kExact);
      ids.AddAll(kept, step.at("math_kept_this_batch_sample_ids").get<std::vector<double>>());
      ids.Print(report, c.name(), "batch" + batch + ".math_kept_this_batch_sample_ids");
    }
    const bool complete = cache.size() >= wanted;
    if (leave_one_out || !step.contains("kept_sample_ids"))
      continue;  // what follows is right without leave-one-out only
    CompareScalar(report, c, "batch" + batch + ".is_batch_complete", complete, step.at("is_batch_complete").get<bool>(),
                  kExact);
    CompareScalar(report, c, "batch" + batch + ".cache_size", static_cast<double>(cache.size()),
                  Number(step.at("cache_size")), kExact);
    const auto used = static_cast<std::ptrdiff_t>(std::min(wanted, cache.size()));
    Comparison ids(kExact), rewards(kExact);
    ids.AddAll(std::vector<double>(cache.begin(), cache.begin() + used),
               step.at("kept_sample_ids").get<std::vector<double>>());
    rewards.AddAll(std::vector<double>(cached_rewards.begin(), cached_rewards.begin() + used),
                   step.at("filtered_reward").get<std::vector<double>>());
    ids.Print(report, c.name(), "batch" + batch + ".kept_sample_ids");
    rewards.Print(report, c.name(), "batch" + batch + ".filtered_reward");
  }
}

absl::StatusOr<controller::Bins> Pack(const std::string& algorithm, const std::vector<int64_t>& lengths,
                                      int64_t capacity, const json& options) {
  auto parsed = controller::ParsePackingAlgorithm(algorithm);
  if (!parsed.ok()) return parsed.status();
  absl::StatusOr<controller::Bins> bins;
  switch (*parsed) {
    case controller::PackingAlgorithm::kConcatenative:
      bins = controller::PackConcatenative(lengths, capacity);
      break;
    case controller::PackingAlgorithm::kFirstFitDecreasing:
      bins = controller::PackFirstFitDecreasing(lengths, capacity);
      break;
    case controller::PackingAlgorithm::kModifiedFirstFitDecreasing:
      bins = controller::PackModifiedFirstFitDecreasing(lengths, capacity);
      break;
    case controller::PackingAlgorithm::kFirstFitShuffle:
      bins = controller::PackFirstFit(lengths, capacity, options.at("shuffled_order").get<std::vector<int32_t>>());
      break;
  }
  if (!bins.ok()) return bins;
  const auto spread =
      controller::SpreadBins(*bins, static_cast<int64_t>(OptionalNumber(options, "min_bin_count").value_or(0)),
                             static_cast<int64_t>(OptionalNumber(options, "bin_count_multiple").value_or(0)));
  if (!spread.ok()) return spread;
  return bins;
}

void ComparePacking(Report& report, const LossCase& c, const std::string& tensor, const std::string& algorithm,
                    const std::vector<int64_t>& lengths, int64_t capacity, const json& expected) {
  const auto bins = Pack(algorithm, lengths, capacity, expected);
  if (expected.contains("raises")) {
    return CompareScalar(report, c, tensor + ".raises", !bins.ok(), 1, kExact);
  }
  if (!bins.ok()) return report.Fail(c.name(), tensor, std::string(bins.status().message()));
  const bool equal = *bins == expected.at("bins").get<controller::Bins>();
  CompareScalar(report, c, tensor + ".bins", equal, 1, kExact);
  if (!expected.contains("metrics")) return;
  const auto m = controller::MeasurePacking(lengths, capacity, *bins);
  const std::map<std::string, double> actual = {{"num_sequences", static_cast<double>(m.num_sequences)},
                                                {"num_bins", static_cast<double>(m.num_bins)},
                                                {"total_sequence_length", static_cast<double>(m.total_sequence_length)},
                                                {"total_bin_capacity", static_cast<double>(m.total_bin_capacity)},
                                                {"total_waste", static_cast<double>(m.total_waste)},
                                                {"average_utilization", m.average_utilization},
                                                {"waste_ratio", m.waste_ratio},
                                                {"bin_balance", m.bin_balance},
                                                {"theoretical_min_bins", static_cast<double>(m.theoretical_min_bins)},
                                                {"bin_efficiency", m.bin_efficiency}};
  Comparison metrics({1e-12, 1e-12});
  for (const auto& [key, value] : expected.at("metrics").items()) metrics.Add(actual.at(key), Number(value));
  metrics.Print(report, c.name(), tensor + ".metrics");
}

}  // namespace

void RunRewards(Report& report, const LossCase& c) {
  const json grpo = c.hparams().value("grpo", json::object());
  if (grpo.contains("reward_shaping")) return RunShaping(report, c, grpo.at("reward_shaping"));
  if (grpo.contains("reward_scaling")) return RunScaling(report, c, grpo.at("reward_scaling"));
  if (grpo.contains("use_dynamic_sampling")) return RunDynamicSampling(report, c);
  if (grpo.contains("overlong_filtering")) {
    return RunMask(report, c, "in.truncated", grpo.at("overlong_filtering").get<bool>());
  }
  if (c.Has("in.mask_sample")) return RunMask(report, c, "in.mask_sample", true);
  report.NotImplemented(c.name(), "not implemented");
}

void RunPacking(Report& report, const LossCase& c) {
  const json& outputs = c.outputs();
  if (outputs.contains("results")) {
    const auto lengths = outputs.at("sequence_lengths").get<std::vector<int64_t>>();
    const auto capacity = c.hparams().at("bin_capacity").get<int64_t>();
    for (const auto& [algorithm, results] : outputs.at("results").items()) {
      for (size_t i = 0; i < results.size(); ++i) {
        ComparePacking(report, c, algorithm + "." + std::to_string(i), algorithm, lengths, capacity, results.at(i));
      }
    }
  }
  if (outputs.contains("cases")) {
    size_t i = 0;
    for (const json& one : outputs.at("cases")) {
      const std::string algorithm = one.at("algorithm");
      ComparePacking(report, c, algorithm + "." + std::to_string(i++), algorithm,
                     one.at("sequence_lengths").get<std::vector<int64_t>>(), one.at("bin_capacity").get<int64_t>(),
                     one);
    }
  }
}

}  // namespace manta::golden
