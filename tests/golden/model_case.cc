#include "tests/golden/model_case.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/model/forward.h"
#include "common/model/log_prob.h"
#include "common/model/packed_attention.h"

namespace manta::golden {
namespace {

using model::ForwardOptions;
using model::PackedAttention;

// A sequence alone: hidden states of all positions.
absl::StatusOr<at::Tensor> ForwardAlone(const ModelCase& c, const std::vector<int64_t>& tokens,
                                        const ForwardOptions& options = {}) {
  const int64_t n = static_cast<int64_t>(tokens.size());
  PackedAttention attention({0, n});
  return model::Forward(c.parameters, at::tensor(tokens, at::kLong).to(c.run.device),
                        model::PackedPositions({0, n}).to(c.run.device), attention, options);
}

// Log-probability of tokens[t + 1] at entry t.
absl::StatusOr<at::Tensor> NextLogProbs(const ModelCase& c, const at::Tensor& hidden,
                                        const std::vector<int64_t>& tokens) {
  const at::Tensor ids = at::tensor(tokens, at::kLong).to(c.run.device);
  const int64_t n = ids.size(0) - 1;
  MANTA_ASSIGN_OR_RETURN(model::LogProbs result,
                         model::TokenLogProbs(c.parameters, hidden.narrow(0, 0, n), ids.narrow(0, 1, n)));
  return result.log_probs;
}

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

}  // namespace

double ModelCase::Tolerance(const char* quantity) const {
  return golden.at("suggested_atol").at(quantity).get<double>();
}

std::vector<std::vector<int64_t>> ModelCase::Sequences() const {
  return golden.at("input_ids").get<std::vector<std::vector<int64_t>>>();
}

at::Tensor GoldenTensor(const checkpoint::Checkpoint& tensors, const std::string& name) {
  const checkpoint::TensorView* view = tensors.Find(name);
  if (view == nullptr) return {};
  const at::ScalarType type = view->info->dtype == checkpoint::DType::kI64 ? at::kLong : at::kFloat;
  if (type == at::kFloat && view->info->dtype != checkpoint::DType::kF32) return {};
  return at::from_blob(const_cast<char*>(view->bytes.data()), view->info->shape, at::TensorOptions().dtype(type))
      .clone();
}

double MaxDiff(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  if (a.numel() == 0) return 0;
  return (a.detach().cpu().to(at::kDouble) - b.detach().cpu().to(at::kDouble)).abs().max().item<double>();
}

void CompareForward(const ModelCase& c, Report& report) {
  at::NoGradGuard no_grad;
  const auto sequences = c.Sequences();
  for (size_t i = 0; i < sequences.size(); ++i) {
    std::vector<at::Tensor> layers;
    const auto hidden = ForwardAlone(c, sequences[i], {.layer_outputs = &layers});
    if (!hidden.ok()) return report.Fail(c.name, "logits", Text(hidden.status()));
    const auto logits = model::Logits(c.parameters, *hidden);
    if (!logits.ok()) return report.Fail(c.name, "logits", Text(logits.status()));
    const std::string suffix = StrCat(".", i);
    report.Compare(c.name, "logits" + suffix, MaxDiff(*logits, GoldenTensor(c.tensors, "logits" + suffix)),
                   c.Tolerance("logits"));
    const auto log_probs = NextLogProbs(c, *hidden, sequences[i]);
    if (!log_probs.ok()) return report.Fail(c.name, "logprobs", Text(log_probs.status()));
    report.Compare(c.name, "logprobs" + suffix, MaxDiff(*log_probs, GoldenTensor(c.tensors, "logprobs" + suffix)),
                   c.Tolerance("logprobs"));
    for (size_t l = 0; l < layers.size(); ++l) {
      const std::string tensor = l == 0 ? "embed_out" + suffix : StrCat("layer_out", suffix, ".", l - 1);
      const at::Tensor expected = GoldenTensor(c.tensors, tensor);
      if (expected.defined()) report.Compare(c.name, tensor, MaxDiff(layers[l], expected), c.Tolerance("logits"));
    }
  }
}

absl::StatusOr<at::Tensor> PackedLoss(const ModelCase& c) {
  std::vector<int64_t> tokens, cu_seqlens = {0}, rows, targets;
  for (const auto& sequence : c.Sequences()) {
    for (size_t t = 0; t + 1 < sequence.size(); ++t) {
      rows.push_back(static_cast<int64_t>(tokens.size() + t));
      targets.push_back(sequence[t + 1]);
    }
    tokens.insert(tokens.end(), sequence.begin(), sequence.end());
    cu_seqlens.push_back(static_cast<int64_t>(tokens.size()));
  }
  PackedAttention attention(cu_seqlens);
  const auto on_device = [&](const std::vector<int64_t>& ids) { return at::tensor(ids, at::kLong).to(c.run.device); };
  MANTA_ASSIGN_OR_RETURN(
      const at::Tensor hidden,
      model::Forward(c.parameters, on_device(tokens), model::PackedPositions(cu_seqlens).to(c.run.device), attention));
  // Small chunks, so that the seams between them are tested too.
  const int64_t chunk_bytes = 8 * 4 * c.parameters.config().vocab_size;
  MANTA_ASSIGN_OR_RETURN(model::LogProbs result,
                         model::TokenLogProbs(c.parameters, hidden.index_select(0, on_device(rows)), on_device(targets),
                                              {.chunk_bytes = chunk_bytes}));
  return -result.log_probs.sum() / static_cast<double>(targets.size());
}

void CompareGradients(ModelCase& c, Report& report) {
  c.parameters.EnableGradients();
  c.parameters.ZeroGradients();
  const auto loss = PackedLoss(c);
  if (!loss.ok()) return report.Fail(c.name, "loss", Text(loss.status()));
  report.Compare(c.name, "loss", std::abs(loss->item<double>() - c.golden.at("loss").get<double>()),
                 c.Tolerance("loss"));
  loss->backward();
  for (const model::ParameterSpec& spec : c.parameters.table()) {
    const std::string tensor = "grad." + spec.name;
    report.Compare(c.name, tensor, MaxDiff(c.parameters.Gradient(spec.name), GoldenTensor(c.tensors, tensor)),
                   c.Tolerance("grad"));
  }
}

void CompareGreedy(const ModelCase& c, Report& report) {
  at::NoGradGuard no_grad;
  const auto sequences = c.Sequences();
  const auto expected = c.golden.at("generated").get<std::vector<std::vector<int64_t>>>();
  for (size_t i = 0; i < sequences.size(); ++i) {
    std::vector<int64_t> tokens = sequences[i], generated;
    std::vector<float> log_probs;
    while (generated.size() < expected[i].size()) {
      const auto hidden = ForwardAlone(c, tokens);
      if (!hidden.ok()) return report.Fail(c.name, "generated", Text(hidden.status()));
      const auto logits = model::Logits(c.parameters, hidden->narrow(0, hidden->size(0) - 1, 1));
      if (!logits.ok()) return report.Fail(c.name, "generated", Text(logits.status()));
      const at::Tensor log_p = at::log_softmax(logits->squeeze(0), -1);
      const int64_t token = log_p.argmax().item<int64_t>();
      generated.push_back(token);
      log_probs.push_back(log_p.select(0, token).item<float>());
      tokens.push_back(token);
    }
    const std::string suffix = StrCat(".", i);
    double wrong = 0;
    for (size_t t = 0; t < generated.size(); ++t) wrong += generated[t] != expected[i][t];
    report.Compare(c.name, "generated" + suffix, wrong, 0, "tokens that differ");
    report.Compare(c.name, "generated_logprobs" + suffix,
                   MaxDiff(at::tensor(log_probs), GoldenTensor(c.tensors, "generated_logprobs" + suffix)),
                   c.Tolerance("generated_logprobs"));
  }
}

void CompareBfloat16(const ModelCase& c, Report& report) {
  at::NoGradGuard no_grad;
  if (!c.golden.contains("bf16_compute_error")) {
    return report.Skip(c.name, "golden.json says nothing of bfloat16 computation");
  }
  const auto sequences = c.Sequences();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto hidden = ForwardAlone(c, sequences[i]);
    if (!hidden.ok()) return report.Fail(c.name, "logits", Text(hidden.status()));
    const auto logits = model::Logits(c.parameters, *hidden);
    if (!logits.ok()) return report.Fail(c.name, "logits", Text(logits.status()));
    // Twice the distance at which transformers' own bfloat16 computation lies from the exact one.
    report.Compare(c.name, StrCat("logits.", i), MaxDiff(*logits, GoldenTensor(c.tensors, StrCat("logits.", i))),
                   2 * c.golden["bf16_compute_error"].at("logits").get<double>(), "bfloat16");
  }
}

void RunModelCase(const std::filesystem::path& folder, const std::string& config_file, const std::string& name,
                  const ModelRun& run, Report& report) {
  try {
    ModelCase c;
    c.name = name;
    c.folder = c.golden_folder = folder;
    c.run = run;
    const auto read_json = [](const std::filesystem::path& path) -> absl::StatusOr<nlohmann::json> {
      MANTA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
      return nlohmann::json::parse(text);
    };
    auto golden = read_json(folder / "golden.json");
    if (golden.ok() && golden->contains("same_as")) {
      c.golden_folder = folder / golden->at("same_as").get<std::string>();
      golden = read_json(c.golden_folder / "golden.json");
    }
    if (!golden.ok()) return report.Fail(name, "golden.json", Text(golden.status()));
    c.golden = *std::move(golden);
    const auto config = model::LoadModelConfig(folder / config_file);
    if (absl::IsUnimplemented(config.status())) return report.NotImplemented(name, Text(config.status()));
    if (!config.ok()) return report.Fail(name, config_file, Text(config.status()));
    auto parameters = model::Parameters::Load(*config, folder, run.dtype, run.device);
    if (!parameters.ok()) return report.Fail(name, "weights", Text(parameters.status()));
    c.parameters = *std::move(parameters);
    auto tensors = checkpoint::Checkpoint::Open(c.golden_folder / "golden.safetensors");
    if (!tensors.ok()) return report.Fail(name, "golden.safetensors", Text(tensors.status()));
    c.tensors = *std::move(tensors);
    if (run.dtype == at::kBFloat16) return CompareBfloat16(c, report);
    CompareForward(c, report);
    CompareGreedy(c, report);
    CompareGradients(c, report);
    CompareAdamW(c, report);
  } catch (const std::exception& error) {  // broken goldens: a missing key, a wrong type
    report.Fail(name, "-", error.what());
  }
}

}  // namespace manta::golden
