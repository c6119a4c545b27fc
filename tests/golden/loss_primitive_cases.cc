// KL estimates with their gradients, masked statistics, learning rates.

#include "controller/algorithms/advantages.h"
#include "tests/golden/loss_case.h"
#include "worker_train/loss/kl_estimate.h"
#include "worker_train/optimizer/lr_schedule.h"

namespace manta::golden {
namespace {

using nlohmann::json;

void RunKl(Report& report, const LossCase& c) {
  const std::string type_name = c.hparams().at("kl_type");
  const auto type = type_name == "k1"   ? train::KlType::kK1
                    : type_name == "k2" ? train::KlType::kK2
                                        : train::KlType::kK3;
  const auto logprobs = c.Get("in.logprobs").As<float>(), reference = c.Get("in.logprobs_reference").As<float>();
  const auto weights = c.Get("in.weights").As<float>();
  for (const auto& [variant, clamps] : c.hparams().at("variants").items()) {
    const bool weighted = c.Has("grad.weights." + variant);
    std::vector<float> value, d_logprobs, d_weights;
    for (size_t i = 0; i < logprobs.size(); ++i) {
      const auto kl = train::EstimateKl<float>(type, logprobs[i], reference[i], weighted ? weights[i] : 1.0f,
                                               OptionalNumber(clamps, "input_clamp_value"),
                                               OptionalNumber(clamps, "output_clamp_value"));
      value.push_back(kl.value);
      d_logprobs.push_back(kl.d_current);
      d_weights.push_back(kl.d_weight);
    }
    CompareTensor(report, c, "out." + variant, value, c.tolerance("f32"));
    CompareTensor(report, c, "grad.logprobs." + variant, d_logprobs, c.tolerance("f32"));
    if (weighted) CompareTensor(report, c, "grad.weights." + variant, d_weights, c.tolerance("f32"));
  }
}

void RunMasked(Report& report, const LossCase& c) {
  const LossTensor &values = c.Get("in.values"), &mask = c.Get("in.mask");
  for (const auto& [key, expected] : c.outputs().items()) {
    double actual = std::numeric_limits<double>::quiet_NaN();
    if (key == "mean") actual = controller::MaskedMean(values.data, mask.data);
    if (key.starts_with("mean_global_")) {
      actual = controller::MaskedMean(values.data, mask.data, std::stod(key.substr(12)));
    }
    if (key == "var_unbiased") actual = controller::MaskedVariance(values.data, mask.data, true);
    if (key == "var_biased") actual = controller::MaskedVariance(values.data, mask.data, false);
    CompareScalar(report, c, key, actual, Number(expected), c.tolerance("f32"));
  }
  if (!c.Has("out.mean_dim")) return;
  std::vector<double> rows;
  const auto width = static_cast<size_t>(values.dim(1));
  for (size_t row = 0; row < static_cast<size_t>(values.dim(0)); ++row) {
    rows.push_back(controller::MaskedMean(std::span(values.data).subspan(row * width, width),
                                          std::span(mask.data).subspan(row * width, width)));
  }
  CompareTensor(report, c, "out.mean_dim", rows, c.tolerance("f32"));
}

}  // namespace

void RunPrimitive(Report& report, const LossCase& c) {
  if (c.hparams().contains("kl_type")) return RunKl(report, c);
  if (c.Has("in.values") && c.Has("in.mask")) return RunMasked(report, c);
  report.NotImplemented(c.name(), "not implemented");
}

void RunLrSchedule(Report& report, const LossCase& c) {
  const json& policy = c.hparams().at("policy");
  const double base = Number(policy.at("optimizer").at("kwargs").at("lr"));
  v1::LrSchedule config;
  const auto add = [&](const json& entry) {
    if (entry.contains("milestones")) {
      for (const json& milestone : entry.at("milestones")) config.add_milestones(milestone.get<int64_t>());
      return;
    }
    v1::LrScheduleEntry& schedule = *config.add_entries();
    schedule.set_name(entry.at("name"));
    const json kwargs = entry.value("kwargs", json::object());
    for (const auto& [key, value] : kwargs.items()) (*schedule.mutable_kwargs())[key] = Number(value);
  };
  const json scheduler = policy.value("scheduler", json());
  if (scheduler.is_array()) {
    for (const json& entry : scheduler) add(entry);
  } else if (scheduler.is_object()) {
    add(scheduler);
  }
  const auto schedule = train::LrSchedule::Create(base, config);
  if (!schedule.ok()) return report.Fail(c.name(), "lr", std::string(schedule.status().message()));
  Comparison comparison({c.json().at("tolerance").value("rtol", 1e-9), 0});
  int64_t step = 0;
  for (const json& expected : c.outputs().at("lr")) comparison.Add(schedule->At(step++), Number(expected));
  comparison.Print(report, c.name(), "lr");
}

}  // namespace manta::golden
