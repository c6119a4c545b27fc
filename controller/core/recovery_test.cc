// A head that is killed and started again: at rest, and after each of the journal's changes of a whole history.
#include "absl/strings/str_cat.h"
#include "controller/core/core_fixture.h"

namespace manta::controller::core {
namespace {

using ::testing::HasSubstr;

class Recovery : public CoreTest {
 protected:
  void StartAgain(absl::Duration away = absl::Seconds(2)) {
    Crash();
    loop_->RunFor(away);
    Make();
  }
};

TEST_F(Recovery, NobodyIsDisturbed) {
  Make();
  auto node = Node("n0", 4);
  const auto group = Create(Request("train", 2, 1)).value();
  v1::PlacementRequest room;
  room.add_bundles()->set_cpu_slots(1);
  room.set_key("k");
  const auto placement = Place(room).value();
  StartAgain();
  EXPECT_TRUE(core_->recovering());
  ASSERT_TRUE(node->Join(*core_).ok());
  EXPECT_FALSE(core_->recovering());
  Run(1);
  EXPECT_EQ(StateOf("train"), "READY");
  const auto adopted = Create(Request("train", 2, 1)).value();
  EXPECT_TRUE(adopted.adopted());
  EXPECT_EQ(adopted.epoch(), group.epoch());
  EXPECT_EQ(Place(room).value().id(), placement.id());
  EXPECT_EQ(core_->free_cpu_slots(), 1);
  EXPECT_TRUE(node->stopped.empty());
  EXPECT_TRUE(node->unwanted.empty());
  EXPECT_EQ(node->starts_of["train-0"], 1);
  // Numbers go on above everything that was given out.
  EXPECT_GT(Create(Request("other", 1, 1)).value().epoch(), group.epoch());
}

TEST_F(Recovery, WhatDiedMeanwhileIsNoticed) {
  Make();
  auto node = Node("n0", 4);
  const auto group = Create(Request("train", 2, 1)).value();
  Crash();
  node->Exit("train-1", group.epoch(), -1, 9);
  Make();
  ASSERT_TRUE(node->Join(*core_).ok());
  Run(1);
  EXPECT_EQ(StateOf("train"), "FAILED");
  EXPECT_THAT(std::string(Create(Request("train", 2, 1)).status().message()), HasSubstr("killed by signal 9"));
}

TEST_F(Recovery, ANodeThatDoesNotComeBackIsLost) {
  Make();
  auto a = Node("a", 1);
  auto b = Node("b", 1);
  ASSERT_TRUE(Create(Request("train", 2, 1)).ok());
  StartAgain();
  ASSERT_TRUE(a->Join(*core_).ok());
  v1::PlacementRequest room;
  room.set_deadline_ms(60000);
  room.add_bundles()->set_cpu_slots(0);
  auto slot = Slot<v1::PlacementReply>();
  core_->CreatePlacement(room, Into<v1::PlacementReply>(slot));
  Run(5);
  EXPECT_FALSE(slot->has_value());  // nothing new before everybody has had time to come back
  Run(6);
  EXPECT_TRUE(slot->has_value());
  EXPECT_EQ(StateOf("train"), "FAILED");
  Run(10);
  // Its ranks may go on for as long as their agent was allowed to without a head.
  EXPECT_EQ(Remove("train").code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Create(Request("train", 2, 1)).status().code(), absl::StatusCode::kFailedPrecondition);
  Run(700);
  EXPECT_EQ(StateOf("train"), "");
}

TEST_F(Recovery, AnEndThatWasAcknowledgedIsRemembered) {
  Make();
  auto node = Node("n0", 2);
  const auto group = Create(Request("train", 1, 1, v1::RestartPolicy::RESTART_GROUP)).value();
  node->announces = false;
  node->Exit("train-0", group.epoch(), -1, 9);
  Run(3);
  const uint64_t second = node->EpochOf("train-0");
  ASSERT_GT(second, group.epoch());
  node->Exit("train-0", second, 3, 0);  // before it was ready
  Run(0.1);
  EXPECT_EQ(StateOf("train"), "BACKOFF");
  Crash();
  node->actors.clear();  // what was acknowledged, its agent has forgotten
  node->announces = true;
  Make();
  ASSERT_TRUE(node->Join(*core_).ok());
  Run(10);
  EXPECT_EQ(StateOf("train"), "READY");
  EXPECT_EQ(GroupOf("train").restarts(), 2);
  EXPECT_GT(GroupOf("train").epoch(), second);
  EXPECT_EQ(node->started.size(), 3u);  // the second epoch was not started twice
}

TEST_F(Recovery, AnAgentStartedAnewAdoptsNothing) {
  Make();
  auto node = Node("n0", 2);
  const auto group = Create(Request("train", 1, 1, v1::RestartPolicy::RESTART_GROUP)).value();
  Crash();
  node->actors.clear();
  node->hello.set_incarnation(99);  // the host was started again
  Make();
  ASSERT_TRUE(node->Join(*core_).ok());
  Run(5);
  EXPECT_EQ(node->starts_of["train-0"], 1);  // what ran before might still
  Run(20);
  EXPECT_EQ(StateOf("train"), "READY");
  EXPECT_GT(GroupOf("train").epoch(), group.epoch());
}

// A history of requests is cut off after each change of the journal; the next head, on what was durable by then, must
// hold its invariants, keep what was acknowledged, start nobody twice, and be able to carry the history to its end.
TEST_F(Recovery, AfterEachChangeOfAHistory) {
  int crashes = 0;
  for (uint64_t cut = 1; cut < 60; ++cut) {
    const auto loop = EventLoop::Simulated();
    const auto disk = std::make_shared<MemoryJournal::Disk>();
    auto journal = std::make_unique<MemoryJournal>(*loop, disk, [] { return absl::Milliseconds(3); });
    auto node = std::make_shared<FakeNode>(*loop, "n0", 8, 2);
    auto other = std::make_shared<FakeNode>(*loop, "n1", 8, 2);
    other->hello.set_incarnation(8);
    auto core =
        std::make_unique<Core>(*loop, *journal, nullptr, CoreOptions{.incarnation = 1}, std::vector<JournalEntry>());
    ASSERT_TRUE(node->Join(*core).ok());
    ASSERT_TRUE(other->Join(*core).ok());
    bool crashed = false;
    uint64_t incarnation = 1;
    // Runs until `done`, crashing once on the way.
    const auto settle = [&](const bool& done) {
      for (int i = 0; i < 60000 && !done; ++i) {
        if (!crashed && journal->last_sequence() >= cut) return false;
        loop->RunFor(absl::Milliseconds(1));
      }
      EXPECT_TRUE(done) << "cut " << cut;
      return true;
    };
    const auto restart = [&] {
      crashed = true;
      ++crashes;
      core.reset();
      journal.reset();
      node->Forsake();
      other->Forsake();
      loop->RunFor(absl::Milliseconds(100));
      journal = std::make_unique<MemoryJournal>(*loop, disk, [] { return absl::Milliseconds(3); });
      core = std::make_unique<Core>(*loop, *journal, nullptr, CoreOptions{.incarnation = ++incarnation}, disk->Rows());
      EXPECT_TRUE(node->Join(*core).ok());
      EXPECT_TRUE(other->Join(*core).ok());
      EXPECT_TRUE(core->CheckInvariants().empty());
    };
    // Each step is asked for again where the head died before it had answered.
    const auto step = [&](const std::function<void(std::function<void(const absl::Status&)>)>& ask) {
      while (true) {
        bool done = false;
        ask([&](const absl::Status& status) {
          EXPECT_TRUE(status.ok()) << "cut " << cut << ": " << status;
          done = true;
        });
        if (settle(done)) return;
        restart();
      }
    };
    uint64_t placement = 0;
    v1::PlacementRequest room;
    room.set_key("k");
    room.set_deadline_ms(20000);
    room.set_repeat(2);
    room.add_bundles()->set_gpus(1);
    const auto place = [&](std::function<void(const absl::Status&)> done) {
      core->CreatePlacement(room, [&, done](absl::StatusOr<v1::PlacementReply> reply) {
        if (reply.ok()) {
          EXPECT_TRUE(placement == 0 || placement == reply->id()) << "cut " << cut;
          placement = reply->id();
        }
        done(reply.status());
      });
    };
    v1::GroupRequest train = Request("train", 2, 1, v1::RestartPolicy::RESTART_GROUP);
    v1::GroupRequest gen = Request("gen", 2, 0, v1::RestartPolicy::REPLACE_ONE);
    gen.set_ports_per_rank(1);
    const auto create = [&](const v1::GroupRequest& request) {
      return [&](std::function<void(const absl::Status&)> done) {
        core->CreateGroup(request, [done](absl::StatusOr<v1::GroupReply> reply) { done(reply.status()); });
      };
    };
    step(place);
    step(create(train));
    step(create(gen));
    step(place);
    const uint64_t epoch = node->EpochOf("train-0");
    node->Exit("train-0", epoch, -1, 9);
    node->Exit("gen-1", node->EpochOf("gen-1"), -1, 9);
    for (int i = 0; i < 4000; ++i) {  // restarts by their policies
      if (!crashed && journal->last_sequence() >= cut) restart();
      loop->RunFor(absl::Milliseconds(1));
    }
    EXPECT_GT(node->EpochOf("train-0"), epoch) << "cut " << cut;
    step(create(train));
    step(create(gen));
    for (const char* role : {"train", "gen"}) {
      step([&](std::function<void(const absl::Status&)> done) {
        core->RemoveGroup({kOnlyJob, role}, absl::Seconds(1),
                          [done](absl::StatusOr<v1::Done> reply) { done(reply.status()); });
      });
    }
    step([&](std::function<void(const absl::Status&)> done) {
      core->RemovePlacement(placement, [done](absl::StatusOr<v1::Done> reply) { done(reply.status()); });
    });
    EXPECT_TRUE(core->CheckInvariants().empty()) << "cut " << cut;
    EXPECT_TRUE(disk->rows.empty()) << "cut " << cut;
    EXPECT_EQ(core->free_cpu_slots(), 16);
    for (const auto& each : {node, other}) {
      std::set<std::pair<std::string, uint64_t>> started;
      for (const auto& [key, actor] : each->actors) EXPECT_FALSE(actor.lives) << "cut " << cut << ": " << key.first;
      each->Forsake();
    }
    if (!crashed) break;  // the history is shorter
  }
  EXPECT_GT(crashes, 10);
}

}  // namespace
}  // namespace manta::controller::core
