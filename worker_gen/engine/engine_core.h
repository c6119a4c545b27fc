// The engine without its thread: sequences, their blocks, and one step at a time.
//
// A step asks the scheduler, carries its decision out on the cache, has the runner compute, and hands each new token to
// its request. The samples of one prompt that are admitted together compute it once: the first of them does, the others
// fork from it, drawing their first token from its logits and going on from a copy of its last block. Everything
// happens in the caller's thread and in a fixed order, so that tests can drive it.
//
// Failure: a step that fails as a whole ends the requests that took part in it, with the runner's error; the others go
// on. Every request that was added ends exactly once.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "worker_gen/engine/sequence.h"
#include "worker_gen/kv_cache/kv_cache.h"
#include "worker_gen/runner/runner.h"
#include "worker_gen/scheduler/scheduler.h"

namespace manta::gen {

struct EngineOptions {
  Limits limits;
  int32_t num_blocks = 0;
  bool prefix_cache = true;
  int32_t max_model_len = 0;
  int32_t max_queued = 8192;
  int32_t vocab_size = 0;
  std::vector<int32_t> eos_ids;
};

struct EngineStats {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t num_blocks_free = 0;
  int64_t num_blocks = 0;
  uint64_t generated_tokens = 0;
  uint64_t prompt_tokens = 0;  // of sequences admitted
  uint64_t cached_prompt_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t weight_version = 0;
};

class EngineCore {
 public:
  // `runner` must outlive the core.
  EngineCore(EngineOptions options, Runner* runner);
  ~EngineCore();  // ends what is left: CANCELLED

  void Add(std::unique_ptr<Sequence> sequence);
  // Ends it as cancelled and frees its blocks. Nothing happens where it has ended already.
  void Cancel(uint64_t id);
  bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  // One step; false where nothing could be computed.
  bool Step();

  // The running go back to the queue and give up their blocks, which nobody is given again.
  void DropCache();
  // From now on tokens are of this version. Unless `keep_prefix_cache`, no block computed before is shared any more;
  // those who have begun keep their own.
  void SetWeightVersion(uint64_t version, bool keep_prefix_cache);
  void EndAll(const absl::Status& status);

  EngineStats stats() const;

 private:
  using SequencePtr = std::unique_ptr<Sequence>;
  struct QueueKey {  // higher priority, then earlier arrival
    int32_t priority;
    uint64_t id;
    bool operator<(const QueueKey& o) const { return priority != o.priority ? priority > o.priority : id < o.id; }
  };

  void ScheduleStep();
  void BuildWaitingViews(int32_t num_tokens);
  void Preempt(int32_t count);
  void Take(Sequence& sequence, int32_t num_tokens);
  // Where the sequence with its prompt was not scheduled to the prompt's end, nothing happens and false is returned.
  bool TakeFork(Sequence& sequence);
  void CountPrompt(Sequence& sequence);
  static uint64_t PromptId(const Sequence& s) { return s.num_generated() == 0 ? s.prompt_id : 0; }
  void Deliver(std::vector<absl::StatusOr<SampledToken>>& drawn);
  void Finish(Sequence& sequence, const absl::Status& status);
  static QueueKey KeyOf(const Sequence& sequence) { return {sequence.priority, sequence.id}; }

  const EngineOptions options_;
  Runner* const runner_;
  KvCache cache_;
  std::vector<SequencePtr> running_;  // in the order of admission
  std::map<QueueKey, SequencePtr> waiting_;
  EngineStats stats_;

  // Of the step being made; members so that their storage is reused.
  struct Scheduled {
    Sequence* sequence;
    int32_t num_tokens;
    int32_t fork_of = -1;  // in scheduled_
  };
  std::vector<Scheduled> scheduled_;
  absl::flat_hash_map<uint64_t, int32_t> whole_prompts_;  // prompt_id -> who of scheduled_ comes to its last token
  std::vector<SequenceView> running_views_, waiting_views_;
  std::vector<SequenceChunk> chunks_;
  std::vector<absl::StatusOr<SampledToken>> drawn_;
};

}  // namespace manta::gen
