// One Score call: its samples, scored by whichever threads have time, each on its own deadline.
//
// Several threads call Run; the one that finishes the last sample learns so and may answer the call. What a verifier
// throws, or a deadline that passes, becomes the sample's status: never a zero, and never another sample's failure.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "manta/v1/reward.pb.h"
#include "nlohmann/json_fwd.hpp"
#include "worker_reward/verifiers/verifier.h"

namespace manta::reward {

// The options for a verifier of an environment's tree: the JSON object that ScoreRequest.options_json carries.
[[nodiscard]] absl::Status ReadOptions(const std::string& environment_json, nlohmann::json& options);

class Batch {
 public:
  // `request` and `reply` must live until the last sample is finished; Run does not touch them after that.
  // INVALID_ARGUMENT or NOT_FOUND for a verifier or options that are wrong.
  [[nodiscard]] static absl::StatusOr<std::shared_ptr<Batch>> Create(const v1::ScoreRequest& request,
                                                                     v1::ScoreReply* reply);

  Batch(const v1::ScoreRequest& request, v1::ScoreReply* reply, std::unique_ptr<Verifier> verifier);

  // Scores samples until none is left. `cancelled` is asked before each; the rest are then CANCELLED. True for the one
  // caller that finished the last.
  bool Run(const std::function<bool()>& cancelled);

  int size() const { return size_; }

 private:
  void Score(int i) const;

  const v1::ScoreRequest& request_;
  const int size_;
  v1::ScoreReply* reply_;
  std::unique_ptr<Verifier> verifier_;
  absl::Duration allowed_;
  std::atomic<int> next_{0}, done_{0};
};

}  // namespace manta::reward
