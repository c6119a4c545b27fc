#include "worker_gen/engine/engine.h"

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace manta::gen {

Engine::Engine(EngineOptions options, std::unique_ptr<Runner> runner)
    : options_(std::move(options)), runner_(std::move(runner)) {
  MANTA_CHECK(options_.num_blocks > 0 && options_.max_model_len > 1 && options_.vocab_size > 0);
  stats_.num_blocks = stats_.num_blocks_free = options_.num_blocks;
  thread_ = std::thread([this] { Loop(); });
}

Engine::~Engine() {
  BeginStop();
  thread_.join();
}

void Engine::BeginStop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
}

absl::Status Engine::Check(const GenerationRequest& request) const {
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) return absl::InvalidArgumentError("the prompt has no tokens");
  if (length >= options_.max_model_len) {
    return absl::InvalidArgumentError(absl::StrCat("the prompt has ", length, " tokens and the model takes ",
                                                   options_.max_model_len, " with those generated: at most ",
                                                   options_.max_model_len - 1, " may be in the prompt"));
  }
  const auto bad = std::find_if(request.prompt.begin(), request.prompt.end(),
                                [&](int32_t token) { return token < 0 || token >= options_.vocab_size; });
  if (bad != request.prompt.end()) {
    return absl::InvalidArgumentError(absl::StrCat("prompt token ", bad - request.prompt.begin(), " is ", *bad,
                                                   "; the vocabulary has ", options_.vocab_size, " tokens"));
  }
  if (!request.options.stop_strings.empty() && request.text == nullptr)
    return absl::FailedPreconditionError("stop strings need a tokenizer, and the generator has none");
  // The last token drawn is never computed.
  const int64_t most = std::min<int64_t>(length + request.options.max_new_tokens, options_.max_model_len) - 1;
  const int64_t capacity = static_cast<int64_t>(options_.num_blocks) * options_.limits.block_size;
  if (most > capacity) {
    return absl::InvalidArgumentError(absl::StrCat("a prompt of ", length, " tokens with up to ",
                                                   request.options.max_new_tokens, " new ones needs a cache of ", most,
                                                   " tokens; there are ", options_.num_blocks, " blocks of ",
                                                   options_.limits.block_size, ", that is ", capacity));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Engine::Submit(GenerationRequest request) {
  std::vector<GenerationRequest> one;
  one.push_back(std::move(request));
  return SubmitSamples(std::move(one))[0];
}

std::vector<absl::StatusOr<uint64_t>> Engine::SubmitSamples(std::vector<GenerationRequest> requests) {
  std::vector<absl::Status> checks;
  for (const GenerationRequest& request : requests) {
    MANTA_CHECK(request.prompt == requests[0].prompt) << "samples of one prompt";
    checks.push_back(Check(request));
  }
  std::vector<std::unique_ptr<Sequence>> sequences(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!checks[i].ok()) continue;
    GenerationRequest& request = requests[i];
    const int32_t room = options_.max_model_len - static_cast<int32_t>(request.prompt.size());
    request.options.max_new_tokens = std::min(request.options.max_new_tokens, room);
    request.options.min_new_tokens = std::min(request.options.min_new_tokens, room);
    sequences[i] = std::make_unique<Sequence>(0, std::move(request), options_.eos_ids);
  }
  std::vector<absl::StatusOr<uint64_t>> ids;
  absl::MutexLock lock(&mutex_);
  const uint64_t prompt_id = requests.size() > 1 ? next_id_ : 0;  // no other call's
  for (size_t i = 0; i < requests.size(); ++i) {
    absl::Status status = std::move(checks[i]);
    if (status.ok() && stopping_) status = absl::CancelledError("the generator stops");
    if (status.ok()) status = no_weights_;
    const int64_t queued = stats_.num_waiting + static_cast<int64_t>(arrivals_.size());
    if (status.ok() && queued >= options_.max_queued) {
      status = absl::ResourceExhaustedError(
          absl::StrCat(queued, " requests are waiting, which is as many as the queue takes (max_queued)"));
    }
    if (!status.ok()) {
      ids.push_back(std::move(status));
      continue;
    }
    sequences[i]->id = next_id_++;
    sequences[i]->prompt_id = prompt_id;
    ids.push_back(sequences[i]->id);
    arrivals_.push_back(std::move(sequences[i]));
  }
  return ids;
}

void Engine::Cancel(uint64_t id) {
  absl::MutexLock lock(&mutex_);
  cancellations_.push_back(id);
}

absl::Status Engine::BetweenSteps(absl::FunctionRef<void(EngineCore&)> action) {
  absl::Notification done;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("the generator stops");
    actions_.push_back([&](EngineCore& core) {
      action(core);
      done.Notify();
    });
  }
  done.WaitForNotification();
  return absl::OkStatus();
}

absl::StatusOr<EngineStats> Engine::Pause(bool drop_cache) {
  EngineStats stats;
  MANTA_RETURN_IF_ERROR(BetweenSteps([&](EngineCore& core) {
    {
      absl::MutexLock lock(&mutex_);
      paused_ = true;
    }
    if (drop_cache) core.DropCache();
    stats = core.stats();
  }));
  return stats;
}

void Engine::Resume() {
  absl::MutexLock lock(&mutex_);
  paused_ = false;
}

absl::Status Engine::UpdateWeights(uint64_t version, bool keep_prefix_cache, const std::function<absl::Status()>& swap,
                                   const std::function<bool()>& in_pieces) {
  absl::Status status;
  MANTA_RETURN_IF_ERROR(BetweenSteps([&](EngineCore& core) {
    status = swap();
    absl::Status no_weights;
    if (status.ok()) {
      core.SetWeightVersion(version, keep_prefix_cache);
    } else if (in_pieces && in_pieces()) {
      no_weights = absl::UnavailableError(absl::StrCat(
          "the generator has no version of the weights: the last update failed half-way (", status.message(), ")"));
      core.SetWeightVersion(0, /*keep_prefix_cache=*/false);
      core.EndAll(no_weights);
    } else {
      return;
    }
    absl::MutexLock lock(&mutex_);
    no_weights_ = no_weights;
  }));
  return status;
}

EngineStats Engine::stats() const {
  absl::MutexLock lock(&mutex_);
  EngineStats stats = stats_;
  stats.num_waiting += static_cast<int64_t>(arrivals_.size());
  return stats;
}

void Engine::Loop() {
  EngineCore core(options_, runner_.get());
  std::vector<std::unique_ptr<Sequence>> arrivals;
  std::vector<uint64_t> cancellations;
  std::vector<std::function<void(EngineCore&)>> actions;
  bool has_work = false;
  while (true) {
    bool may_step;
    {
      auto wanted = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !arrivals_.empty() || !cancellations_.empty() || !actions_.empty() ||
               (has_work && !paused_);
      };
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&wanted));
      stats_.num_waiting += static_cast<int64_t>(arrivals_.size());  // they count while they are on their way
      arrivals.swap(arrivals_);
      cancellations.swap(cancellations_);
      actions.swap(actions_);
      if (stopping_) break;
    }
    for (auto& sequence : arrivals) core.Add(std::move(sequence));
    for (uint64_t id : cancellations) core.Cancel(id);
    for (auto& action : actions) action(core);
    arrivals.clear();
    cancellations.clear();
    actions.clear();
    {
      absl::MutexLock lock(&mutex_);
      stats_ = core.stats();  // what Submit counts by, before the step takes its time
      may_step = !paused_;
    }
    // A step without effect is possible once (everybody preempted), never twice: Submit refuses what cannot fit.
    if (may_step) core.Step();
    has_work = core.has_work();
    absl::MutexLock lock(&mutex_);
    stats_ = core.stats();
  }
  for (auto& action : actions) action(core);
  for (auto& sequence : arrivals) core.Add(std::move(sequence));  // the core's end tells them
}

}  // namespace manta::gen
