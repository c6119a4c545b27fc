#include "worker_gen/kv_cache/block_pool.h"

#include "common/base/check.h"

namespace manta::gen {

BlockPool::BlockPool(int32_t num_blocks) : references_(num_blocks, 0) {
  free_.reserve(num_blocks);
  for (BlockId block = num_blocks; block-- > 0;) free_.push_back(block);  // block 0 is handed out first
}

BlockId BlockPool::Take() {
  MANTA_CHECK(!free_.empty());
  const BlockId block = free_.back();
  free_.pop_back();
  references_[block] = 1;
  return block;
}

int32_t BlockPool::Unreference(BlockId block) {
  MANTA_CHECK(references_[block] > 0) << "block " << block;
  return --references_[block];
}

void BlockPool::Free(BlockId block) {
  MANTA_CHECK(references_[block] == 0) << "block " << block;
  free_.push_back(block);
}

}  // namespace manta::gen
