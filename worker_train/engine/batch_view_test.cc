#include "worker_train/engine/batch_view.h"

#include "gtest/gtest.h"

namespace manta::train {
namespace {

template <typename T>
std::string Bytes(std::vector<T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

v1::PackedBatch Batch() {
  v1::PackedBatch batch;
  batch.set_lengths(Bytes<int32_t>({2, 3, 1}));
  batch.set_tokens(Bytes<int32_t>({1, 2, 3, 4, 5, 6}));
  batch.set_token_mask(Bytes<float>({0, 1, 0, 1, 1, 0}));
  batch.set_sample_mask(Bytes<float>({1, 0, 1}));
  for (int size : {2, 0, 1}) batch.add_microbatch_sizes(size);
  return batch;
}

TEST(BatchViewTest, CutsMicrobatches) {
  const v1::PackedBatch batch = Batch();
  const auto views = ViewMicrobatches(batch);
  ASSERT_TRUE(views.ok()) << views.status();
  ASSERT_EQ(views->size(), 3u);
  EXPECT_EQ((*views)[0].tokens.size(), 5u);
  EXPECT_EQ((*views)[1].tokens.size(), 0u);
  EXPECT_EQ((*views)[2].tokens[0], 6);
  EXPECT_EQ((*views)[2].first_token, 5u);
  EXPECT_EQ((*views)[2].sample_mask[0], 1);
  EXPECT_TRUE((*views)[0].rewards.empty());
}

TEST(BatchViewTest, NamesWhatDoesNotFit) {
  const auto error = [](const v1::PackedBatch& batch) {
    return std::string(ViewMicrobatches(batch).status().message());
  };
  v1::PackedBatch batch = Batch();
  batch.set_tokens(Bytes<int32_t>({1, 2}));
  EXPECT_NE(error(batch).find("batch.tokens has 8 bytes; 6 elements"), std::string::npos);
  batch = Batch();
  batch.set_lengths(Bytes<int32_t>({2, 0, 4}));
  EXPECT_NE(error(batch).find("lengths[1] is 0"), std::string::npos);
  batch = Batch();
  batch.add_microbatch_sizes(1);
  EXPECT_NE(error(batch).find("microbatch_sizes"), std::string::npos);
  batch = Batch();
  batch.mutable_microbatch_sizes()->RemoveLast();
  EXPECT_NE(error(batch).find("add up to 2"), std::string::npos);
}

}  // namespace
}  // namespace manta::train
