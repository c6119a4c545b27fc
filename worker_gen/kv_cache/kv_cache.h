// Which blocks of the paged KV cache a sequence has, and which it shares.
//
// Storage itself (keys and values) belongs to the runner; this is the book-keeping: BlockPool counts references,
// PrefixCache knows what full blocks hold. A sequence's first full blocks may be shared with any sequence that begins
// with the same tokens (the samples of one prompt among them); its last, partly filled block is always its own, so
// nothing that is shared is ever written twice: computed anew, or for a fork copied.
//
// Blocks are made known to the prefix cache (Publish) before the step that computes them, so that sequences of one step
// share too: in each layer the runner writes the keys and values of the whole step before anybody attends to them.
//
// Not thread-safe: one engine thread owns it. A table must be released before it goes. Misuse is a MANTA_CHECK.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker_gen/kv_cache/block_pool.h"
#include "worker_gen/kv_cache/prefix_cache.h"

namespace manta::gen {

// A sequence's blocks, in the order of its tokens.
struct BlockTable {
  std::vector<BlockId> blocks;
  int32_t num_published = 0;  // of the first blocks: nodes of the prefix cache
  uint64_t generation = 0;    // of the prefix cache when the sequence was admitted: see Invalidate
};

class KvCache {
 public:
  struct Prefix {
    int32_t num_blocks = 0;
    int32_t num_idle = 0;  // of these, held by nobody: they count as free until they are taken
  };

  KvCache(int32_t num_blocks, int32_t block_size, bool prefix_cache);

  // Blocks that Grow can give: free ones and idle ones.
  int32_t num_available() const { return pool_.num_free() + prefixes_.num_idle(); }
  int32_t num_blocks() const { return pool_.num_blocks(); }
  int32_t block_size() const { return block_size_; }
  int32_t num_cached() const { return prefixes_.num_nodes(); }

  // The longest cached prefix of `tokens` in whole blocks. The last token is always left to compute: its logits are
  // wanted.
  Prefix Match(absl::Span<const int32_t> tokens) const;
  // A table that begins with that prefix.
  BlockTable Admit(absl::Span<const int32_t> tokens);
  // A table for another sequence that begins with the first `num_tokens` tokens of this one's, with or without prefix
  // cache: shares the full blocks and takes a block for the rest, where there is one; enough must be available. The
  // caller has what the rest holds copied. The table must be current.
  BlockTable Fork(const BlockTable& table, int32_t num_tokens);
  // Whether nothing was invalidated since the table's sequence was admitted.
  bool IsCurrent(const BlockTable& table) const { return table.generation == generation_; }
  // Adds blocks until `num_tokens` tokens have room, evicting idle ones where need be; enough must be available.
  void Grow(BlockTable& table, int32_t num_tokens);
  // Makes the full blocks among the first `num_tokens` tokens known. Where another sequence published the same tokens
  // in the meantime, its block replaces this one's in the table (what they hold is the same).
  void Publish(BlockTable& table, absl::Span<const int32_t> tokens, int32_t num_tokens);
  // Blocks that Release would make available: those that nobody else holds.
  int32_t NumReleasable(const BlockTable& table) const;
  void Release(BlockTable& table);

  // No block that is in the cache now is matched any more, nor any that a sequence admitted before publishes later:
  // they stem from older weights. Sequences keep what they hold.
  void Invalidate();

 private:
  bool Shares(const BlockTable& table) const { return prefix_cache_ && IsCurrent(table); }
  void Drop(BlockId block);

  const int32_t block_size_;
  const bool prefix_cache_;
  uint64_t generation_ = 1;
  BlockPool pool_;
  PrefixCache prefixes_;
};

}  // namespace manta::gen
