#include "controller/journal/write_queue.h"

#include <thread>

#include "gtest/gtest.h"

namespace manta::journal {
namespace {

void Put(WriteQueue& queue, uint64_t sequence, std::string key, std::optional<std::string> value, uint8_t kind = 1) {
  Batch batch;
  batch.Write({kind, std::move(key)}, std::move(value));
  batch.through = sequence;
  queue.Add(std::move(batch));
}

TEST(WriteQueue, TheLastWriteOfAKeyIsTaken) {
  WriteQueue queue;
  Put(queue, 1, "a", "old");
  Put(queue, 2, "a", "another kind", 2);
  Put(queue, 3, "a", std::nullopt);
  Batch batch;
  ASSERT_TRUE(queue.Take(&batch, absl::ZeroDuration()));
  EXPECT_EQ(batch.through, 3u);
  ASSERT_EQ(batch.rows.size(), 2u);
  EXPECT_FALSE(batch.rows.at({1, "a"}).has_value());
  EXPECT_EQ(batch.rows.at({2, "a"}), "another kind");
  queue.Committed(&batch);
  EXPECT_EQ(queue.bytes(), 0u);
}

TEST(WriteQueue, WhatAFailedCommitLeftIsOverlaidWithWhatCameSince) {
  WriteQueue queue;
  Put(queue, 1, "a", "1");
  Put(queue, 2, "b", "1");
  Batch batch;
  ASSERT_TRUE(queue.Take(&batch, absl::ZeroDuration()));
  Put(queue, 3, "b", "2");
  Put(queue, 4, "c", "2");
  ASSERT_TRUE(queue.Take(&batch, absl::ZeroDuration()));
  EXPECT_EQ(batch.through, 4u);
  EXPECT_EQ(batch.rows.at({1, "a"}), "1");
  EXPECT_EQ(batch.rows.at({1, "b"}), "2");
  EXPECT_EQ(batch.rows.at({1, "c"}), "2");
}

TEST(WriteQueue, IsBoundedByTheStateThatIsAlive) {
  WriteQueue queue;
  Batch batch;
  for (int i = 0; i < 10000; ++i) {
    Put(queue, 1 + static_cast<uint64_t>(i), "key " + std::to_string(i % 10), std::string(100, 'x'));
    if (i % 100 == 50) queue.Take(&batch, absl::ZeroDuration());  // a disk that refuses
  }
  EXPECT_LT(queue.bytes(), 2u * 10 * 200);
}

TEST(WriteQueue, StopLetsTheRestBeTaken) {
  WriteQueue queue;
  Put(queue, 1, "a", "1");
  queue.Stop();
  Batch batch;
  EXPECT_TRUE(queue.Take(&batch, absl::ZeroDuration()));
  queue.Committed(&batch);
  EXPECT_FALSE(queue.Take(&batch, absl::ZeroDuration()));
}

TEST(WriteQueue, TakeWaitsForAnotherThread) {
  WriteQueue queue;
  uint64_t seen = 0;
  std::thread writer([&] {
    Batch batch;
    while (queue.Take(&batch, absl::ZeroDuration())) {
      EXPECT_GT(batch.through, seen);
      seen = batch.through;
      queue.Committed(&batch);
    }
  });
  for (uint64_t i = 1; i <= 20000; ++i) Put(queue, i, std::to_string(i % 100), "x");
  queue.Stop();
  writer.join();
  EXPECT_EQ(seen, 20000u);
}

}  // namespace
}  // namespace manta::journal
