#include "worker_gen/engine/engine_core.h"

#include <algorithm>

#include "common/base/check.h"

namespace manta::gen {

EngineCore::EngineCore(EngineOptions options, Runner* runner)
    : options_(std::move(options)),
      runner_(runner),
      cache_(options_.num_blocks, options_.limits.block_size, options_.prefix_cache) {}

EngineCore::~EngineCore() {
  EndAll(absl::CancelledError("the generator stops"));
}

void EngineCore::Add(SequencePtr sequence) {
  const QueueKey key = KeyOf(*sequence);
  MANTA_CHECK(waiting_.emplace(key, std::move(sequence)).second);
}

void EngineCore::Cancel(uint64_t id) {
  auto end = [&](Sequence& sequence) {
    sequence.completion.reason = v1::FINISH_REASON_CANCELLED;
    Finish(sequence, absl::CancelledError("the request was cancelled"));
  };
  for (auto it = running_.begin(); it != running_.end(); ++it) {
    if ((*it)->id != id) continue;
    end(**it);
    running_.erase(it);
    return;
  }
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (it->second->id != id) continue;
    end(*it->second);
    waiting_.erase(it);
    return;
  }
}

bool EngineCore::Step() {
  scheduled_.clear();
  whole_prompts_.clear();
  ScheduleStep();
  if (scheduled_.empty()) return false;

  chunks_.clear();
  for (const auto& [sequence, num_tokens, fork_of] : scheduled_) {
    SequenceChunk chunk;
    chunk.tokens = absl::MakeConstSpan(sequence->tokens).subspan(sequence->num_computed, num_tokens);
    chunk.num_computed = sequence->num_computed;
    chunk.blocks = sequence->table.blocks;
    chunk.fork_of = fork_of;
    if (sequence->num_computed + num_tokens == sequence->num_tokens()) {
      chunk.options = &sequence->options;
      chunk.position = sequence->num_generated();
      chunk.banned = sequence->stop.Banned(sequence->num_generated());
    }
    chunks_.push_back(chunk);
  }
  drawn_.assign(chunks_.size(), absl::StatusOr<SampledToken>(SampledToken{}));
  const absl::Status status = runner_->Step(chunks_, absl::MakeSpan(drawn_));
  if (!status.ok()) {
    cache_.Invalidate();  // blocks were published that were never computed
    for (auto& drawn : drawn_) drawn = status;
  }
  Deliver(drawn_);
  return true;
}

// Fills scheduled_ and moves sequences between running_ and waiting_.
void EngineCore::ScheduleStep() {
  running_views_.clear();
  for (const SequencePtr& sequence : running_) {
    running_views_.push_back({.num_tokens = sequence->num_tokens(),
                              .num_computed = sequence->num_computed,
                              .num_blocks = static_cast<int32_t>(sequence->table.blocks.size()),
                              .num_releasable_blocks = cache_.NumReleasable(sequence->table),
                              // Nobody who comes now is to begin with what older weights made.
                              .prompt_id = cache_.IsCurrent(sequence->table) ? PromptId(*sequence) : 0});
  }
  int32_t num_seqs = 0, num_tokens = 0;  // scheduled so far
  while (true) {
    BuildWaitingViews(num_tokens);
    const Decision decision = Schedule({.running = running_views_,
                                        .waiting = waiting_views_,
                                        .num_free_blocks = cache_.num_available(),
                                        .num_scheduled_seqs = num_seqs,
                                        .num_scheduled_tokens = num_tokens,
                                        .limits = options_.limits});
    Preempt(static_cast<int32_t>(decision.preempted.size()));
    for (const ScheduledChunk& chunk : decision.running) Take(*running_[chunk.index], chunk.num_tokens);
    for (const ScheduledChunk& chunk : decision.admitted) {
      Sequence& sequence = *waiting_.begin()->second;
      if (chunk.num_tokens == 0) {
        if (!TakeFork(sequence)) return;
      } else {
        sequence.table = cache_.Admit(sequence.tokens);
        // More than the scheduler saw, where a sequence admitted just before published more of its prefix; less, where
        // room for that one was made by evicting some of it.
        sequence.num_computed = static_cast<int32_t>(sequence.table.blocks.size()) * cache_.block_size();
        CountPrompt(sequence);
        Take(sequence, std::min(chunk.num_tokens, sequence.num_tokens() - sequence.num_computed));
      }
      running_.push_back(std::move(waiting_.begin()->second));
      waiting_.erase(waiting_.begin());
    }
    // Where sequences that begin alike were admitted together, they took fewer tokens than planned: there is room for
    // more.
    if (decision.admitted.empty() || waiting_.empty()) return;
    running_views_.clear();
    num_seqs = static_cast<int32_t>(running_.size());
    num_tokens = 0;
    for (const Scheduled& scheduled : scheduled_) num_tokens += scheduled.num_tokens;
    const Scheduled& last = scheduled_.back();
    if (last.sequence->num_computed + last.num_tokens < last.sequence->num_tokens()) return;  // its prompt is not done
  }
}

// The sequences at the head of the queue that the step has room for; Match is not free, so no more than those.
void EngineCore::BuildWaitingViews(int32_t num_tokens) {
  waiting_views_.clear();
  const int32_t seats = options_.limits.max_num_seqs - static_cast<int32_t>(running_.size());
  int64_t tokens_left = options_.limits.max_batched_tokens - num_tokens;
  int64_t blocks_left = cache_.num_available();
  uint64_t previous_prompt = 0;
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (static_cast<int32_t>(waiting_views_.size()) >= seats) return;
    const Sequence& sequence = *it->second;
    const uint64_t prompt_id = PromptId(sequence);
    const bool scheduled = whole_prompts_.contains(prompt_id);
    if (scheduled || (prompt_id != 0 && prompt_id == previous_prompt)) {
      // It forks or has to wait: the one before it in the queue either comes to the prompt's end or spends the step.
      blocks_left -= BlocksForFork(sequence.num_tokens(), cache_.block_size());
      if (blocks_left < 0) return;
      waiting_views_.push_back(
          {.num_tokens = sequence.num_tokens(), .prompt_id = prompt_id, .prompt_scheduled = scheduled});
      continue;
    }
    if (tokens_left <= 0 || blocks_left <= 0) return;
    previous_prompt = prompt_id;
    const KvCache::Prefix prefix = cache_.Match(sequence.tokens);
    const SequenceView view = {.num_tokens = sequence.num_tokens(),
                               .num_computed = prefix.num_blocks * cache_.block_size(),
                               .num_blocks = prefix.num_blocks,
                               .num_idle_blocks = prefix.num_idle,
                               .prompt_id = prompt_id};
    tokens_left -= view.num_tokens - view.num_computed;
    blocks_left -= BlocksFor(view.num_tokens, cache_.block_size()) - view.num_blocks + view.num_idle_blocks;
    waiting_views_.push_back(view);
  }
}

void EngineCore::Preempt(int32_t count) {
  for (; count > 0; --count) {
    SequencePtr sequence = std::move(running_.back());
    running_.pop_back();
    cache_.Release(sequence->table);
    sequence->num_computed = 0;
    ++sequence->completion.preemptions;
    ++stats_.preemptions;
    Add(std::move(sequence));
  }
}

void EngineCore::Take(Sequence& sequence, int32_t num_tokens) {
  const int32_t end = sequence.num_computed + num_tokens;
  cache_.Grow(sequence.table, end);
  cache_.Publish(sequence.table, sequence.tokens, end);
  const uint64_t prompt_id = PromptId(sequence);
  if (prompt_id != 0 && end == sequence.num_tokens() && cache_.IsCurrent(sequence.table))
    whole_prompts_.emplace(prompt_id, static_cast<int32_t>(scheduled_.size()));
  scheduled_.push_back({&sequence, num_tokens});
}

bool EngineCore::TakeFork(Sequence& sequence) {
  const auto it = whole_prompts_.find(PromptId(sequence));
  if (it == whole_prompts_.end()) return false;
  const Sequence& first = *scheduled_[it->second].sequence;
  MANTA_CHECK(first.tokens == sequence.tokens);
  sequence.table = cache_.Fork(first.table, sequence.num_tokens());
  sequence.num_computed = sequence.num_tokens();
  CountPrompt(sequence);
  scheduled_.push_back({&sequence, 0, it->second});
  return true;
}

// Of a sequence just admitted, with num_computed tokens that need not be computed.
void EngineCore::CountPrompt(Sequence& sequence) {
  if (sequence.was_admitted) return;
  sequence.was_admitted = true;
  sequence.completion.cached_prompt_tokens = sequence.num_computed;
  stats_.prompt_tokens += sequence.num_prompt_tokens;
  stats_.cached_prompt_tokens += sequence.num_computed;
}

void EngineCore::Deliver(std::vector<absl::StatusOr<SampledToken>>& drawn) {
  bool any_ended = false;
  for (size_t i = 0; i < scheduled_.size(); ++i) {
    Sequence& sequence = *scheduled_[i].sequence;
    if (!drawn[i].ok()) {
      Finish(sequence, drawn[i].status());
      any_ended = true;
      continue;
    }
    sequence.num_computed += scheduled_[i].num_tokens;
    if (chunks_[i].options == nullptr) continue;
    const SampledToken& token = *drawn[i];
    sequence.tokens.push_back(token.token);
    ++stats_.generated_tokens;
    sequence.sink->OnToken({token.token, token.logprob, token.raw_logprob, stats_.weight_version});
    sequence.completion.reason = sequence.stop.Append(token.token);
    if (sequence.completion.reason == v1::FINISH_REASON_UNSPECIFIED) continue;
    sequence.completion.stop_string = sequence.stop.stop_string();
    Finish(sequence, absl::OkStatus());
    any_ended = true;
  }
  if (!any_ended) return;
  running_.erase(std::remove_if(running_.begin(), running_.end(),
                                [](const SequencePtr& sequence) { return sequence->num_computed < 0; }),
                 running_.end());
}

// Tells the sink and frees the blocks. The caller removes the sequence; num_computed -1 marks it for that.
void EngineCore::Finish(Sequence& sequence, const absl::Status& status) {
  cache_.Release(sequence.table);
  sequence.num_computed = -1;
  sequence.sink->OnFinish(status, sequence.completion);
}

void EngineCore::DropCache() {
  Preempt(static_cast<int32_t>(running_.size()));
  cache_.Invalidate();
}

void EngineCore::SetWeightVersion(uint64_t version, bool keep_prefix_cache) {
  stats_.weight_version = version;
  if (!keep_prefix_cache) cache_.Invalidate();
}

void EngineCore::EndAll(const absl::Status& status) {
  for (SequencePtr& sequence : running_) Finish(*sequence, status);
  for (auto& [key, sequence] : waiting_) Finish(*sequence, status);
  running_.clear();
  waiting_.clear();
}

EngineStats EngineCore::stats() const {
  EngineStats stats = stats_;
  stats.num_running = static_cast<int64_t>(running_.size());
  stats.num_waiting = static_cast<int64_t>(waiting_.size());
  stats.num_blocks_free = cache_.num_available();
  stats.num_blocks = cache_.num_blocks();
  return stats;
}

}  // namespace manta::gen
