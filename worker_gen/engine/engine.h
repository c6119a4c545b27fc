// The generator's engine: takes requests from any thread and steps through them on a thread of its own.
//
// Continuous batching: a request joins at the next step and leaves as soon as it ends. The thread sleeps while there is
// nothing to compute or the engine is paused. Cancel takes effect before the next step.
//
// Thread-safe. Requests are bounded by max_queued (RESOURCE_EXHAUSTED beyond it); one that can never fit is refused at
// once (INVALID_ARGUMENT, with the numbers). Every accepted request's sink hears OnFinish exactly once, at the latest
// from the destructor. The engine owns its runner.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker_gen/engine/engine_core.h"

namespace manta::gen {

class Engine {
 public:
  Engine(EngineOptions options, std::unique_ptr<Runner> runner);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // A name to cancel it by. max_new_tokens is cut to what the model's context leaves.
  absl::StatusOr<uint64_t> Submit(GenerationRequest request);
  // Samples of one prompt, which is the same in all: arriving together they compute it once. A result for each.
  std::vector<absl::StatusOr<uint64_t>> SubmitSamples(std::vector<GenerationRequest> requests);
  void Cancel(uint64_t id);

  // When Pause returns, no step runs and none will until Resume; the counts are of that moment.
  absl::StatusOr<EngineStats> Pause(bool drop_cache);
  void Resume();
  // Runs `swap` between two steps and, if it returns OK, stamps the tokens that follow with `version`. Where it fails,
  // and `in_pieces` says that it has changed some of the weights, the generator is without a version: what runs ends
  // with the error, and Submit refuses until an update succeeds.
  absl::Status UpdateWeights(uint64_t version, bool keep_prefix_cache, const std::function<absl::Status()>& swap,
                             const std::function<bool()>& in_pieces = nullptr);

  // Ends every request as cancelled, and refuses new ones and the calls above. Does not wait for the step that runs.
  void BeginStop();

  // As of the end of the last step.
  EngineStats stats() const;
  const EngineOptions& options() const { return options_; }

 private:
  absl::Status Check(const GenerationRequest& request) const;
  void Loop();
  // Runs on the engine's thread between two steps; returns when it has run. CANCELLED where the engine stops.
  absl::Status BetweenSteps(absl::FunctionRef<void(EngineCore&)> action);

  const EngineOptions options_;
  const std::unique_ptr<Runner> runner_;

  mutable absl::Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<std::unique_ptr<Sequence>> arrivals_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> cancellations_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void(EngineCore&)>> actions_ ABSL_GUARDED_BY(mutex_);
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status no_weights_ ABSL_GUARDED_BY(mutex_);  // not OK: why there is no version
  std::thread thread_;
};

}  // namespace manta::gen
