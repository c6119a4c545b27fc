#include "controller/algorithms/continuation.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

using ::testing::HasSubstr;

v1::TrainerState Rank(uint64_t begun, uint64_t ended) {
  v1::TrainerState state;
  state.set_configured(true);
  state.set_begun(begun);
  state.set_ended(ended);
  return state;
}

v1::TrainerState Trained(int64_t step, int part = 1, int parts = 1) {
  v1::TrainerState state = Rank(5, 5);
  v1::StepNote note;
  note.set_step(step);
  note.set_part(part);
  note.set_parts(parts);
  note.set_epoch(1);
  note.set_position(48);
  note.set_weight_version(static_cast<uint64_t>(step) + 1);
  state.set_step(step);
  state.set_trained_key("run/train/" + std::to_string(step));
  state.set_trained_note(note.SerializeAsString());
  return state;
}

v1::TrainerState Running(const std::string& key) {
  v1::TrainerState state = Rank(6, 5);
  state.set_ended_key("run/train/7.1");
  state.set_running(key);
  return state;
}
v1::TrainerState Idle(const std::string& ended) {
  v1::TrainerState state = Rank(6, 6);  // it has had more calls, some of them alone
  state.set_ended_key(ended);
  return state;
}

TEST(ContinuationTest, RanksAreAtRestOrWorkOrOneHasNotHadTheCall) {
  EXPECT_EQ(RestOf({}), Rest::kQuiet);
  EXPECT_EQ(RestOf({Rank(3, 3), Rank(3, 3)}), Rest::kQuiet);
  EXPECT_EQ(RestOf({Rank(3, 3), Rank(2, 2)}), Rest::kQuiet);  // a call of one rank alone, which has ended
  EXPECT_EQ(RestOf({Running("run/train/8.1"), Running("run/train/8.1")}), Rest::kBusy);
  EXPECT_EQ(RestOf({Running("run/train/8.1"), Idle("run/train/8.1")}), Rest::kBusy);  // the second is done already
  EXPECT_EQ(RestOf({Running("run/train/8.1"), Idle("run/train/7.1")}), Rest::kUneven);
  EXPECT_EQ(RestOf({Idle("run/train/7.1"), Running("run/train/8.1")}), Rest::kUneven);
  EXPECT_EQ(RestOf({Running("run/publish/8"), Idle("run/train/7.1")}), Rest::kBusy);
  EXPECT_EQ(RestOf({Running("run/save/7@123"), Idle("run/publish/8")}), Rest::kUneven);
  EXPECT_EQ(RestOf({Running("run/save/7@123"), Idle("run/save/7@123")}), Rest::kBusy);  // it writes yet
  EXPECT_EQ(RestOf({Running(""), Idle("run/train/7.1")}), Rest::kPartly);  // an evaluation, say
  EXPECT_EQ(RestOf({Running(""), Running("")}), Rest::kBusy);
}

TEST(ContinuationTest, TheNoteIsTheOneThatAllRanksHave) {
  EXPECT_FALSE(AgreedNote({Rank(1, 1), Rank(1, 1)}).value().has_value());  // configured, and nothing since
  const auto note = AgreedNote({Trained(7), Trained(7)});
  ASSERT_TRUE(note.ok()) << note.status();
  ASSERT_TRUE(note->has_value());
  const TrainingInfo info = InfoOf(**note);
  EXPECT_EQ(info.step, 7);
  EXPECT_EQ(info.epoch, 1);
  EXPECT_EQ(info.position, 48);
  EXPECT_EQ(info.weight_version, 8u);
  EXPECT_EQ(NoteOf(info).position(), 48);
}

TEST(ContinuationTest, WhatCannotGoOnSaysWhy) {
  const auto why = [](const std::vector<v1::TrainerState>& ranks) {
    return std::string(AgreedNote(ranks).status().message());
  };
  EXPECT_THAT(why({Trained(7), Trained(6)}), HasSubstr("7 optimiser steps (run/train/7), another 6"));
  EXPECT_THAT(why({Trained(7, 1, 4), Trained(7, 1, 4)}), HasSubstr("step 7 was trained in part: 1 of 4"));
  EXPECT_THAT(why({v1::TrainerState()}), HasSubstr("not configured"));
  v1::TrainerState strange = Trained(7);
  strange.set_trained_note("what is this");
  EXPECT_THAT(why({strange}), HasSubstr("run/train/7"));
}

}  // namespace
}  // namespace manta::controller
