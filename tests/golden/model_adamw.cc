// The optimiser's trajectory: five steps of AdamW with clipping on a golden model.
#include <algorithm>
#include <cmath>
#include <span>

#include "common/base/file.h"
#include "common/base/strings.h"
#include "tests/golden/model_case.h"
#include "worker_train/optimizer/adamw.h"

namespace manta::golden {

void CompareAdamW(ModelCase& c, Report& report) {
  if (!std::filesystem::exists(c.folder / "adamw.json")) return;
  const std::string name = c.name + "/adamw";
  if (!c.parameters.device().is_cpu()) return report.Skip(name, "the fused step on the GPU is tested with its kernel");
  const auto text = ReadFile(c.folder / "adamw.json");
  if (!text.ok()) return report.Fail(name, "adamw.json", std::string(text.status().message()));
  const nlohmann::json golden = nlohmann::json::parse(*text);
  const nlohmann::json &optimizer = golden.at("optimizer"), &atol = golden.at("suggested_atol");
  const train::AdamWOptions options{.lr = optimizer.at("lr"),
                                    .weight_decay = optimizer.at("weight_decay"),
                                    .beta1 = optimizer.at("betas")[0],
                                    .beta2 = optimizer.at("betas")[1],
                                    .eps = optimizer.at("eps")};
  const int64_t steps = optimizer.at("steps");
  const auto tensors = checkpoint::Checkpoint::Open(c.folder / "adamw.safetensors");
  if (!tensors.ok()) return report.Fail(name, "adamw.safetensors", std::string(tensors.status().message()));

  c.parameters.EnableGradients();
  const size_t size = static_cast<size_t>(c.parameters.flat_values().numel());
  const std::span<float> values(c.parameters.flat_values().data_ptr<float>(), size);
  const std::span<const float> gradients(c.parameters.flat_gradients().data_ptr<float>(), size);
  std::vector<float> exp_avg(size), exp_avg_sq(size);
  for (int64_t step = 0; step <= steps; ++step) {
    c.parameters.ZeroGradients();
    const auto loss = PackedLoss(c);
    if (!loss.ok()) return report.Fail(name, "loss", std::string(loss.status().message()));
    const double expected = golden.at("loss_before_each_step_and_after_the_last")[step];
    report.Compare(name, StrCat("loss.", step), std::abs(loss->item<double>() - expected), atol.at("loss"));
    if (step == steps) break;
    loss->backward();
    const double norm = std::sqrt(train::SquaredNorm(gradients));
    report.Compare(name, StrCat("grad_norm.", step),
                   std::abs(norm - golden.at("grad_norm_before_clipping")[step].get<double>()), atol.at("grad_norm"));
    const float scale = static_cast<float>(train::ClipScale(norm, optimizer.at("max_grad_norm")));
    train::AdamWStep(options, step + 1, scale, gradients, values, exp_avg, exp_avg_sq);
    c.parameters.ValuesChanged();
  }

  std::vector<double> differences;
  for (const model::ParameterSpec& spec : c.parameters.table()) {
    const at::Tensor expected = GoldenTensor(*tensors, "final." + spec.name);
    if (!expected.defined() || expected.sizes() != at::IntArrayRef(spec.shape)) {
      return report.Fail(name, "final." + spec.name, "absent from adamw.safetensors, or of another shape");
    }
    const at::Tensor d = (c.parameters.Value(spec.name).to(at::kDouble) - expected.to(at::kDouble)).abs().contiguous();
    differences.insert(differences.end(), d.data_ptr<double>(), d.data_ptr<double>() + d.numel());
  }
  std::sort(differences.begin(), differences.end());
  double sum = 0;
  for (double d : differences) sum += d;
  report.Compare(name, "final_mean", sum / static_cast<double>(differences.size()), atol.at("final_mean"));
  report.Compare(name, "final_p99", differences[differences.size() * 99 / 100], atol.at("final_p99"));
  report.Compare(name, "final_max", differences.back(), atol.at("final_max"));
}

}  // namespace manta::golden
