// Typed configuration to what the trainer, the generator and the shard planner are asked for. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "common/config/run_config.h"
#include "controller/algorithms/batch.h"
#include "manta/v1/common.pb.h"
#include "manta/v1/trainer.pb.h"

namespace manta::controller {

v1::ClippedPgLoss LossProto(const config::LossConfig& config);

// How samples are drawn for training, and for validation. The seed is left to the rollout.
v1::SamplingParams TrainSampling(const config::GenerationConfig& config);
v1::SamplingParams ValidationSampling(const config::GenerationConfig& config);

// The bound on a microbatch: tokens where packing or dynamic batching is on, else sequences.
ShardOptions ShardOptionsOf(const config::RunConfig& config, int num_ranks, bool logprobs);

std::vector<int32_t> LengthsOf(std::span<const Sequence> sequences);
std::vector<int64_t> GroupsOf(std::span<const Sequence> sequences);

}  // namespace manta::controller
