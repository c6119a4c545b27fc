// The trainer's part of a checkpoint: policy/weights (what AutoModelForCausalLM.from_pretrained opens),
// policy/tokenizer, and policy/optimizer (moments and masters by parameter, independent of how many ranks there were).
//
//   weights/    config.json, model.safetensors (or shards), generation_config.json, the tokenizer's files
//   tokenizer/  the tokenizer's files again
//   optimizer/  trainer_state.json; {master,exp_avg,exp_avg_sq}.safetensors with "<parameter>.<kind>"
//
// Functions of rank 0 unless they say otherwise; the folder `policy` exists and is made atomic by the caller. Errors
// name the file.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/parameters.h"

namespace manta::train {

// Counters that go on after a resume.
struct TrainerState {
  int64_t step = 0;           // optimiser steps done
  int64_t schedule_step = 0;  // moves of the learning rate's schedule
  bool has_optimizer = false;
};

// Weights in the parameters' type, and the files beside them. `model_path` and `tokenizer_path` may be empty: then
// nothing is copied from there.
[[nodiscard]] absl::Status SaveWeights(const model::Parameters& parameters, const std::filesystem::path& policy,
                                       const std::filesystem::path& model_path,
                                       const std::filesystem::path& tokenizer_path);

// One kind of optimiser state in the flat layout, [FlatSize] float32 on the CPU.
[[nodiscard]] absl::Status SaveOptimizerKind(const model::Parameters& parameters, const std::filesystem::path& policy,
                                             const std::string& kind, const at::Tensor& flat);
[[nodiscard]] absl::Status SaveTrainerState(const std::filesystem::path& policy, const TrainerState& state);

// On every rank: the inverse. Every parameter must be there as float32 with its shape.
[[nodiscard]] absl::StatusOr<at::Tensor> LoadOptimizerKind(const model::Parameters& parameters,
                                                           const std::filesystem::path& policy,
                                                           const std::string& kind);
[[nodiscard]] absl::StatusOr<TrainerState> LoadTrainerState(const std::filesystem::path& policy);

// Bytes of all files below a folder.
uint64_t FolderBytes(const std::filesystem::path& folder);

}  // namespace manta::train
