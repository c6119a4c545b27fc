// Advantages, and what masks or overwrites them.
#include <algorithm>
#include <map>

#include "controller/algorithms/advantages.h"
#include "controller/algorithms/reward_shaping.h"
#include "tests/golden/loss_case.h"

namespace manta::golden {
namespace {

using nlohmann::json;

// Rows with equal token ids are answers to one prompt.
std::vector<int64_t> Groups(const LossTensor& prompt_ids) {
  std::map<std::vector<double>, int64_t> index;
  std::vector<int64_t> groups;
  const auto width = prompt_ids.dim(1);
  for (int64_t row = 0; row < prompt_ids.dim(0); ++row) {
    const auto begin = prompt_ids.data.begin() + row * width;
    groups.push_back(index.try_emplace(std::vector<double>(begin, begin + width), index.size()).first->second);
  }
  return groups;
}

bool Flag(const json& object, const char* key, bool otherwise) {
  return object.contains(key) && object.at(key).is_boolean() ? object.at(key).get<bool>() : otherwise;
}

void RunBaselines(Report& report, const LossCase& c) {
  const json grpo = c.hparams().value("grpo", json::object());
  const std::vector<double> rewards = c.Get("in.rewards").data;
  const std::vector<double> valid = c.Has("in.valid_mask") ? c.Get("in.valid_mask").data : std::vector<double>();
  const std::vector<double> std_rewards =
      c.Has("in.std_rewards") ? c.Get("in.std_rewards").data : std::vector<double>();
  const auto baselines = controller::PromptBaselines(Groups(c.Get("in.prompt_ids")), rewards, valid,
                                                     Flag(grpo, "use_leave_one_out_baseline", true), std_rewards);
  const bool math = c.Has("math.std");
  const std::string prefix = math ? "math." : "out.";
  const Tolerance tolerance = c.tolerance(math ? "f64" : "f32");
  CompareTensor(report, c, prefix + "baseline", baselines.baseline, tolerance);
  CompareTensor(report, c, prefix + "std", baselines.std, tolerance);
  if (c.Has(prefix + "advantage")) {
    CompareTensor(report, c, prefix + "advantage",
                  controller::GrpoAdvantages(rewards, baselines, Flag(grpo, "normalize_rewards", true)), tolerance);
  }
  if (c.outputs().contains("nonzero_std_math")) {
    const auto nonzero = std::count_if(baselines.std.begin(), baselines.std.end(), [](double s) { return s != 0; });
    CompareScalar(report, c, "nonzero_std_math", static_cast<double>(nonzero),
                  Number(c.outputs().at("nonzero_std_math")), kExact);
  }
}

// GRPO advantages as the original computes them: the variance in one pass in float32, E[r^2] - E[r]^2, which cancels
// where the spread is small beside the rewards. Only to tell that fault from one of ours.
std::vector<double> OnePassAdvantages(const std::vector<int64_t>& groups, const std::vector<double>& rewards,
                                      bool leave_one_out) {
  std::vector<double> advantages(rewards.size(), 0.0);
  for (size_t i = 0; i < rewards.size(); ++i) {
    float sum = 0, squares = 0, count = 0;
    for (size_t j = 0; j < rewards.size(); ++j) {
      if (groups[j] != groups[i] || (leave_one_out && i == j)) continue;
      const auto reward = static_cast<float>(rewards[j]);
      sum += reward;
      squares += reward * reward;
      count += 1;
    }
    if (count == 0) continue;  // alone in its group
    const float mean = sum / count, variance = (squares / count - mean * mean) * count / (count - 1);
    const float advantage = static_cast<float>(rewards[i]) - mean;
    advantages[i] = count > 1 && variance > 0 ? advantage / (std::sqrt(variance) + 1e-6f) : advantage;
  }
  return advantages;
}

void RunEstimator(Report& report, const LossCase& c, const json& estimator) {
  const std::string name = estimator.at("name");
  const LossTensor& mask = c.Get("in.mask");
  const std::vector<int32_t> lengths(static_cast<size_t>(mask.dim(0)), static_cast<int32_t>(mask.dim(1)));
  const bool leave_one_out = Flag(estimator, "use_leave_one_out_baseline", true);
  const bool normalize = Flag(estimator, "normalize_rewards", true);
  std::vector<double> advantages;
  std::vector<double> one_pass;  // [num_samples]; empty where nothing is normalised
  if (name == "grpo") {
    const std::vector<double>& rewards = c.Get("in.rewards").data;
    const auto baselines = controller::PromptBaselines(Groups(c.Get("in.prompt_ids")), rewards, {}, leave_one_out);
    advantages = controller::BroadcastToTokens(controller::GrpoAdvantages(rewards, baselines, normalize), lengths);
    if (normalize) one_pass = OnePassAdvantages(Groups(c.Get("in.prompt_ids")), rewards, leave_one_out);
  } else if (name == "gdpo") {
    std::vector<std::vector<double>> components;  // tensors are in alphabetical order, which is the components'
    for (const auto& [key, tensor] : c.tensors()) {
      if (key.starts_with("in.reward/")) components.push_back(tensor.data);
    }
    std::vector<double> weights;
    if (estimator.contains("reward_weights") && estimator.at("reward_weights").is_array()) {
      weights = estimator.at("reward_weights").get<std::vector<double>>();
    }
    advantages = controller::BroadcastToTokens(
        controller::GdpoAdvantages(Groups(c.Get("in.prompt_ids")), components, weights, normalize, leave_one_out),
        lengths);
    if (normalize) {
      one_pass.assign(lengths.size(), 0.0);
      for (size_t n = 0; n < components.size(); ++n) {
        const auto part = OnePassAdvantages(Groups(c.Get("in.prompt_ids")), components[n], leave_one_out);
        for (size_t i = 0; i < part.size(); ++i) one_pass[i] += (weights.empty() ? 1.0 : weights[n]) * part[i];
      }
      const std::vector<double> all(one_pass.size(), 1.0);
      const double mean = controller::MaskedMean(one_pass, all);
      const double std = std::sqrt(controller::MaskedVariance(one_pass, all, true));
      for (double& value : one_pass) value = (value - mean) / std;
    }
  } else if (name == "reinforce_plus_plus") {
    const std::vector<double>& rewards = c.Get("in.rewards").data;
    advantages = controller::BroadcastToTokens(Flag(estimator, "minus_baseline", true)
                                                   ? controller::GroupCentered(Groups(c.Get("in.prompt_ids")), rewards)
                                                   : rewards,
                                               lengths);
    const json loss_fn = c.hparams().value("loss_fn", json::object());
    if (Flag(loss_fn, "use_kl_in_reward", false)) {
      const std::string kl_type = loss_fn.at("reference_policy_kl_type");
      controller::SubtractTokenKl(advantages, c.Get("in.logprobs_policy").data, c.Get("in.logprobs_reference").data,
                                  kl_type.c_str(), Number(loss_fn.at("reference_policy_kl_penalty")));
    }
    controller::StandardizeMasked(advantages, mask.data);
  } else if (name == "raw_reward") {
    advantages = controller::BroadcastToTokens(c.Get("in.rewards").data, lengths);
    if (Flag(estimator, "normalize_advantages", true)) controller::StandardizeMasked(advantages, mask.data);
  } else if (name == "opd") {
    advantages = controller::DistillationAdvantages(c.Get("in.teacher_logprobs").data, c.Get("in.prev_logprobs").data,
                                                    mask.data);
    const json metrics = c.outputs().value("metrics", json::object());
    for (const auto& [key, expected] : metrics.items()) {
      const double actual = key.ends_with("adv_std")
                                ? std::sqrt(controller::MaskedVariance(advantages, mask.data, true))
                                : controller::MaskedMean(advantages, mask.data);
      CompareScalar(report, c, key, actual, Number(expected), c.tolerance("f32"));
    }
  } else {
    return report.NotImplemented(c.name(), "not implemented: estimator " + name);
  }
  Comparison comparison(c.tolerance("f32"));
  comparison.AddAll(advantages, c.Get("out.advantages").data);
  if (comparison.ok()) return comparison.Print(report, c.name(), "out.advantages");
  Comparison original(c.tolerance("f32"));
  if (!one_pass.empty())
    original.AddAll(controller::BroadcastToTokens(one_pass, lengths), c.Get("out.advantages").data);
  if (one_pass.empty() || !original.ok()) return comparison.Print(report, c.name(), "out.advantages");
  report.Skip(c.name(), "the original's one-pass float32 variance has lost digits here");
}

void RunSequenceError(Report& report, const LossCase& c) {
  const LossTensor& token_mask = c.Get("in.token_mask");
  const std::vector<int32_t> lengths(static_cast<size_t>(token_mask.dim(0)), static_cast<int32_t>(token_mask.dim(1)));
  std::vector<float> sample_mask = c.Get("in.sample_mask").As<float>();
  const auto result = controller::MaskSequenceErrors(
      lengths, token_mask.As<float>(), c.Get("in.prev_logprobs").As<float>(),
      c.Get("in.generation_logprobs").As<float>(), c.Get("in.rewards").data,
      OptionalNumber(c.hparams().at("grpo"), "seq_logprob_error_threshold"), sample_mask);
  const std::map<std::string, double> actual = {{"max_seq_mult_prob_error", result.max},
                                                {"mean_seq_mult_prob_error", result.mean},
                                                {"min_seq_mult_prob_error", result.min},
                                                {"max_seq_mult_prob_error_after_mask", result.max_after_mask},
                                                {"mean_seq_mult_prob_error_after_mask", result.mean_after_mask},
                                                {"min_seq_mult_prob_error_after_mask", result.min_after_mask},
                                                {"num_masked_seqs", static_cast<double>(result.num_masked)},
                                                {"masked_correct_pct", result.masked_correct_part}};
  for (const auto& [key, expected] : c.outputs().at("metrics").items()) {
    CompareScalar(report, c, key, actual.at(key), Number(expected), c.tolerance("f32"));
  }
  CompareTensor(report, c, "out.sample_mask", sample_mask, kExact);
}

void RunPenalties(Report& report, const LossCase& c) {
  const json& grpo = c.hparams().at("grpo");
  std::vector<double> advantages = c.Get("in.advantages").data;
  const auto width = static_cast<size_t>(c.Get("in.advantages").dim(1));
  controller::PenaltyCounts total;
  size_t row = 0;
  for (const json& sample : c.hparams().at("messages")) {
    std::vector<controller::PenalizedMessage> messages;
    for (const json& message : sample) {
      messages.push_back({message.at("token_ids").get<int64_t>(), message.at("role") == "assistant",
                          Flag(message, "is_invalid_tool_call", false),
                          Flag(message, "has_malformed_thinking", false)});
    }
    const auto counts = controller::PenalizeMessages(std::span(advantages).subspan(row++ * width, width), messages,
                                                     OptionalNumber(grpo, "invalid_tool_call_advantage"),
                                                     OptionalNumber(grpo, "malformed_thinking_advantage"));
    total.invalid_tool_calls += counts.invalid_tool_calls;
    total.malformed_thinking += counts.malformed_thinking;
    total.assistant_messages += counts.assistant_messages;
  }
  const double messages = static_cast<double>(std::max<int64_t>(total.assistant_messages, 1));
  const std::map<std::string, double> actual = {
      {"invalid_tool_call_rate", static_cast<double>(total.invalid_tool_calls) / messages},
      {"malformed_thinking_rate", static_cast<double>(total.malformed_thinking) / messages},
      {"num_invalid_tool_calls", static_cast<double>(total.invalid_tool_calls)},
      {"num_malformed_thinking", static_cast<double>(total.malformed_thinking)},
      {"num_assistant_messages", static_cast<double>(total.assistant_messages)}};
  const json metrics = c.outputs().value("metrics", json::object());
  for (const auto& [key, expected] : metrics.items()) {
    CompareScalar(report, c, key, actual.at(key), Number(expected), c.tolerance("f32"));
  }
  CompareTensor(report, c, "out.advantages", advantages, c.tolerance("f32"));
}

}  // namespace

void RunAdvantages(Report& report, const LossCase& c) {
  for (const char* tree : {"grpo", "ppo"}) {
    const json algorithm = c.hparams().value(tree, json::object());
    if (algorithm.contains("adv_estimator")) return RunEstimator(report, c, algorithm.at("adv_estimator"));
  }
  const json grpo = c.hparams().value("grpo", json::object());
  if (c.hparams().contains("messages")) return RunPenalties(report, c);
  if (grpo.contains("seq_logprob_error_threshold")) return RunSequenceError(report, c);
  if (grpo.contains("advantage_clip_low") || grpo.contains("advantage_clip_high")) {
    std::vector<double> advantages = c.Get("in.advantages").data;
    controller::ClipAdvantages(advantages, OptionalNumber(grpo, "advantage_clip_low"),
                               OptionalNumber(grpo, "advantage_clip_high"));
    return CompareTensor(report, c, "out.advantages", advantages, c.tolerance("f32"));
  }
  if (c.Has("out.baseline") || c.Has("math.baseline")) return RunBaselines(report, c);
  report.NotImplemented(c.name(), "not implemented");
}

}  // namespace manta::golden
