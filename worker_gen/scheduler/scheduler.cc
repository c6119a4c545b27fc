#include "worker_gen/scheduler/scheduler.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace manta::gen {
namespace {

// What is left of the step.
struct Budget {
  int32_t seqs;
  int32_t tokens;
  int64_t blocks;
};

// Of the prompts that this step computes to the last token.
using PromptIds = absl::flat_hash_set<uint64_t>;

void NotePrompt(const SequenceView& sequence, int32_t num_tokens, PromptIds& whole) {
  if (sequence.prompt_id != 0 && sequence.num_computed + num_tokens == sequence.num_tokens)
    whole.insert(sequence.prompt_id);
}

void ScheduleRunning(const State& state, Budget& budget, PromptIds& whole, Decision& decision) {
  int32_t end = static_cast<int32_t>(state.running.size());  // everything from here on is preempted
  for (int32_t i = 0; i < end && budget.tokens > 0 && budget.seqs > 0; ++i) {
    const SequenceView& sequence = state.running[i];
    const int32_t num_tokens = std::min(sequence.num_tokens - sequence.num_computed, budget.tokens);
    if (num_tokens <= 0) continue;
    const int32_t needed = BlocksFor(sequence.num_computed + num_tokens, state.limits.block_size) - sequence.num_blocks;
    while (needed > budget.blocks && end > i) {
      --end;
      decision.preempted.push_back(end);
      budget.blocks += state.running[end].num_releasable_blocks;
    }
    if (end == i) break;  // it was itself the last in
    budget.blocks -= std::max(needed, 0);
    budget.tokens -= num_tokens;
    budget.seqs -= 1;
    decision.running.push_back({i, num_tokens});
    NotePrompt(sequence, num_tokens, whole);
  }
}

void Admit(const State& state, Budget& budget, PromptIds& whole, Decision& decision) {
  for (int32_t i = 0; i < static_cast<int32_t>(state.waiting.size()); ++i) {
    if (budget.seqs <= 0) return;
    const SequenceView& sequence = state.waiting[i];
    if (sequence.prompt_scheduled || whole.contains(sequence.prompt_id)) {
      const int32_t needed = BlocksForFork(sequence.num_tokens, state.limits.block_size);
      if (needed > budget.blocks) return;
      budget.blocks -= needed;
      budget.seqs -= 1;
      decision.admitted.push_back({i, 0});
      continue;
    }
    if (budget.tokens <= 0) return;
    // All that it knows must fit, though a chunk of it may be all that is computed now: a sequence admitted only to be
    // preempted half-way through its prompt would have been computed for nothing.
    const int64_t needed =
        BlocksFor(sequence.num_tokens, state.limits.block_size) - sequence.num_blocks + sequence.num_idle_blocks;
    if (needed > budget.blocks) return;  // nobody overtakes: the queue's order is kept
    const int32_t num_tokens = std::min(sequence.num_tokens - sequence.num_computed, budget.tokens);
    budget.blocks -= needed;
    budget.tokens -= num_tokens;
    budget.seqs -= 1;
    decision.admitted.push_back({i, num_tokens});
    NotePrompt(sequence, num_tokens, whole);
  }
}

}  // namespace

Decision Schedule(const State& state) {
  Decision decision;
  Budget budget{state.limits.max_num_seqs - state.num_scheduled_seqs,
                state.limits.max_batched_tokens - state.num_scheduled_tokens, state.num_free_blocks};
  PromptIds whole;
  ScheduleRunning(state, budget, whole, decision);
  if (!decision.preempted.empty()) return decision;
  // Running sequences that a spent budget left out keep their seat, and whoever is half-way through its prompt the
  // blocks for the rest of it.
  budget.seqs = state.limits.max_num_seqs - state.num_scheduled_seqs - static_cast<int32_t>(state.running.size());
  budget.blocks = state.num_free_blocks;
  for (const SequenceView& sequence : state.running) {
    budget.blocks -= std::max(BlocksFor(sequence.num_tokens, state.limits.block_size) - sequence.num_blocks, 0);
  }
  Admit(state, budget, whole, decision);
  return decision;
}

}  // namespace manta::gen
