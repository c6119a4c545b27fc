// Rollout: prompts go out, scored samples come back.
//
// One coroutine a group, on the controller's loop: generate its samples in one call, then have the reward worker score. What
// fails is a status on the sample, never a zero reward; the step decides what to do about it. A worker that dies breaks the
// calls to it a moment before its death is known: Run waits for that, so that no step is taken on what is left of its
// samples. Sampling seeds are a function of (run seed, step, group, sample), so a resumed step draws what it would have drawn.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "common/tokenizer/tokenizer.h"
#include "controller/data/prompts.h"
#include "controller/rollout/generator_pool.h"
#include "controller/rollout/sample.h"
#include "manta/v1/reward.grpc.pb.h"

namespace manta::controller {

// Where samples of one environment are scored.
struct Scorer {
  std::string verifier;
  std::string options_json;
  absl::Duration deadline_per_sample;
};

struct RolloutOptions {
  v1::SamplingParams sampling;   // seed is set for each sample
  int max_total_length = 0;      // prompt and response; a response is cut to fit
  int samples_per_prompt = 1;
  int max_concurrent_groups = 1024;
  uint64_t seed = 0;             // of this rollout: a function of the run's seed and the step
};

class RolloutEngine {
 public:
  RolloutEngine(EventLoop& loop, GeneratorPool& generators, std::vector<std::shared_ptr<grpc::Channel>> reward_workers,
                std::map<std::string, Scorer> scorers, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                CancelToken cancel);

  // samples_per_prompt samples for each prompt, in the prompts' order. Never fails as a whole.
  Task<std::vector<Sample>> Run(std::vector<RolloutPrompt> prompts, RolloutOptions options);

  // Seconds that generating and scoring took in the last Run: the longest wait for each.
  double generation_seconds() const { return generation_seconds_; }
  double reward_seconds() const { return reward_seconds_; }

 private:
  Task<std::vector<Sample>> RunGroup(const RolloutPrompt* prompt, int group, const RolloutOptions* options,
                                     Semaphore* capacity);
  Sample MakeSample(const RolloutPrompt& prompt, int group, int index, absl::StatusOr<Completion> completion) const;
  Task<absl::Status> Score(const RolloutPrompt* prompt, std::vector<Sample>* samples);
  void NoteCall(const absl::Status& status) { broken_ = broken_ || status.code() == absl::StatusCode::kUnavailable; }

  EventLoop& loop_;
  GeneratorPool& generators_;
  std::vector<std::unique_ptr<v1::RewardService::Stub>> rewards_;
  std::map<std::string, Scorer> scorers_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  CancelToken cancel_;
  size_t next_reward_ = 0;
  bool broken_ = false;  // a call of this Run: its callee is gone, or cannot be reached
  absl::Time last_generated_;
  double generation_seconds_ = 0, reward_seconds_ = 0;
};

// The seed of one sample: a hash of its place in the run.
uint64_t SampleSeed(uint64_t seed, uint64_t group, uint64_t index);

}  // namespace manta::controller
