// Restart policies, fencing, the watchdog, ports.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/core/core_fixture.h"

namespace manta::controller::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CorePolicies : public CoreTest {
 protected:
  int Kinds(GroupEvent::Kind kind) {
    return static_cast<int>(
        std::count_if(events_.begin(), events_.end(), [&](const GroupEvent& event) { return event.kind == kind; }));
  }
};

TEST_F(CorePolicies, AGroupIsStartedAgainInANewEpoch) {
  Make();
  auto node = Node("n0", 4);
  ASSERT_TRUE(Create(Request("driver", 1, 1)).ok());
  const auto first = Create(Request("train", 2, 1, v1::RestartPolicy::RESTART_GROUP)).value();
  node->Exit("train-1", first.epoch(), -1, 9);
  Run(0.001);
  EXPECT_EQ(StateOf("train"), "BACKOFF");  // the other was told to end, and has
  EXPECT_EQ(Kinds(GroupEvent::kRestarting), 1);
  EXPECT_THAT(std::string(events_.back().status.message()), HasSubstr("killed by signal 9"));
  Run(0.5);
  EXPECT_EQ(node->started.size(), 3u);  // not before its back-off has passed
  Run(2);
  EXPECT_EQ(StateOf("train"), "READY");
  EXPECT_EQ(GroupOf("train").restarts(), 1);
  const uint64_t second = GroupOf("train").epoch();
  EXPECT_GT(second, first.epoch());
  EXPECT_EQ(events_.back().kind, GroupEvent::kReady);
  EXPECT_EQ(events_.back().reply.ranks(0).epoch(), second);
  // Workers of the same job refuse what comes from the old epoch.
  int fences = 0;
  for (const auto& command : node->commands) {
    if (!command.worker().order().has_fence()) continue;
    ++fences;
    EXPECT_EQ(command.worker().actor().actor_id(), "driver-0");
    EXPECT_EQ(command.worker().order().fence().group(), "train");
    EXPECT_EQ(command.worker().order().fence().min_epoch(), second);
  }
  EXPECT_EQ(fences, 1);
}

TEST_F(CorePolicies, BackOffGrowsAndRestartsAreCounted) {
  Make();
  auto node = Node("n0", 4);
  v1::GroupRequest request = Request("train", 1, 1, v1::RestartPolicy::RESTART_GROUP);
  request.mutable_restart()->set_max_restarts(3);
  ASSERT_TRUE(Create(request).ok());
  std::vector<double> waits;
  for (int i = 0; i < 3; ++i) {
    const absl::Time died = loop_->Now();
    node->Exit("train-0", node->EpochOf("train-0"), 1, 0);
    Run(0.01);
    while (StateOf("train") != "READY" && loop_->Now() - died < absl::Minutes(1)) Run(0.01);
    waits.push_back(absl::ToDoubleSeconds(loop_->Now() - died));
  }
  EXPECT_NEAR(waits[0], 1, 0.3);
  EXPECT_NEAR(waits[1], 2, 0.6);
  EXPECT_NEAR(waits[2], 4, 1.2);
  node->Exit("train-0", node->EpochOf("train-0"), 1, 0);
  Run(0.01);
  EXPECT_EQ(StateOf("train"), "FAILED");
  ASSERT_EQ(Kinds(GroupEvent::kFailed), 1);
  EXPECT_THAT(std::string(events_.back().status.message()), HasSubstr("was restarted 3 times"));
  // Whoever asks for it again is told why it is as it is.
  EXPECT_THAT(std::string(Create(request).status().message()), HasSubstr("exited with code 1"));
  EXPECT_TRUE(Remove("train").ok());
}

TEST_F(CorePolicies, OneRankIsReplaced) {
  Make();
  auto a = Node("a", 2);
  auto b = Node("b", 2);
  v1::GroupRequest request = Request("gen", 3, 1, v1::RestartPolicy::REPLACE_ONE);
  const auto first = Create(request).value();
  ASSERT_EQ(first.ranks(2).node(), "b");
  b->Exit("gen-2", first.epoch(), -1, 9);
  Run(5);
  v1::GroupInfo now = GroupOf("gen");
  EXPECT_EQ(now.state(), "READY");
  EXPECT_EQ(now.epoch(), first.epoch());
  EXPECT_EQ(now.ranks(0).epoch(), first.epoch());
  EXPECT_GT(now.ranks(2).epoch(), first.epoch());
  EXPECT_EQ(now.ranks(2).node(), "b");
  EXPECT_EQ(a->stopped.size() + b->stopped.size(), 0u);  // the others were never touched
  EXPECT_EQ(a->Count([](const auto& c) { return c.worker().order().has_peer_lost(); }), 0);
  // Its node is lost: it goes elsewhere, not before the lease there has ended.
  auto c = Node("c", 2);
  const absl::Time silent = loop_->Now();
  b->beats = false;
  while (c->started.empty() && loop_->Now() - silent < absl::Minutes(1)) Run(0.1);
  EXPECT_GE(loop_->Now() - silent, absl::Seconds(9));
  EXPECT_LE(loop_->Now() - silent, absl::Seconds(14));
  Run(1);
  EXPECT_EQ(GroupOf("gen").ranks(2).node(), "c");
  EXPECT_EQ(StateOf("gen"), "READY");
}

TEST_F(CorePolicies, ALostNodesGroupWaitsForItsLeaseThenForRoom) {
  Make();
  auto a = Node("a", 2);
  auto b = Node("b", 2);
  const auto first = Create(Request("train", 4, 1, v1::RestartPolicy::RESTART_GROUP)).value();
  b->beats = false;
  Run(9);
  EXPECT_EQ(StateOf("train"), "RESTARTING");  // b's may still run
  EXPECT_EQ(a->stopped.size(), 2u);
  Run(5);
  EXPECT_EQ(StateOf("train"), "QUEUED");
  EXPECT_THAT(GroupOf("train").waits_for(), HasSubstr("b absent"));
  // It comes back: what it says that it still runs is of an epoch that is over.
  b->beats = true;
  ASSERT_TRUE(b->Join(*core_).ok());
  EXPECT_THAT(b->unwanted, ElementsAre("train-2", "train-3"));
  Run(5);
  EXPECT_EQ(StateOf("train"), "READY");
  EXPECT_GT(GroupOf("train").epoch(), first.epoch());
  EXPECT_EQ(b->starts_of["train-2"], 2);
}

TEST_F(CorePolicies, AStreamThatBreaksIsNoLoss) {
  Make();
  auto node = Node("n0", 2);
  const auto group = Create(Request("train", 2, 1)).value();
  node->Disconnect();
  Run(5);
  ASSERT_TRUE(node->Join(*core_).ok());
  Run(20);
  EXPECT_EQ(StateOf("train"), "READY");
  EXPECT_EQ(GroupOf("train").epoch(), group.epoch());
  EXPECT_TRUE(node->stopped.empty());
}

// An agent tries again on another connection; what it said on the first may arrive after what it says on the second.
TEST_F(CorePolicies, AHelloThatComesLateChangesNothing) {
  Make();
  auto node = Node("n0", 2);
  node->hello.set_said_at_us(20);
  ASSERT_TRUE(node->Join(*core_).ok());
  ASSERT_TRUE(Create(Request("train", 1, 1)).ok());
  v1::NodeHello late = node->hello;  // of a time when nothing ran there
  late.set_said_at_us(10);
  EXPECT_EQ(core_->NodeJoined(late, node).status().code(), absl::StatusCode::kAborted);
  Run(3);
  EXPECT_EQ(StateOf("train"), "READY");
  EXPECT_TRUE(node->open);
  node->hello.set_said_at_us(30);
  ASSERT_TRUE(node->Join(*core_).ok());
  Run(1);
  EXPECT_EQ(StateOf("train"), "READY");
}

TEST_F(CorePolicies, AHangIsNoticed) {
  Make();
  auto node = Node("n0", 4);
  v1::GroupRequest request = Request("train", 2, 1, v1::RestartPolicy::RESTART_GROUP);
  request.set_progress_timeout_ms(20000);
  const auto group = Create(request).value();
  Run(60);  // idle is no hang
  EXPECT_EQ(StateOf("train"), "READY");
  for (int i = 0; i < 2; ++i) node->actors[{group.ranks(i).actor_id(), group.epoch()}].running = 1;
  for (int step = 0; step < 5; ++step) {
    node->actors[{"train-0", group.epoch()}].step = step;
    Run(15);
  }
  for (int done = 1; done < 5; ++done) {  // within one step
    node->actors[{"train-1", group.epoch()}].completed = done;
    Run(15);
  }
  EXPECT_EQ(StateOf("train"), "READY");
  EXPECT_EQ(node->Count([](const auto& c) { return c.worker().order().has_stacks(); }), 0);
  Run(8);
  EXPECT_EQ(node->Count([](const auto& c) { return c.worker().order().has_stacks(); }), 2);
  EXPECT_EQ(StateOf("train"), "READY");
  Run(6);
  EXPECT_EQ(node->stopped.size(), 2u);
  ASSERT_EQ(Kinds(GroupEvent::kRestarting), 1);
  EXPECT_THAT(std::string(events_[1].status.message()), HasSubstr("no progress for 20s"));
  EXPECT_EQ(GetErrorInfo(events_[1].status).origin(), v1::ORIGIN_TIMEOUT);
}

TEST_F(CorePolicies, ANodesSilenceIsNotItsActors) {
  Make();
  auto node = Node("n0", 4);
  const auto group = Create(Request("train", 1, 1, v1::RestartPolicy::RESTART_GROUP)).value();
  Run(3);
  auto& actor = node->actors[{"train-0", group.epoch()}];
  for (int round = 0; round < 3; ++round) {
    // An agent that was held up beats before it has read what its shims have to say.
    node->beats = false;
    actor.silent = true;
    Run(7);
    node->beats = true;
    Run(5);
    EXPECT_EQ(StateOf("train"), "READY");
    EXPECT_EQ(GroupOf("train").epoch(), group.epoch());
    actor.silent = false;
    Run(2);
  }
  EXPECT_EQ(GroupOf("train").epoch(), group.epoch());
  actor.silent = true;  // this is
  Run(13);
  EXPECT_NE(GroupOf("train").epoch(), group.epoch());
}

TEST_F(CorePolicies, StacksComeFromEachActorThatWasAskedAndEndWithTheLast) {
  Make();
  auto node = Node("n0", 8);
  const auto group = Create(Request("train", 2, 1, v1::RestartPolicy::RESTART_GROUP)).value();
  ASSERT_TRUE(Create(Request("gen", 1, 1, v1::RestartPolicy::RESTART_GROUP)).ok());
  struct Asked {
    std::vector<std::string> dumps;
    std::optional<absl::Status> done;
  };
  const auto ask = [&](const std::string& role) {
    auto asked = std::make_shared<Asked>();
    v1::ListRequest which;
    which.set_role(role);
    core_->Stacks(
        which, absl::Seconds(12),
        [asked](const v1::StackDump& dump) {
          asked->dumps.push_back(absl::StrCat(dump.actor().actor_id(), ": ", dump.text()));
        },
        [asked](const absl::Status& status) { asked->done = status; });
    return asked;
  };
  const auto answer = [&](const std::string& actor_id, uint64_t epoch) {
    v1::NodeEvent event;
    event.mutable_stacks()->mutable_actor()->set_actor_id(actor_id);
    event.mutable_stacks()->mutable_actor()->set_epoch(epoch);
    event.mutable_stacks()->set_text("it waits");
    node->Tell(event);
  };
  const auto everyone = ask(""), trainers = ask("train"), nobody = ask("judge");
  Run(7);  // longer than a debugger takes for a trainer's symbols
  answer("train-0", group.epoch());
  answer("train-0", group.epoch());  // both orders are answered; each asker is told once
  answer("train-1", group.epoch());
  Run(0.1);
  EXPECT_THAT(trainers->dumps, ::testing::ElementsAre("train-0: it waits", "train-1: it waits"));
  EXPECT_EQ(trainers->done, absl::OkStatus());
  EXPECT_EQ(everyone->dumps.size(), 2u);
  EXPECT_FALSE(everyone->done.has_value());
  ASSERT_TRUE(nobody->done.has_value());
  EXPECT_EQ(*nobody->done, absl::NotFoundError("no actor judge runs"));
  Run(6);
  ASSERT_EQ(everyone->dumps.size(), 3u);
  EXPECT_EQ(everyone->dumps[2], "gen-0: its agent has not answered within 12s\n");
  EXPECT_EQ(everyone->done, absl::OkStatus());
}

TEST_F(CorePolicies, PortsAreLeasedBeforeRanksStart) {
  Make();
  auto a = Node("a", 2);
  auto b = Node("b", 2);
  a->hello.set_address("10.0.0.1");
  ASSERT_TRUE(a->Join(*core_).ok());
  v1::GroupRequest request = Request("train", 4, 1);
  request.set_torchrun(true);
  const auto group = Create(request).value();
  ASSERT_EQ(b->started.size(), 2u);
  const v1::StartActor& last = b->started[1];
  EXPECT_EQ(last.world_size(), 4);
  EXPECT_EQ(last.rank(), 3);
  EXPECT_EQ(last.local_rank(), 1);
  EXPECT_EQ(last.local_world_size(), 2);
  EXPECT_EQ(last.node_rank(), 1);
  EXPECT_EQ(last.master(), absl::StrCat("10.0.0.1:", a->started[0].ports(0)));
  EXPECT_EQ(group.ranks(3).ports_size(), 1);
}

TEST_F(CorePolicies, PlainProgramsAreReadyOnceTheyRun) {
  Make();
  auto node = Node("n0", 2);
  node->announces = false;
  v1::GroupRequest request = Request("tool", 1, 1);
  request.set_plain(true);
  EXPECT_TRUE(Create(request).ok());
}

TEST_F(CorePolicies, NamesAreResolvedAndFollowed) {
  Make();
  auto node = Node("n0", 2);
  std::vector<v1::ResolveReply> replies;
  v1::ResolveRequest what;
  what.set_name("search");
  const Subscription watch = core_->Watch(what, [&](const v1::ResolveReply& reply) { replies.push_back(reply); });
  Run(1);
  EXPECT_TRUE(replies.empty());
  v1::GroupRequest request = Request("retrieval", 1, 1, v1::RestartPolicy::RESTART_GROUP);
  request.set_name("search");
  const auto group = Create(request).value();
  Run(0.1);
  ASSERT_FALSE(replies.empty());
  EXPECT_EQ(replies.back().ranks(0).address(), "retrieval-0:1");
  node->Exit("retrieval-0", group.epoch(), -1, 9);
  Run(0.1);
  EXPECT_TRUE(replies.back().has_failed());
  EXPECT_EQ(replies.back().failed().code(), static_cast<int>(absl::StatusCode::kUnavailable)) << "it comes back";
  EXPECT_NE(std::string(replies.back().ranks(0).died().message()).find("signal 9"), std::string::npos);
  Run(5);
  EXPECT_FALSE(replies.back().has_failed());
  EXPECT_GT(replies.back().ranks(0).epoch(), group.epoch());
  v1::GroupRequest twin = Request("other", 1, 0);
  twin.set_name("search");
  EXPECT_EQ(Create(twin).status().code(), absl::StatusCode::kAlreadyExists);
  core_->RemoveGroup({kOnlyJob, "retrieval"}, absl::ZeroDuration(), [](absl::StatusOr<v1::Done>) {});
  Run(1);
  EXPECT_EQ(replies.back().failed().code(), static_cast<int>(absl::StatusCode::kNotFound));
  const size_t told = replies.size();
  Create(Request("third", 1, 0)).value();
  Run(1);
  EXPECT_EQ(replies.size(), told) << "others' changes are not its";
}

TEST_F(CorePolicies, FailedGroupsThatNobodyRemovesAreBounded) {
  Make();
  auto node = Node("n0", 4);
  for (int i = 0; i < 1030; ++i) {
    const auto group = Create(Request(absl::StrCat("g", i), 1, 0, v1::RestartPolicy::FAIL_JOB));
    ASSERT_TRUE(group.ok()) << group.status();
    node->Exit(group->ranks(0).actor_id(), group->epoch(), 3, 0);
    Run(0.05);
  }
  v1::ListRequest request;
  request.set_groups(true);
  v1::ListReply reply;
  core_->List(request, &reply);
  EXPECT_LE(reply.groups_size(), 1001);
  EXPECT_GE(reply.groups_size(), 1000);
  std::set<std::string> kept;
  for (const auto& group : reply.groups()) kept.insert(group.role());
  EXPECT_EQ(kept.count("g0"), 0u) << "the oldest go";
  EXPECT_EQ(kept.count("g1029"), 1u);
  EXPECT_TRUE(core_->CheckInvariants().empty());
}

TEST_F(CorePolicies, RolesAndActorsAreNamesToo) {
  Make();
  auto node = Node("n0", 4);
  ASSERT_TRUE(Create(Request("search", 2, 0)).ok());
  const auto ranks = [&](const std::string& name) {
    int count = -1;
    v1::ResolveRequest what;
    what.set_name(name);
    const Subscription watch = core_->Watch(what, [&](const v1::ResolveReply& reply) { count = reply.ranks_size(); });
    Run(0.1);
    return count;
  };
  EXPECT_EQ(ranks("search"), 2);
  EXPECT_EQ(ranks("run/search"), 2);
  EXPECT_EQ(ranks("search-1"), 1);
  EXPECT_EQ(ranks("search-2"), -1);
  EXPECT_EQ(ranks("other/search"), -1);
}

}  // namespace
}  // namespace manta::controller::core
