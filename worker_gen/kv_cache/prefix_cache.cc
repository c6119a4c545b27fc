#include "worker_gen/kv_cache/prefix_cache.h"

#include <algorithm>

#include "common/base/check.h"

namespace manta::gen {

PrefixCache::PrefixCache(int32_t num_blocks, int32_t block_size)
    : block_size_(block_size), tokens_(static_cast<size_t>(num_blocks) * block_size), nodes_(num_blocks) {}

BlockId PrefixCache::Find(BlockId parent, absl::Span<const int32_t> tokens) const {
  const auto it = children_.find(Key{parent, tokens});
  return it == children_.end() ? kNone : it->second;
}

void PrefixCache::Insert(BlockId parent, absl::Span<const int32_t> tokens, BlockId block) {
  MANTA_CHECK(static_cast<int32_t>(tokens.size()) == block_size_ && !Contains(block));
  MANTA_CHECK(parent == kRoot || Contains(parent));
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + static_cast<int64_t>(block) * block_size_);
  nodes_[block] = Node{.parent = parent};
  MANTA_CHECK(children_.emplace(Key{parent, TokensOf(block)}, block).second);
}

void PrefixCache::MarkIdle(BlockId block) {
  Node& node = nodes_[block];
  MANTA_CHECK(Contains(block) && !node.idle);
  node.idle = true;
  node.older = newest_;
  node.newer = kNone;
  (newest_ == kNone ? oldest_ : nodes_[newest_].newer) = block;
  newest_ = block;
  ++num_idle_;
}

void PrefixCache::MarkHeld(BlockId block) {
  MANTA_CHECK(nodes_[block].idle);
  Unlink(block);
}

void PrefixCache::Unlink(BlockId block) {
  Node& node = nodes_[block];
  (node.older == kNone ? oldest_ : nodes_[node.older].newer) = node.newer;
  (node.newer == kNone ? newest_ : nodes_[node.newer].older) = node.older;
  node.idle = false;
  --num_idle_;
}

BlockId PrefixCache::Evict() {
  MANTA_CHECK(oldest_ != kNone);
  const BlockId block = oldest_;
  Unlink(block);
  children_.erase(Key{nodes_[block].parent, TokensOf(block)});
  nodes_[block] = Node{};
  return block;
}

std::vector<BlockId> PrefixCache::Clear() {
  std::vector<BlockId> idle;
  idle.reserve(num_idle_);
  while (oldest_ != kNone) idle.push_back(Evict());
  children_.clear();
  std::fill(nodes_.begin(), nodes_.end(), Node{});
  return idle;
}

}  // namespace manta::gen
