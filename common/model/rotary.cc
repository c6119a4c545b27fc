#include "common/model/rotary.h"

#include <algorithm>
#include <cmath>

namespace manta::model {
namespace {

constexpr double kPi = 3.14159265358979323846;

// base ** (2 i / dim) in float32.
std::vector<float> PositionFrequencies(double base, int64_t dim) {
  std::vector<float> frequencies(static_cast<size_t>(dim / 2));
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    frequencies[static_cast<size_t>(i)] = std::pow(static_cast<float>(base), exponent);
  }
  return frequencies;
}

std::vector<float> Inverse(std::vector<float> frequencies) {
  for (float& f : frequencies) f = 1.0f / f;
  return frequencies;
}

// Long waves are stretched by the factor, short ones kept, those between are blended.
std::vector<float> Llama3(const RopeConfig& rope, int64_t dim) {
  std::vector<float> inverse = Inverse(PositionFrequencies(rope.theta, dim));
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  const float long_wave = static_cast<float>(context / rope.low_freq_factor);
  const float short_wave = static_cast<float>(context / rope.high_freq_factor);
  for (float& f : inverse) {
    const float wave = static_cast<float>(2 * kPi) / f;
    if (wave < short_wave) continue;
    if (wave > long_wave) {
      f /= static_cast<float>(rope.factor);
      continue;
    }
    const float smooth = (static_cast<float>(context) / wave - static_cast<float>(rope.low_freq_factor)) /
                         static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
    f = (1 - smooth) * f / static_cast<float>(rope.factor) + smooth * f;
  }
  return inverse;
}

double Mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

RotaryFrequencies Yarn(const RopeConfig& rope, int64_t dim) {
  RotaryFrequencies result;
  if (rope.attention_factor) {
    result.attention_factor = *rope.attention_factor;
  } else if (rope.mscale != 0 && rope.mscale_all_dim != 0) {
    result.attention_factor = Mscale(rope.factor, rope.mscale) / Mscale(rope.factor, rope.mscale_all_dim);
  } else {
    result.attention_factor = Mscale(rope.factor, 1);
  }
  // The dimension that makes `rotations` turns over the original context.
  const auto dimension = [&](double rotations) {
    const double context = static_cast<double>(rope.original_max_position_embeddings);
    return static_cast<double>(dim) * std::log(context / (rotations * 2 * kPi)) / (2 * std::log(rope.theta));
  };
  double low = dimension(rope.beta_fast), high = dimension(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  const std::vector<float> frequencies = PositionFrequencies(rope.theta, dim);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float ramp = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float keep = 1 - std::clamp(ramp, 0.0f, 1.0f);
    const float interpolated = 1.0f / (static_cast<float>(rope.factor) * frequencies[i]);
    result.inverse.push_back(interpolated * (1 - keep) + 1.0f / frequencies[i] * keep);
  }
  return result;
}

}  // namespace

RotaryFrequencies ComputeRotaryFrequencies(const ModelConfig& config, int64_t sequence_length) {
  const RopeConfig& rope = config.rope;
  const int64_t dim = config.head_dim;
  RotaryFrequencies result;
  switch (rope.type) {
    case RopeConfig::Type::kDefault:
      result.inverse = Inverse(PositionFrequencies(rope.theta, dim));
      break;
    case RopeConfig::Type::kLinear:
      result.inverse = Inverse(PositionFrequencies(rope.theta, dim));
      for (float& f : result.inverse) f /= static_cast<float>(rope.factor);
      break;
    case RopeConfig::Type::kDynamic: {
      const double trained = static_cast<double>(config.max_position_embeddings);
      const double length = std::max(static_cast<double>(sequence_length), trained);
      const double stretch = rope.factor * length / trained - (rope.factor - 1);
      // A head of two elements has one frequency, theta ** 0.
      const double power = dim > 2 ? static_cast<double>(dim) / static_cast<double>(dim - 2) : 0;
      result.inverse = Inverse(PositionFrequencies(rope.theta * std::pow(stretch, power), dim));
      break;
    }
    case RopeConfig::Type::kYarn:
      return Yarn(rope, dim);
    case RopeConfig::Type::kLlama3:
      result.inverse = Llama3(rope, dim);
      break;
  }
  return result;
}

RotaryTable::RotaryTable(const ModelConfig& config)
    : config_(config), frequencies_(ComputeRotaryFrequencies(config, 0)) {}

RotaryTable::Rows RotaryTable::Compute(const std::vector<int64_t>& positions,
                                       const RotaryFrequencies& frequencies) const {
  const int64_t half = config_.head_dim / 2;
  at::Tensor cos = at::empty({static_cast<int64_t>(positions.size()), half}, at::kFloat);
  at::Tensor sin = at::empty_like(cos);
  float* c = cos.data_ptr<float>();
  float* s = sin.data_ptr<float>();
  for (int64_t position : positions) {
    for (float inverse : frequencies.inverse) {
      const double angle = static_cast<float>(position) * inverse;  // rounded to float32
      *c++ = static_cast<float>(std::cos(angle) * frequencies.attention_factor);
      *s++ = static_cast<float>(std::sin(angle) * frequencies.attention_factor);
    }
  }
  return {cos, sin};
}

RotaryTable::Rows RotaryTable::Lookup(const at::Tensor& positions) {
  if (positions.numel() == 0) return Compute({}, frequencies_);
  const int64_t largest = positions.max().item<int64_t>();
  if (config_.rope.type == RopeConfig::Type::kDynamic && largest >= config_.max_position_embeddings) {
    return LookupDynamic(positions);
  }
  at::Tensor cos, sin;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!cos_.defined() || cos_.size(0) <= largest || cos_.device() != positions.device()) {
      int64_t size = 256;
      while (size <= largest) size *= 2;
      if (cos_.defined()) size = std::max(size, cos_.size(0));
      std::vector<int64_t> all(static_cast<size_t>(size));
      for (int64_t i = 0; i < size; ++i) all[static_cast<size_t>(i)] = i;
      const Rows rows = Compute(all, frequencies_);
      cos_ = rows.cos.to(positions.device());
      sin_ = rows.sin.to(positions.device());
    }
    cos = cos_;
    sin = sin_;
  }
  return {cos.index_select(0, positions), sin.index_select(0, positions)};
}

RotaryTable::Rows RotaryTable::LookupDynamic(const at::Tensor& positions) {
  const at::Tensor host = positions.cpu().contiguous();
  const int64_t* p = host.data_ptr<int64_t>();
  const int64_t n = host.numel();
  std::vector<at::Tensor> cos, sin;
  for (int64_t begin = 0; begin < n;) {
    int64_t end = begin + 1;
    while (end < n && p[end] == p[end - 1] + 1) ++end;
    const Rows rows =
        Compute(std::vector<int64_t>(p + begin, p + end), ComputeRotaryFrequencies(config_, p[end - 1] + 1));
    cos.push_back(rows.cos);
    sin.push_back(rows.sin);
    begin = end;
  }
  return {at::cat(cos).to(positions.device()), at::cat(sin).to(positions.device())};
}

}  // namespace manta::model
