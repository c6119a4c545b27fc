// One model of a golden folder: what is compared, and the forward passes that the comparisons share.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/reader.h"
#include "common/model/parameters.h"
#include "nlohmann/json.hpp"
#include "tests/golden/report.h"

namespace manta::golden {

struct ModelRun {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
};

struct ModelCase {
  std::string name;
  std::filesystem::path folder, golden_folder;
  ModelRun run;
  nlohmann::json golden;  // golden.json
  model::Parameters parameters;
  checkpoint::Checkpoint tensors;  // golden.safetensors

  // suggested_atol of golden.json.
  double Tolerance(const char* quantity) const;
  std::vector<std::vector<int64_t>> Sequences() const;
};

// A tensor of a golden file on the CPU; undefined where there is none.
at::Tensor GoldenTensor(const checkpoint::Checkpoint& tensors, const std::string& name);

// The largest |a - b|; NaN where a value is not finite, infinite where shapes differ.
double MaxDiff(const at::Tensor& a, const at::Tensor& b);

// Mean cross-entropy over all next-token positions of the sequences, packed into one batch. Differentiable.
absl::StatusOr<at::Tensor> PackedLoss(const ModelCase& c);

void CompareForward(const ModelCase& c, Report& report);   // logits, log-probabilities, layers
void CompareGradients(ModelCase& c, Report& report);       // loss and every gradient
void CompareGreedy(const ModelCase& c, Report& report);    // generated ids and their log-probabilities
void CompareAdamW(ModelCase& c, Report& report);           // adamw.json, where it is there; changes the parameters
void CompareBfloat16(const ModelCase& c, Report& report);  // logits against transformers' distance in bfloat16

// All of the above for `folder` with `config_file`.
void RunModelCase(const std::filesystem::path& folder, const std::string& config_file, const std::string& name,
                  const ModelRun& run, Report& report);

}  // namespace manta::golden
