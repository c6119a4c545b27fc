// The prefix cache: a trie whose nodes are full blocks, so that sequences which begin alike share their keys and
// values.
//
// A node is named by the number of its block; its key is (parent node, the block's tokens). The tokens themselves are
// compared, not only their hash: a collision can never hand a sequence somebody else's keys and values. Nodes that no
// sequence holds are idle and wait in an LRU list to be evicted.
//
// Whoever holds a node holds its ancestors too, and sequences give their blocks up from the last to the first. So an
// idle node's descendants are idle and stand before it in the list, and what is evicted is always a leaf.
//
// Not thread-safe: one engine thread owns it. Memory is bounded by num_blocks * block_size tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "worker_gen/kv_cache/block_pool.h"

namespace manta::gen {

class PrefixCache {
 public:
  static constexpr BlockId kRoot = -1;
  static constexpr BlockId kNone = -2;

  PrefixCache(int32_t num_blocks, int32_t block_size);

  // The child of `parent` that holds `tokens` ([block_size]), or kNone.
  BlockId Find(BlockId parent, absl::Span<const int32_t> tokens) const;
  // Makes `block` the child of `parent` for `tokens`; there must be none yet.
  void Insert(BlockId parent, absl::Span<const int32_t> tokens, BlockId block);
  bool Contains(BlockId block) const { return nodes_[block].parent != kNone; }

  // A node that nobody holds any more, respectively that somebody holds again.
  void MarkIdle(BlockId block);
  void MarkHeld(BlockId block);
  int32_t num_idle() const { return num_idle_; }
  int32_t num_nodes() const { return static_cast<int32_t>(children_.size()); }

  // Removes the node idle for longest and returns its block. There must be an idle one.
  BlockId Evict();
  // Forgets everything; returns the blocks that were idle. Blocks still held are simply not nodes any more.
  std::vector<BlockId> Clear();

 private:
  struct Key {
    BlockId parent;
    absl::Span<const int32_t> tokens;  // in tokens_, or a caller's for the time of a look-up
    friend bool operator==(const Key& a, const Key& b) { return a.parent == b.parent && a.tokens == b.tokens; }
    template <typename H>
    friend H AbslHashValue(H state, const Key& key) {
      return H::combine(std::move(state), key.parent, key.tokens);
    }
  };
  struct Node {
    BlockId parent = kNone;  // kNone: not a node
    bool idle = false;
    BlockId older = kNone, newer = kNone;  // in the LRU list, where idle
  };

  absl::Span<const int32_t> TokensOf(BlockId block) const {
    return absl::MakeConstSpan(tokens_).subspan(static_cast<size_t>(block) * block_size_, block_size_);
  }
  void Unlink(BlockId block);

  const int32_t block_size_;
  std::vector<int32_t> tokens_;  // [num_blocks, block_size]
  std::vector<Node> nodes_;      // [num_blocks]
  absl::flat_hash_map<Key, BlockId> children_;
  BlockId oldest_ = kNone, newest_ = kNone;
  int32_t num_idle_ = 0;
};

}  // namespace manta::gen
