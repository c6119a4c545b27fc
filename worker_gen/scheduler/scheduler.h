// Which sequences compute how many tokens in the next step.
//
// There is no prefill or decode phase. A sequence has tokens that it knows and a prefix of them that is in the cache;
// a step gives each sequence some of the tokens in between, within a budget. A long prompt is thereby computed in
// chunks next to the decoding of others, and a sequence whose known tokens are all computed gets its next token
// sampled. Running sequences come first, in the order in which they were admitted, then waiting ones, in the order of
// the queue. When blocks run out, the sequence admitted last gives up its own and is recomputed later (last in, first
// out).
//
// The samples of one prompt compute it once: where one of them is scheduled up to the prompt's end, those of them that
// are next in the queue fork from it. They get a seat and a block for their own tail, but no tokens to compute.
//
// Schedule is a pure function: it touches neither clock nor cache, so that it can be tested with any state whatever.
// The engine carries the decision out. Thread-safe; nothing is owned.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace manta::gen {

// A sequence as the scheduler sees it.
struct SequenceView {
  int32_t num_tokens = 0;             // known: prompt and what was generated so far
  int32_t num_computed = 0;           // of these, in the cache; of a waiting sequence: what the prefix cache would give
  int32_t num_blocks = 0;             // held (running), or found in the prefix cache (waiting)
  int32_t num_releasable_blocks = 0;  // running: blocks that nobody else holds, free once it is preempted
  int32_t num_idle_blocks = 0;  // waiting: of the blocks found, those that nobody holds and that count as free now
  // Sequences with the same number have the same tokens now and may share what is computed for them; 0: like no other.
  uint64_t prompt_id = 0;
  bool prompt_scheduled = false;  // waiting: an earlier call for this step scheduled its prompt to the last token
};

struct Limits {
  int32_t max_num_seqs = 256;         // sequences in one step
  int32_t max_batched_tokens = 2048;  // tokens in one step
  int32_t block_size = 16;            // tokens a block
};

struct State {
  absl::Span<const SequenceView> running;  // in the order of admission: the last is preempted first
  absl::Span<const SequenceView> waiting;  // in the order of the queue
  int64_t num_free_blocks = 0;             // including cached ones that nobody holds
  int32_t num_scheduled_seqs = 0;          // sequences and tokens of this step that an earlier call decided on
  int32_t num_scheduled_tokens = 0;
  Limits limits;
};

struct ScheduledChunk {
  int32_t index = 0;  // into State.running or State.waiting
  // To compute, from num_computed on; at least 1. 0, of an admitted one: it forks from the sequence with its prompt_id
  // that this step computes to the last token, which is running or admitted before it.
  int32_t num_tokens = 0;
};

struct Decision {
  std::vector<ScheduledChunk> running;   // ascending by index
  std::vector<ScheduledChunk> admitted;  // a prefix of the queue, in its order
  std::vector<int32_t> preempted;        // indices into State.running, in the order of preemption: descending
};

// Guarantees: budgets are kept; blocks never run out when the decision is applied (preemptions first); nobody is
// admitted in a call that preempts; no running sequence before a preempted one is skipped for want of blocks. If any
// sequence is there and the first in line fits into the cache on its own, something is scheduled or the step after it
// will.
Decision Schedule(const State& state);

// Blocks that a fork of `num_tokens` tokens does not share: the last one, where tokens of its own will come into it.
inline int32_t BlocksForFork(int32_t num_tokens, int32_t block_size) {
  return num_tokens % block_size == 0 ? 0 : 1;
}

// Blocks that `num_tokens` tokens fill, the last perhaps in part.
inline int32_t BlocksFor(int32_t num_tokens, int32_t block_size) {
  return (num_tokens + block_size - 1) / block_size;
}

}  // namespace manta::gen
