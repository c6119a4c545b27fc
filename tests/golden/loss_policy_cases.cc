// The losses computed from logits: clipped policy gradient, NLL, and both under a sampling filter.
#include <cmath>
#include <span>

#include "tests/golden/loss_case.h"
#include "worker_train/loss/clipped_pg.h"
#include "worker_train/loss/kl_estimate.h"
#include "worker_train/loss/nll.h"
#include "worker_train/loss/token_logprobs.h"

namespace manta::golden {
namespace {

using nlohmann::json;
using train::ClippedPgOptions;
using train::MetricSet;

ClippedPgOptions Options(const json& loss_fn) {
  v1::ClippedPgLoss config;
  const auto flag = [&](const char* key) {
    return loss_fn.contains(key) && loss_fn.at(key).is_boolean() && loss_fn.at(key);
  };
  const auto number = [&](const char* key, double otherwise) {
    return OptionalNumber(loss_fn, key).value_or(otherwise);
  };
  const auto text = [&](const char* key) {
    return loss_fn.contains(key) && loss_fn.at(key).is_string() ? loss_fn.at(key).get<std::string>() : std::string();
  };
  config.set_reference_policy_kl_penalty(number("reference_policy_kl_penalty", 0.01));
  config.set_reference_policy_kl_type(text("reference_policy_kl_type"));
  if (const auto v = OptionalNumber(loss_fn, "kl_input_clamp_value")) config.set_kl_input_clamp_value(*v);
  if (const auto v = OptionalNumber(loss_fn, "kl_output_clamp_value")) config.set_kl_output_clamp_value(*v);
  config.set_ratio_clip_min(number("ratio_clip_min", 0.2));
  config.set_ratio_clip_max(number("ratio_clip_max", 0.2));
  if (const auto v = OptionalNumber(loss_fn, "ratio_clip_c")) config.set_ratio_clip_c(*v);
  config.set_use_on_policy_kl_approximation(flag("use_on_policy_kl_approximation"));
  config.set_use_importance_sampling_correction(flag("use_importance_sampling_correction"));
  config.set_truncated_importance_sampling_type(text("truncated_importance_sampling_type"));
  if (const auto v = OptionalNumber(loss_fn, "truncated_importance_sampling_ratio")) {
    config.set_truncated_importance_sampling_ratio(*v);
  }
  if (const auto v = OptionalNumber(loss_fn, "truncated_importance_sampling_ratio_min")) {
    config.set_truncated_importance_sampling_ratio_min(*v);
  }
  config.set_sequence_level_importance_ratios(flag("sequence_level_importance_ratios"));
  config.set_token_level_loss(flag("token_level_loss"));
  config.set_force_on_policy_ratio(flag("force_on_policy_ratio"));
  config.set_use_kl_in_reward(flag("use_kl_in_reward"));
  config.set_use_cispo(flag("use_cispo"));
  config.set_disable_ppo_ratio(flag("disable_ppo_ratio"));
  config.set_positive_example_nll_weight(number("positive_example_nll_weight", 0));
  auto options = train::ParseClippedPgOptions(config);
  if (!options.ok()) throw std::invalid_argument(std::string(options.status().message()));
  return *options;
}

// A case's rows as packed sequences, with where each position's row of logits lies.
template <typename T>
struct Batch {
  int64_t vocabulary = 0;
  std::vector<int32_t> lengths, tokens;
  std::vector<int64_t> logit_row;  // of the row that predicts this position; -1 at the first
  std::vector<T> logits, token_mask, sample_mask, current, unfiltered, advantages, prev, generation, reference, rewards;
  std::vector<T> gradient, unfiltered_gradient;
  std::vector<int64_t> row_position;  // [total_tokens]: row * S + t
  bool filtered = false;
  double toks = 0, seqs = 0, correct_toks = 0;

  train::PackedTokens<T> View(size_t first_row, size_t num_rows) const {
    size_t start = 0, size = 0;
    for (size_t i = 0; i < first_row; ++i) start += static_cast<size_t>(lengths[i]);
    for (size_t i = first_row; i < first_row + num_rows; ++i) size += static_cast<size_t>(lengths[i]);
    const auto part = [&](const std::vector<T>& v) {
      return v.empty() ? std::span<const T>() : std::span<const T>(v).subspan(start, size);
    };
    train::PackedTokens<T> view;
    view.lengths = std::span<const int32_t>(lengths).subspan(first_row, num_rows);
    view.token_mask = part(token_mask);
    view.sample_mask = std::span<const T>(sample_mask).subspan(first_row, num_rows);
    view.current_logprobs = part(current);
    if (filtered) view.unfiltered_logprobs = part(unfiltered);
    view.advantages = part(advantages);
    view.prev_logprobs = part(prev);
    view.generation_logprobs = part(generation);
    view.reference_logprobs = part(reference);
    if (!rewards.empty()) view.rewards = std::span<const T>(rewards).subspan(first_row, num_rows);
    view.global_valid_toks = toks;
    view.global_valid_seqs = seqs;
    view.global_correct_toks = correct_toks;
    return view;
  }
  train::LogprobGradients<T> Gradients(size_t first_row, size_t num_rows) {
    size_t start = 0, size = 0;
    for (size_t i = 0; i < first_row; ++i) start += static_cast<size_t>(lengths[i]);
    for (size_t i = first_row; i < first_row + num_rows; ++i) size += static_cast<size_t>(lengths[i]);
    train::LogprobGradients<T> result{std::span<T>(gradient).subspan(start, size), {}};
    if (filtered) result.unfiltered = std::span<T>(unfiltered_gradient).subspan(start, size);
    return result;
  }
  std::span<const T> LogitRow(int64_t row) const {
    return std::span<const T>(logits).subspan(static_cast<size_t>(row * vocabulary), static_cast<size_t>(vocabulary));
  }
};

template <typename T>
Batch<T> MakeBatch(const LossCase& c, const train::SamplingFilter& filter) {
  Batch<T> b;
  const bool packed = c.Has("in.packed_logits");
  const LossTensor& logits = c.Get(packed ? "in.packed_logits" : "in.logits");
  const LossTensor& ids = c.Get("in.input_ids");
  const int64_t rows = ids.dim(0), columns = ids.dim(1);
  b.vocabulary = logits.shape.back();
  b.logits = logits.As<T>();
  b.filtered = filter.active(b.vocabulary);
  const std::string starts = c.Has("in.cu_seqlens_q_padded") ? "in.cu_seqlens_q_padded" : "in.cu_seqlens_q";
  for (int64_t i = 0; i < rows; ++i) {
    const auto length = packed ? static_cast<int64_t>(c.Get("in.input_lengths").data[i]) : columns;
    b.lengths.push_back(static_cast<int32_t>(length));
    const int64_t first = packed ? static_cast<int64_t>(c.Get(starts).data[i]) : i * columns;
    for (int64_t t = 0; t < length; ++t) {
      b.row_position.push_back(i * columns + t);
      b.tokens.push_back(static_cast<int32_t>(ids.data[i * columns + t]));
      b.logit_row.push_back(t == 0 ? -1 : first + t - 1);
    }
  }
  const auto gather = [&](const char* name) {
    std::vector<T> values;
    if (!c.Has(name)) return values;
    for (int64_t position : b.row_position) values.push_back(static_cast<T>(c.Get(name).data[position]));
    return values;
  };
  b.token_mask = gather("in.token_mask");
  b.advantages = gather("in.advantages");
  b.prev = gather("in.prev_logprobs");
  b.generation = gather("in.generation_logprobs");
  b.reference = gather("in.reference_policy_logprobs");
  b.sample_mask = c.Get("in.sample_mask").As<T>();
  if (c.Has("in.rewards")) b.rewards = c.Get("in.rewards").As<T>();
  const size_t total = b.tokens.size();
  b.current.assign(total, T{0});
  b.unfiltered.assign(total, T{0});
  b.gradient.assign(total, T{0});
  b.unfiltered_gradient.assign(total, T{0});
  std::vector<T> row(static_cast<size_t>(b.vocabulary));
  for (size_t t = 0; t < total; ++t) {
    if (b.logit_row[t] < 0) continue;
    b.unfiltered[t] = b.current[t] = train::TokenLogprob(b.LogitRow(b.logit_row[t]), b.tokens[t]);
    if (!b.filtered) continue;
    const auto source = b.LogitRow(b.logit_row[t]);
    row.assign(source.begin(), source.end());
    train::ApplyFilter(filter, std::span<T>(row));
    b.current[t] = train::TokenLogprob(std::span<const T>(row), b.tokens[t]);
  }
  b.seqs = OptionalNumber(c.json().at("scalars"), "global_valid_seqs").value_or(0);
  b.toks = OptionalNumber(c.json().at("scalars"), "global_valid_toks").value_or(0);
  size_t start = 0;
  for (size_t i = 0; i < b.lengths.size(); ++i) {
    for (size_t t = start + 1; t < start + static_cast<size_t>(b.lengths[i]); ++t) {
      if (!b.rewards.empty() && b.rewards[i] > 0) b.correct_toks += b.token_mask[t] * b.sample_mask[i];
    }
    start += static_cast<size_t>(b.lengths[i]);
  }
  return b;
}

// d loss / d logits, in the layout of the case's logits.
template <typename T>
std::vector<T> LogitGradient(const Batch<T>& b, const train::SamplingFilter& filter) {
  std::vector<T> result(b.logits.size(), T{0});
  std::vector<T> row(static_cast<size_t>(b.vocabulary));
  for (size_t t = 0; t < b.tokens.size(); ++t) {
    if (b.logit_row[t] < 0) continue;
    const auto out = std::span<T>(result).subspan(static_cast<size_t>(b.logit_row[t] * b.vocabulary), row.size());
    const auto source = b.LogitRow(b.logit_row[t]);
    row.assign(source.begin(), source.end());
    if (b.filtered) {
      train::AddTokenLogprobGradient(std::span<const T>(row), b.tokens[t], b.unfiltered[t], b.unfiltered_gradient[t],
                                     out);
      train::ApplyFilter(filter, std::span<T>(row));
    }
    train::AddTokenLogprobGradient(std::span<const T>(row), b.tokens[t], b.current[t], b.gradient[t], out);
  }
  return result;
}

// [B, S-1] of a packed vector, in the golden's layout; only for unpacked cases.
template <typename T>
std::vector<T> Shifted(const Batch<T>& b, const std::vector<T>& values) {
  std::vector<T> result;
  size_t start = 0;
  for (int32_t length : b.lengths) {
    result.insert(result.end(), values.begin() + static_cast<std::ptrdiff_t>(start + 1),
                  values.begin() + static_cast<std::ptrdiff_t>(start + static_cast<size_t>(length)));
    start += static_cast<size_t>(length);
  }
  return result;
}

// Log-probabilities as the golden has them under a filter: 0 for what the filter or a mask drops.
template <typename T>
std::vector<T> ZeroWhereDropped(const Batch<T>& b, std::vector<T> values) {
  size_t start = 0;
  for (size_t i = 0; i < b.lengths.size(); ++i) {
    for (size_t t = start; t < start + static_cast<size_t>(b.lengths[i]); ++t) {
      if (std::isinf(values[t]) || (b.filtered && b.token_mask[t] * b.sample_mask[i] == 0)) values[t] = 0;
    }
    start += static_cast<size_t>(b.lengths[i]);
  }
  return values;
}

void CompareMetrics(Report& report, const LossCase& c, const std::string& prefix, const json& expected,
                    const MetricSet& metrics, Tolerance tolerance, const std::vector<std::string>& leave_out = {}) {
  for (const auto& [key, value] : expected.items()) {
    if (std::find(leave_out.begin(), leave_out.end(), key) != leave_out.end()) continue;
    const std::string math = key + "_math";
    const bool right = c.outputs().contains(math);
    // The right value is stored once, from the float32 run; it depends on that run's log-probabilities only where they
    // stand for the previous ones.
    const bool from_f32 = right && c.hparams().at("loss_fn").value("force_on_policy_ratio", false);
    CompareScalar(report, c, prefix + key + (right ? "_math" : ""), metrics.Get(key),
                  Number(right ? c.outputs().at(math) : value), from_f32 ? c.tolerance("f32") : tolerance);
  }
}

// How a policy loss is run over some rows.
template <typename T>
using LossFunction =
    std::function<double(const train::PackedTokens<T>&, const train::LogprobGradients<T>&, MetricSet&)>;

struct Checks {
  bool loss = true, gradients = true;         // false: faulty in the original
  std::vector<std::string> metrics_left_out;  // faulty in the original
};

template <typename T>
void CheckLoss(Report& report, const LossCase& c, const train::SamplingFilter& filter, const LossFunction<T>& function,
               const Checks& checks) {
  constexpr bool kDouble = sizeof(T) == 8;
  const std::string suffix = kDouble ? "_f64" : "", grad = kDouble ? "grad64." : "grad.";
  const Tolerance tolerance = c.tolerance(kDouble ? "f64" : "f32");
  Batch<T> b = MakeBatch<T>(c, filter);
  MetricSet metrics;
  double loss = 0;
  std::vector<size_t> sizes = {b.lengths.size()};
  if (c.hparams().contains("microbatch_sizes")) sizes = c.hparams().at("microbatch_sizes").get<std::vector<size_t>>();
  size_t row = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    MetricSet part;
    const double part_loss = function(b.View(row, sizes[i]), b.Gradients(row, sizes[i]), part);
    row += sizes[i];
    loss += part_loss;
    metrics.Merge(part);
    if (kDouble || !c.outputs().contains("microbatches")) continue;
    const json& expected = c.outputs().at("microbatches").at(i);
    const std::string prefix = "microbatch" + std::to_string(i) + ".";
    if (checks.loss) CompareScalar(report, c, prefix + "loss", part_loss, Number(expected.at("loss")), tolerance);
    CompareMetrics(report, c, prefix, expected.at("metrics"), part, tolerance, checks.metrics_left_out);
  }
  const json& outputs = c.outputs();
  const bool whole = outputs.contains("whole_batch");
  if (whole && !kDouble) {
    CompareScalar(report, c, "whole_batch.loss", loss, Number(outputs.at("whole_batch").at("loss")), tolerance);
    CompareMetrics(report, c, "whole_batch.", outputs.at("whole_batch").at("metrics"), metrics, tolerance);
  }
  if (checks.loss && outputs.contains("loss" + suffix)) {
    CompareScalar(report, c, "loss" + suffix, loss, Number(outputs.at("loss" + suffix)), tolerance);
  }
  for (const std::string key : {"metrics", "aggregated_metrics"}) {
    if (!outputs.contains(key + suffix)) continue;
    MetricSet logged = metrics;
    if (key == "aggregated_metrics") {
      for (train::Metric& metric : logged.metrics()) metric.value = MetricSet::Logged(metric);
    }
    CompareMetrics(report, c, key + suffix + ".", outputs.at(key + suffix), logged, tolerance, checks.metrics_left_out);
  }
  if (!kDouble && c.Has("out.next_token_logprobs")) {
    CompareTensor(report, c, "out.next_token_logprobs", Shifted(b, ZeroWhereDropped(b, b.current)), tolerance);
  }
  if (!kDouble && c.Has("out.curr_logprobs_unfiltered")) {
    CompareTensor(report, c, "out.curr_logprobs_unfiltered", Shifted(b, b.unfiltered), tolerance);
  }
  if (!checks.gradients) return;
  if (c.Has(grad + "next_token_logprobs")) {
    CompareTensor(report, c, grad + "next_token_logprobs", Shifted(b, b.gradient), tolerance);
  }
  for (const char* logits : {"logits", "packed_logits"}) {
    if (!c.Has(grad + logits)) continue;
    const auto tensors = c.json().at("tensors");
    const bool bf16 = tensors.contains(grad + logits) && tensors.at(grad + logits).value("dtype", "") == "bfloat16";
    CompareTensor(report, c, grad + logits, LogitGradient(b, filter), bf16 ? c.tolerance("grad_bf16") : tolerance);
  }
}

bool HasDouble(const LossCase& c) {
  if (c.outputs().contains("loss_f64")) return true;
  for (const auto& [name, tensor] : c.tensors()) {
    if (name.starts_with("grad64.") || name.starts_with("out64.")) return true;
  }
  return false;
}

train::SamplingFilter FilterOf(const json& generation) {
  return {static_cast<int32_t>(OptionalNumber(generation, "top_k").value_or(0)),
          OptionalNumber(generation, "top_p").value_or(1.0)};
}

// Whether an importance weight of a token that counts overflows float32: the original turns it into 0.
bool WeightOverflows(const Batch<float>& b, const ClippedPgOptions& options) {
  if (!options.importance_sampling_correction || options.sequence_level_ratios) return false;
  size_t start = 0;
  for (size_t i = 0; i < b.lengths.size(); ++i) {
    for (size_t t = start + 1; t < start + static_cast<size_t>(b.lengths[i]); ++t) {
      const float prev = options.force_on_policy_ratio ? b.current[t] : b.prev[t];
      if (b.token_mask[t] * b.sample_mask[i] != 0 && std::isinf(std::exp(prev - b.generation[t]))) return true;
    }
    start += static_cast<size_t>(b.lengths[i]);
  }
  return false;
}

bool FilterDropsValidToken(const Batch<float>& b) {
  size_t start = 0;
  for (size_t i = 0; i < b.lengths.size(); ++i) {
    for (size_t t = start + 1; t < start + static_cast<size_t>(b.lengths[i]); ++t) {
      if (b.token_mask[t] * b.sample_mask[i] != 0 && std::isinf(b.current[t])) return true;
    }
    start += static_cast<size_t>(b.lengths[i]);
  }
  return false;
}

const std::vector<std::string> kAllMetrics = {"loss",
                                              "probs_ratio",
                                              "probs_ratio_clamped",
                                              "probs_ratio_min",
                                              "probs_ratio_max",
                                              "probs_ratio_clamped_min",
                                              "probs_ratio_clamped_max",
                                              "kl_penalty",
                                              "token_mult_prob_error",
                                              "gen_kl_error",
                                              "policy_kl_error",
                                              "js_divergence_error",
                                              "sampling_importance_ratio",
                                              "approx_entropy",
                                              "is_oob_ratio",
                                              "positive_nll_loss"};

void RunPolicyLoss(Report& report, const LossCase& c, const train::SamplingFilter& filter) {
  const ClippedPgOptions options = Options(c.hparams().at("loss_fn"));
  Checks checks;
  const Batch<float> b = MakeBatch<float>(c, filter);
  if (FilterDropsValidToken(b)) {
    checks = {false, false, kAllMetrics};
    report.Skip(c.name(),
                "loss, metrics, gradients: the original keeps tokens outside the filter in the loss with logprob 0");
  } else if (WeightOverflows(b, options)) {
    checks = {false, false, {"loss", "sampling_importance_ratio"}};
    report.Skip(c.name(), "loss, sampling_importance_ratio, gradients: the original drops a weight that overflows");
  } else if (options.positive_nll_weight != 0 && c.hparams().contains("microbatch_sizes")) {
    checks = {false, false, {"loss", "positive_nll_loss"}};
    report.Skip(c.name(), "per-microbatch loss and gradients: the original divides by each microbatch's own count");
  }
  const auto run = [&]<typename T>(T) {
    CheckLoss<T>(
        report, c, filter,
        [&](const auto& view, const auto& gradients, MetricSet& metrics) {
          return train::ClippedPgLoss<T>(options, view, gradients, metrics);
        },
        checks);
  };
  run(float{});
  if (HasDouble(c)) run(double{});
}

}  // namespace

void RunClippedPg(Report& report, const LossCase& c) {
  RunPolicyLoss(report, c, {});
}

void RunSft(Report& report, const LossCase& c) {
  if (!c.Has("in.logits") && !c.Has("in.packed_logits")) {
    return report.NotImplemented(c.name(), "not implemented: the draft model's loss");
  }
  const auto run = [&]<typename T>(T) {
    CheckLoss<T>(report, c, {},
                 [](const auto& view, const auto& gradients, MetricSet& metrics) {
                   return train::NllLoss<T>(view, gradients, metrics);
                 },
                 {});
  };
  run(float{});
  if (HasDouble(c)) run(double{});
}

void RunFilter(Report& report, const LossCase& c) {
  if (!c.hparams().contains("settings")) {
    return RunPolicyLoss(report, c, FilterOf(c.hparams().at("policy").at("generation")));
  }
  const LossTensor& logits = c.Get("in.logits");
  const auto width = static_cast<size_t>(logits.dim(1));
  for (const json& setting : c.hparams().at("settings")) {
    const std::string index = "." + std::to_string(setting.at("i").get<int>());
    const LossTensor& expected = c.Get("out.filtered" + index);
    std::vector<float> filtered = logits.As<float>(), gradient(filtered.size(), 0.0f);
    Comparison comparison(kExact), gradients(c.tolerance("f32"));
    const LossTensor& expected_gradient = c.Get("grad.logits_of_sum_logsumexp" + index);
    for (size_t row = 0; row < static_cast<size_t>(logits.dim(0)); ++row) {
      const auto values = std::span<float>(filtered).subspan(row * width, width);
      train::ApplyFilter(FilterOf(setting), values);
      // Which of several equal logits stay is not defined: compare what is kept as a multiset.
      std::vector<double> actual(values.begin(), values.end());
      std::vector<double> wanted(expected.data.begin() + static_cast<std::ptrdiff_t>(row * width),
                                 expected.data.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
      std::vector<double> softmax(width),
          wanted_softmax(expected_gradient.data.begin() + static_cast<std::ptrdiff_t>(row * width),
                         expected_gradient.data.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
      for (size_t v = 0; v < width; ++v) {
        softmax[v] = std::isinf(values[v]) ? 0
                                           : std::exp(static_cast<double>(train::TokenLogprob(
                                                 std::span<const float>(values), static_cast<int32_t>(v))));
      }
      for (auto* list : {&actual, &wanted, &softmax, &wanted_softmax}) std::sort(list->begin(), list->end());
      comparison.AddAll(actual, wanted);
      gradients.AddAll(softmax, wanted_softmax);
    }
    comparison.Print(report, c.name(), "out.filtered" + index);
    gradients.Print(report, c.name(), "grad.logits_of_sum_logsumexp" + index);
  }
}

}  // namespace manta::golden
