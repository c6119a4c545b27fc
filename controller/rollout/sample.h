// A sample: one conversation that a policy took part in, as token ids, with what is known of each token.
//
// A plain value that goes one way: rollout fills it, the reward worker's score is added, algorithms turn rewards into
// advantages, batching packs it for the trainer. Not thread-safe; owned by whoever holds it (the controller's loop).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "manta/v1/common.pb.h"

namespace manta::controller {

struct Sample {
  int64_t prompt_index = 0;  // row of the dataset
  int32_t group = 0;         // prompt within this step: samples of one group share a baseline
  int32_t index_in_group = 0;

  std::vector<int32_t> tokens;             // [length] prompt, then what was generated (and what environments said)
  std::vector<float> token_mask;           // [length] 1 where the policy chose the token
  std::vector<float> generation_logprobs;  // [length] of the tokens that it chose, else 0
  int32_t prompt_length = 0;

  uint64_t oldest_weight_version = 0;
  uint64_t newest_weight_version = 0;
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;

  std::string response_text;
  std::string ground_truth;
  std::string extracted_answer;

  // Anything but OK (a worker died, a verifier ran out of time): not trained on. A failure is never a zero reward.
  absl::Status status;
  double reward = 0;
  std::map<std::string, double> reward_components;

  int32_t response_length() const { return static_cast<int32_t>(tokens.size()) - prompt_length; }
  bool truncated() const { return finish_reason == v1::FINISH_REASON_LENGTH; }
};

}  // namespace manta::controller
