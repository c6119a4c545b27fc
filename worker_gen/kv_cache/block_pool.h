// Reference-counted blocks of the paged KV cache, by number.
//
// A block is free (in the pool, to be had by Take), held (reference count of at least 1), or idle: held by nobody but
// kept because the prefix cache knows what is in it. The pool does the counting; which idle block goes when a new one
// is needed is PrefixCache's to say. Not thread-safe: one engine thread owns it. Misuse is a MANTA_CHECK.
#pragma once

#include <cstdint>
#include <vector>

namespace manta::gen {

using BlockId = int32_t;

class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);

  bool empty() const { return free_.empty(); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_blocks() const { return static_cast<int32_t>(references_.size()); }
  int32_t references(BlockId block) const { return references_[block]; }

  // A free block, now held once. The pool must not be empty.
  BlockId Take();
  // One more holder, of a held block or an idle one.
  void Reference(BlockId block) { ++references_[block]; }
  // One holder less; returns how many are left. At 0 the block is idle until Free is called.
  int32_t Unreference(BlockId block);
  // Gives an idle block back.
  void Free(BlockId block);

 private:
  std::vector<int32_t> references_;  // [num_blocks]
  std::vector<BlockId> free_;        // a stack: the block freed last is warm
};

}  // namespace manta::gen
