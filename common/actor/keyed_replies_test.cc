#include "common/actor/keyed_replies.h"

#include "gtest/gtest.h"
#include "manta/v1/trainer.pb.h"

namespace manta::actor {
namespace {

class KeyedRepliesTest : public testing::Test {
 protected:
  // Runs a call that counts, under `key`, of a request with these tokens.
  absl::Status Run(const std::string& key, double tokens, bool kept_only = false) {
    v1::TrainRequest request;
    request.set_global_valid_toks(tokens);
    (*request.mutable_clipped_pg()) = {};
    reply_.Clear();
    return replies_.Run({key, kept_only}, request, &reply_, [&] {
      reply_.set_step(++runs_);
      return fails_ ? absl::OutOfRangeError("not finite") : absl::OkStatus();
    });
  }

  KeyedReplies replies_{3};
  v1::TrainReply reply_;
  int runs_ = 0;
  bool fails_ = false;
};

TEST_F(KeyedRepliesTest, WhatHasRunIsNotRunAgain) {
  EXPECT_TRUE(Run("step-1", 5).ok());
  EXPECT_TRUE(Run("step-2", 5).ok());
  EXPECT_TRUE(Run("step-1", 5).ok());
  EXPECT_EQ(reply_.step(), 1);
  EXPECT_EQ(runs_, 2);
  EXPECT_TRUE(Run("step-2", 0, /*kept_only=*/true).ok());
  EXPECT_EQ(reply_.step(), 2);
  EXPECT_EQ(Run("step-3", 0, /*kept_only=*/true).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(runs_, 2);
}

TEST_F(KeyedRepliesTest, WithoutAKeyEveryCallRuns) {
  EXPECT_TRUE(Run("", 5).ok());
  EXPECT_TRUE(Run("", 5).ok());
  EXPECT_EQ(runs_, 2);
}

TEST_F(KeyedRepliesTest, AnErrorIsAResultToo) {
  fails_ = true;
  EXPECT_EQ(Run("step-1", 5).code(), absl::StatusCode::kOutOfRange);
  fails_ = false;
  EXPECT_EQ(Run("step-1", 5).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(runs_, 1);
}

TEST_F(KeyedRepliesTest, AKeyMeansOneRequest) {
  EXPECT_TRUE(Run("step-1", 5).ok());
  EXPECT_EQ(Run("step-1", 6).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runs_, 1);
}

TEST_F(KeyedRepliesTest, TheOldestIsForgotten) {
  for (const char* key : {"a", "b", "c", "d"}) EXPECT_TRUE(Run(key, 1).ok());
  EXPECT_EQ(Run("a", 1, /*kept_only=*/true).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Run("b", 1, /*kept_only=*/true).ok());
}

}  // namespace
}  // namespace manta::actor
