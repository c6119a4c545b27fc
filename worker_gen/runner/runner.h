// What computes a step: takes pieces of sequences, writes their keys and values into the paged cache, and draws a token
// for every sequence whose last known token is among them.
//
// In each layer the keys and values of all pieces are written before any is attended to: pieces of one step may share
// blocks (kv_cache/kv_cache.h). A piece without tokens forks: its sequence has the same tokens as that of an earlier
// piece, draws from that one's last row, and after the step has in its last block what the other has in its. A drawn
// token and its log-probabilities depend on the sequence's own tokens and options only, not on what else is in the
// step.
//
// An interface because the engine is tested against a fake. Not thread-safe: the engine thread calls it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker_gen/sampling/sampler.h"
#include "worker_gen/sampling/sampling_options.h"

namespace manta::gen {

// A piece of a sequence, as the engine lends it for the time of a call.
struct SequenceChunk {
  absl::Span<const int32_t> tokens;  // to compute, at positions num_computed, num_computed + 1, ...
  int32_t num_computed = 0;          // tokens before them, in the cache already; of a fork: all
  absl::Span<const int32_t> blocks;  // of the whole sequence: position p is in blocks[p / block_size]
  // Null where no token is drawn: more of the prompt is to come.
  const SamplingOptions* options = nullptr;
  int64_t position = 0;  // how many tokens the sequence has drawn before
  absl::Span<const int32_t> banned;
  // Of a fork: the index of the piece, before it and with tokens, that ends with the sequence's last token. The last
  // block is the fork's own unless that token fills it.
  int32_t fork_of = -1;
};

class Runner {
 public:
  virtual ~Runner() = default;
  // `drawn` [chunks.size()] is filled where options are given; one sequence's failure (logits that are no numbers) is
  // in its place there. A returned error is of the step as a whole: nothing in the cache that it was to write can be
  // relied on.
  virtual absl::Status Step(absl::Span<const SequenceChunk> chunks, absl::Span<absl::StatusOr<SampledToken>> drawn) = 0;
};

}  // namespace manta::gen
