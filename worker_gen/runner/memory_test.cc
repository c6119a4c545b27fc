#include "worker_gen/runner/memory.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::gen {
namespace {

TEST(MemoryTest, ChoosesWhatFitsAndIsOfUse) {
  CacheRequest request{.memory_fraction = 0.5, .block_bytes = 1000, .blocks_per_sequence = 10, .max_num_seqs = 4};
  EXPECT_EQ(*ChooseNumBlocks(request, 1'000'000), 40);  // more could never be used
  EXPECT_EQ(*ChooseNumBlocks(request, 60'000), 30);
  EXPECT_EQ(ChooseNumBlocks(request, 19'000).status().code(), absl::StatusCode::kResourceExhausted);
  request.num_blocks = 7;
  EXPECT_EQ(*ChooseNumBlocks(request, 0), 7);
  request.memory_fraction = 1.5;
  EXPECT_EQ(ChooseNumBlocks(request, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MemoryTest, TheHostHasSomeMemory) {
  EXPECT_GT(AvailableHostBytes(), 1 << 20);
}

}  // namespace
}  // namespace manta::gen
