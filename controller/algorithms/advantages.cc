#include "controller/algorithms/advantages.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "common/base/check.h"

namespace manta::controller {
namespace {

constexpr double kStdEpsilon = 1e-6;
constexpr double kVarianceFloor = 1e-8;
constexpr double kCountEpsilon = 1e-8;

// Rows of each group, groups in order of appearance.
std::vector<std::vector<size_t>> RowsByGroup(std::span<const int64_t> groups) {
  std::unordered_map<int64_t, size_t> index;
  std::vector<std::vector<size_t>> rows;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto [it, inserted] = index.try_emplace(groups[i], rows.size());
    if (inserted) rows.emplace_back();
    rows[it->second].push_back(i);
  }
  return rows;
}

struct Spread {
  double mean, std;
};

// Of values[rows] weighted by `valid`, row `skip` left out, with `count` as the number of values. A row that is left out
// though it is not valid makes `count` one less than what is summed: the correction term below keeps the definition
// E[x^2] - E[x]^2 with both taken by that count.
Spread MeanAndStd(std::span<const double> values, std::span<const size_t> rows, std::span<const double> valid,
                  std::optional<size_t> skip, double count) {
  const auto weight = [&](size_t row) { return skip && *skip == row ? 0.0 : valid.empty() ? 1.0 : valid[row]; };
  double sum = 0, weights = 0;
  for (size_t row : rows) {
    sum += weight(row) * values[row];
    weights += weight(row);
  }
  const double mean = sum / count;
  double squares = 0;
  for (size_t row : rows) squares += weight(row) * (values[row] - mean) * (values[row] - mean);
  const double variance = squares / count + (1 - weights / count) * mean * mean;
  const double unbiased = variance * count / (count - 1);
  return {mean, count > 1 && unbiased > 0 ? std::sqrt(unbiased) : 0.0};
}

}  // namespace

Baselines PromptBaselines(std::span<const int64_t> groups, std::span<const double> rewards,
                          std::span<const double> valid, bool leave_one_out, std::span<const double> std_rewards) {
  MANTA_CHECK(rewards.size() == groups.size());
  if (std_rewards.empty()) std_rewards = rewards;
  Baselines result{std::vector<double>(rewards.begin(), rewards.end()), std::vector<double>(rewards.size(), 0.0)};
  for (const std::vector<size_t>& rows : RowsByGroup(groups)) {
    double num_valid = 0;
    for (size_t row : rows) num_valid += valid.empty() ? 1.0 : valid[row];
    if (num_valid <= 1) continue;
    const double count = leave_one_out ? num_valid - 1 : num_valid;
    for (size_t row : rows) {
      const std::optional<size_t> skip = leave_one_out ? std::optional(row) : std::nullopt;
      result.baseline[row] = MeanAndStd(rewards, rows, valid, skip, count).mean;
      result.std[row] = MeanAndStd(std_rewards, rows, valid, skip, count).std;
    }
  }
  return result;
}

std::vector<double> GrpoAdvantages(std::span<const double> rewards, const Baselines& baselines, bool normalize) {
  std::vector<double> advantages(rewards.size());
  for (size_t i = 0; i < rewards.size(); ++i) {
    advantages[i] = rewards[i] - baselines.baseline[i];
    if (normalize && baselines.std[i] > 0) advantages[i] /= baselines.std[i] + kStdEpsilon;
  }
  return advantages;
}

std::vector<double> GdpoAdvantages(std::span<const int64_t> groups, std::span<const std::vector<double>> components,
                                   std::span<const double> weights, bool normalize, bool leave_one_out) {
  std::vector<double> total(groups.size(), 0.0);
  for (size_t n = 0; n < components.size(); ++n) {
    const Baselines baselines = PromptBaselines(groups, components[n], {}, leave_one_out);
    const std::vector<double> part = GrpoAdvantages(components[n], baselines, normalize);
    for (size_t i = 0; i < total.size(); ++i) total[i] += (weights.empty() ? 1.0 : weights[n]) * part[i];
  }
  if (total.size() < 2) return std::vector<double>(total.size(), 0.0);
  std::vector<size_t> rows(total.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  const Spread spread = MeanAndStd(total, rows, {}, std::nullopt, static_cast<double>(total.size()));
  for (double& value : total) value = spread.std > 0 ? (value - spread.mean) / spread.std : 0.0;
  return total;
}

std::vector<double> GroupCentered(std::span<const int64_t> groups, std::span<const double> rewards,
                                  std::span<const double> valid) {
  std::vector<double> result(rewards.begin(), rewards.end());
  for (const std::vector<size_t>& rows : RowsByGroup(groups)) {
    double sum = 0, count = 0;
    for (size_t row : rows) {
      const double weight = valid.empty() ? 1.0 : valid[row];
      sum += weight * rewards[row];
      count += weight;
    }
    if (count == 0) continue;
    for (size_t row : rows) result[row] -= sum / count;
  }
  return result;
}

std::vector<double> BroadcastToTokens(std::span<const double> per_sample, std::span<const int32_t> lengths) {
  MANTA_CHECK(per_sample.size() == lengths.size());
  std::vector<double> result;
  for (size_t i = 0; i < lengths.size(); ++i) result.insert(result.end(), static_cast<size_t>(lengths[i]), per_sample[i]);
  return result;
}

double MaskedMean(std::span<const double> values, std::span<const double> mask, std::optional<double> count) {
  double sum = 0, selected = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += mask[i] * values[i];
    selected += mask[i];
  }
  return sum / (count.value_or(selected) + kCountEpsilon);
}

double MaskedVariance(std::span<const double> values, std::span<const double> mask, bool unbiased) {
  const double mean = MaskedMean(values, mask);
  double squares = 0, count = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    squares += mask[i] * (values[i] - mean) * (values[i] - mean);
    count += mask[i];
  }
  if (unbiased) return count > 1 ? squares / (count - 1) : 0.0;
  return squares / (count + kCountEpsilon);
}

void StandardizeMasked(std::span<double> values, std::span<const double> mask) {
  const double mean = MaskedMean(values, mask);
  const double scale = 1 / std::sqrt(std::max(MaskedVariance(values, mask, false), kVarianceFloor));
  for (double& value : values) value = (value - mean) * scale;
}

void SubtractTokenKl(std::span<double> values, std::span<const double> policy_logprobs,
                     std::span<const double> reference_logprobs, const char* kl_type, double penalty) {
  const bool k1 = std::strcmp(kl_type, "k1") == 0, k2 = std::strcmp(kl_type, "k2") == 0;
  MANTA_CHECK(k1 || k2 || std::strcmp(kl_type, "k3") == 0) << kl_type;
  for (size_t i = 0; i < values.size(); ++i) {
    const double log_ratio = std::clamp(reference_logprobs[i] - policy_logprobs[i], -20.0, 20.0);
    const double kl = k1 ? -log_ratio : k2 ? log_ratio * log_ratio / 2 : std::expm1(log_ratio) - log_ratio;
    values[i] -= penalty * std::clamp(kl, -10.0, 10.0);
  }
}

std::vector<double> DistillationAdvantages(std::span<const double> teacher_logprobs,
                                           std::span<const double> prev_logprobs, std::span<const double> mask) {
  std::vector<double> result(mask.size(), 0.0);
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] != 0) result[i] = (teacher_logprobs[i] - prev_logprobs[i]) * mask[i];
  }
  return result;
}

void ClipAdvantages(std::span<double> advantages, std::optional<double> low, std::optional<double> high) {
  for (double& value : advantages) {
    if (low) value = std::max(value, *low);
    if (high) value = std::min(value, *high);
  }
}

}  // namespace manta::controller
