#include "worker_gen/kv_cache/kv_cache.h"

#include <algorithm>

#include "common/base/check.h"

namespace manta::gen {

KvCache::KvCache(int32_t num_blocks, int32_t block_size, bool prefix_cache)
    : block_size_(block_size), prefix_cache_(prefix_cache), pool_(num_blocks), prefixes_(num_blocks, block_size) {}

KvCache::Prefix KvCache::Match(absl::Span<const int32_t> tokens) const {
  Prefix prefix;
  if (!prefix_cache_ || tokens.empty()) return prefix;
  const int32_t most = (static_cast<int32_t>(tokens.size()) - 1) / block_size_;
  BlockId node = PrefixCache::kRoot;
  while (prefix.num_blocks < most) {
    node = prefixes_.Find(node, tokens.subspan(static_cast<size_t>(prefix.num_blocks) * block_size_, block_size_));
    if (node == PrefixCache::kNone) break;
    ++prefix.num_blocks;
    if (pool_.references(node) == 0) ++prefix.num_idle;
  }
  return prefix;
}

BlockTable KvCache::Admit(absl::Span<const int32_t> tokens) {
  BlockTable table;
  table.generation = generation_;
  const int32_t num_shared = Match(tokens).num_blocks;
  BlockId node = PrefixCache::kRoot;
  for (int32_t i = 0; i < num_shared; ++i) {
    node = prefixes_.Find(node, tokens.subspan(static_cast<size_t>(i) * block_size_, block_size_));
    if (pool_.references(node) == 0) prefixes_.MarkHeld(node);
    pool_.Reference(node);
    table.blocks.push_back(node);
  }
  table.num_published = num_shared;
  return table;
}

BlockTable KvCache::Fork(const BlockTable& table, int32_t num_tokens) {
  const int32_t num_shared = num_tokens / block_size_;
  MANTA_CHECK(IsCurrent(table) && num_tokens <= static_cast<int64_t>(table.blocks.size()) * block_size_);
  BlockTable fork;
  fork.generation = table.generation;
  fork.num_published = std::min(table.num_published, num_shared);
  fork.blocks.assign(table.blocks.begin(), table.blocks.begin() + num_shared);
  for (BlockId block : fork.blocks) pool_.Reference(block);
  Grow(fork, num_tokens);
  return fork;
}

void KvCache::Grow(BlockTable& table, int32_t num_tokens) {
  while (static_cast<int64_t>(table.blocks.size()) * block_size_ < num_tokens) {
    if (pool_.empty()) pool_.Free(prefixes_.Evict());
    table.blocks.push_back(pool_.Take());
  }
}

void KvCache::Publish(BlockTable& table, absl::Span<const int32_t> tokens, int32_t num_tokens) {
  if (!Shares(table)) return;
  for (; (table.num_published + 1) * block_size_ <= num_tokens; ++table.num_published) {
    const int32_t i = table.num_published;
    const BlockId parent = i == 0 ? PrefixCache::kRoot : table.blocks[i - 1];
    const auto block_tokens = tokens.subspan(static_cast<size_t>(i) * block_size_, block_size_);
    const BlockId same = prefixes_.Find(parent, block_tokens);
    if (same == PrefixCache::kNone) {
      prefixes_.Insert(parent, block_tokens, table.blocks[i]);
    } else {
      if (pool_.references(same) == 0) prefixes_.MarkHeld(same);
      pool_.Reference(same);
      Drop(table.blocks[i]);
      table.blocks[i] = same;
    }
  }
}

int32_t KvCache::NumReleasable(const BlockTable& table) const {
  int32_t count = 0;
  for (BlockId block : table.blocks) count += pool_.references(block) == 1;
  return count;
}

void KvCache::Release(BlockTable& table) {
  for (size_t i = table.blocks.size(); i-- > 0;) Drop(table.blocks[i]);  // the last first: see PrefixCache
  table = BlockTable{};
}

void KvCache::Drop(BlockId block) {
  if (pool_.Unreference(block) > 0) return;
  if (prefixes_.Contains(block)) {
    prefixes_.MarkIdle(block);
  } else {
    pool_.Free(block);
  }
}

void KvCache::Invalidate() {
  ++generation_;
  for (BlockId block : prefixes_.Clear()) pool_.Free(block);
}

}  // namespace manta::gen
