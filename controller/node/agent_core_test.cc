#include "controller/node/agent_core.h"

#include "controller/node/agent_core_fixture_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::node {
namespace {

using ::testing::HasSubstr;

TEST_F(AgentCoreTest, WhoeverAsksForStacksIsAnswered) {
  Join();
  Start("train-0", 5);
  Started(1, "train-0", 5, 100);
  for (const uint64_t epoch : {5, 4}) {
    v1::NodeCommand command;
    command.mutable_worker()->mutable_actor()->set_actor_id("train-0");
    command.mutable_worker()->mutable_actor()->set_epoch(epoch);
    command.mutable_worker()->mutable_order()->mutable_stacks()->set_reason("asked for");
    agent_->OnCommand(command);
  }
  std::vector<std::string> answers;
  for (const auto& event : uplink_.events) {
    if (event.has_stacks())
      answers.push_back(absl::StrCat(event.stacks().actor().epoch(), ": ", event.stacks().text()));
  }
  EXPECT_THAT(answers, ::testing::ElementsAre("5: it waits", "4: it does not run\n"));
  EXPECT_THAT(host_.dumps, ::testing::ElementsAre("100 /run/logs/train-0.log"));
  EXPECT_TRUE(processes_.orders.back().second.worker().order().has_stacks());
}

TEST_F(AgentCoreTest, StartsTellsAndForgets) {
  Join();
  Start("train-0", 3, [](v1::StartActor* start) { start->add_gpu_indices(0); });
  ASSERT_EQ(processes_.orders.size(), 1u);
  const v1::StartActor& order = processes_.orders[0].second.start();
  EXPECT_EQ(processes_.names[1], "train-0.3");
  EXPECT_EQ(processes_.grace, absl::Seconds(10));
  EXPECT_EQ(order.env().at("CUDA_VISIBLE_DEVICES"), "GPU-a");
  EXPECT_EQ(order.env().at("MANTA_ACTOR_ID"), "train-0");
  EXPECT_EQ(order.log_path(), "/run/logs/train-0.log");
  EXPECT_EQ(processes_.leases.at(1), absl::Seconds(8));
  Started(1, "train-0", 3, 55);
  Start("train-0", 3);  // repeated: answered, not obeyed
  EXPECT_EQ(processes_.orders.size(), 1u);
  ASSERT_EQ(uplink_.Reports().size(), 2u);
  EXPECT_EQ(uplink_.Reports()[1].started().pid(), 55);

  Exited(1, "train-0", 3, 4);
  EXPECT_EQ(agent_->num_actors(), 0u);
  Start("train-0", 3);
  EXPECT_EQ(processes_.orders.size(), 1u);
  EXPECT_EQ(uplink_.Reports().back().exited().exit_code(), 4);

  // Until the head has it on disk, every hello tells it again.
  agent_->OnUplinkDown(UplinkLoss::kHeadGone, absl::UnavailableError("reset"));
  RunFor(0.5);
  ASSERT_EQ(uplink_.LastHello().running_size(), 1);
  EXPECT_EQ(uplink_.LastHello().running(0).exited().exit_code(), 4);
  Join();
  v1::NodeCommand ack;
  ack.mutable_reports_ack()->add_exits()->set_actor_id("train-0");
  ack.mutable_reports_ack()->mutable_exits(0)->set_epoch(3);
  agent_->OnCommand(ack);
  EXPECT_EQ(host_.forgotten.count("train-0"), 1u);
  agent_->OnUplinkDown(UplinkLoss::kHeadGone, absl::UnavailableError("reset"));
  RunFor(0.5);
  EXPECT_EQ(uplink_.LastHello().running_size(), 0);
}

TEST_F(AgentCoreTest, ANewerEpochEndsTheOlderOneFirst) {
  Join();
  Start("gen-0", 1);
  Started(1, "gen-0", 1, 10);
  Start("gen-0", 2);
  ASSERT_EQ(processes_.orders.size(), 2u);  // a stop, and no second start yet
  EXPECT_EQ(processes_.orders[1].second.stop().epoch(), 1u);
  Exited(1, "gen-0", 1, 0);
  ASSERT_EQ(processes_.orders.size(), 3u);
  EXPECT_EQ(processes_.orders[2].second.start().epoch(), 2u);
  uplink_.events.clear();
  Start("gen-0", 1);
  EXPECT_EQ(processes_.orders.size(), 3u);
  EXPECT_EQ(uplink_.Reports()[0].exited().exit_code(), 0);  // what became of it
  Stop("gen-0", 0, 0);
  Start("gen-0", 0);
  EXPECT_THAT(uplink_.Reports().back().start_failed().message(), HasSubstr("stopped before it was started"));
}

TEST_F(AgentCoreTest, AcksExtendTheLeaseFromWhenTheBeatWasSent) {
  Join();
  Start("train-0", 1);
  Started(1, "train-0", 1, 10);
  const absl::Time joined = loop_->Now();
  EXPECT_EQ(agent_->lease_until(), joined + absl::Seconds(8));
  RunFor(2.5);  // beats at 0, 1, 2
  Ack();
  EXPECT_EQ(agent_->lease_until(), joined + absl::Seconds(10));
  // From here on nothing is heard: the shims get what is left, until nothing is.
  RunFor(7);
  EXPECT_LT(processes_.leases.at(1), absl::Seconds(1.1));
  RunFor(1);
  const int given = processes_.num_leases;
  RunFor(10);
  EXPECT_EQ(processes_.num_leases, given);
  EXPECT_GT(uplink_.opened, 3);  // tried again meanwhile
  EXPECT_FALSE(agent_->joined());
  Join();
  EXPECT_TRUE(agent_->joined());
  EXPECT_GT(agent_->lease_until(), loop_->Now());
  EXPECT_FALSE(done_.has_value());
}

TEST_F(AgentCoreTest, AnOrderThatIsReadAfterTheLeaseIsNotObeyed) {
  Join();
  loop_->RunFor(absl::Milliseconds(7900));
  Start("a-0", 1);
  EXPECT_EQ(processes_.last, 1u);
  loop_->RunFor(absl::Milliseconds(200));  // no acknowledgement has come
  Start("b-0", 1);
  EXPECT_EQ(processes_.last, 1u);
  ASSERT_FALSE(uplink_.Reports().empty());
  EXPECT_THAT(uplink_.Reports().back().start_failed().message(), HasSubstr("lease has run out"));
}

TEST_F(AgentCoreTest, AHeadThatIsGoneIsWaitedForAndSilenceIsNot) {
  Join();
  Start("train-0", 1);
  Started(1, "train-0", 1, 10);
  for (int i = 0; i < 50; ++i) {
    agent_->OnUplinkDown(UplinkLoss::kHeadGone, absl::UnavailableError("refused"));
    RunFor(1);
    EXPECT_GT(agent_->lease_until(), loop_->Now() + absl::Seconds(6));
  }
  EXPECT_GT(processes_.leases.at(1), absl::Seconds(6));
  for (int i = 0; i < 5; ++i) {
    agent_->OnUplinkDown(UplinkLoss::kSilent, absl::UnavailableError("time-out"));
    RunFor(2);
  }
  EXPECT_LT(agent_->lease_until(), loop_->Now());
  EXPECT_FALSE(done_.has_value());
  agent_->OnUplinkDown(UplinkLoss::kHeadGone, absl::UnavailableError("refused"));  // 60 s are over
  EXPECT_EQ(processes_.orders.back().second.order_case(), v1::ShimOrder::kStop);
  Exited(1, "train-0", 1, 0);
  RunFor(0.1);
  ASSERT_TRUE(done_.has_value());
  EXPECT_THAT(std::string(done_->message()), HasSubstr("the controller at head:1 is gone"));
}

// While no head is there its port may be taken by any program; it is not asked whether this agent may live.
TEST_F(AgentCoreTest, AStrangerAtTheHeadsAddressEndsNothing) {
  Join();
  Start("train-0", 1);
  Started(1, "train-0", 1, 10);
  for (const absl::Status& stranger :
       {absl::UnimplementedError("no such method"), absl::UnauthenticatedError("another job's token"),
        absl::PermissionDeniedError("not your role")}) {
    agent_->OnUplinkDown(UplinkLoss::kHeadGone, absl::UnavailableError("refused"));
    RunFor(0.5);
    const int opened = uplink_.opened;
    const absl::Time lease = agent_->lease_until();
    agent_->OnUplinkDown(UplinkLoss::kRejected, stranger);
    EXPECT_EQ(agent_->lease_until(), lease);  // it says nothing of the head
    RunFor(1.1);
    EXPECT_GT(uplink_.opened, opened);
    EXPECT_EQ(processes_.orders.size(), 1u);
  }
  Join();
  EXPECT_TRUE(agent_->joined());
  // The head's own word is final.
  agent_->OnUplinkDown(UplinkLoss::kRejected, absl::AlreadyExistsError("a node n0 has joined already"));
  EXPECT_EQ(processes_.orders.back().second.order_case(), v1::ShimOrder::kStop);
}

TEST_F(AgentCoreTest, ATokenThatIsWrongFromTheFirstEndsIt) {
  Create();
  agent_->OnUplinkDown(UplinkLoss::kRejected, absl::UnauthenticatedError("another job's token"));
  RunFor(0.1);
  ASSERT_TRUE(done_.has_value());
  EXPECT_EQ(done_->code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(AgentCoreTest, EachHelloSaysThatItIsLater) {
  Create();
  int64_t last = uplink_.LastHello().said_at_us();
  for (int i = 0; i < 3; ++i) {
    RunFor(3.5);  // nobody answers
    EXPECT_GT(uplink_.LastHello().said_at_us(), last);
    last = uplink_.LastHello().said_at_us();
  }
}

TEST_F(AgentCoreTest, StopEndsWithItsHead) {
  Join(/*wait=*/false);
  Start("train-0", 1);
  EXPECT_EQ(processes_.grace, absl::ZeroDuration());
  Started(1, "train-0", 1, 10);
  agent_->OnUplinkDown(UplinkLoss::kHeadGone, absl::UnavailableError("reset"));
  EXPECT_EQ(processes_.orders.back().second.order_case(), v1::ShimOrder::kStop);
  Exited(1, "train-0", 1, 0);
  RunFor(0.1);
  ASSERT_TRUE(done_.has_value());
  EXPECT_EQ(done_->code(), absl::StatusCode::kUnavailable);
}

TEST_F(AgentCoreTest, WhatAnEarlierAgentLeftIsTakenOver) {
  v1::ActorReport running = Of("train-0", 4, 77);
  running.mutable_snapshot()->mutable_ready()->set_address("127.0.0.1:5");
  *processes_.recovered.shims.emplace_back(RecoveredShim{9, {}}).snapshots.add_actors() = running;
  v1::ActorReport ended = Of("train-1", 4, 78);
  ended.mutable_exited()->set_exit_signal(9);
  processes_.recovered.exits.push_back(ended);
  Create();
  const v1::NodeHello& hello = uplink_.LastHello();
  ASSERT_EQ(hello.running_size(), 2);
  EXPECT_EQ(hello.running(0).snapshot().ready().address(), "127.0.0.1:5");
  EXPECT_EQ(hello.running(1).exited().exit_signal(), 9);
  EXPECT_EQ(hello.incarnation(), 7u);
  Join();
  EXPECT_EQ(agent_->num_actors(), 1u);
  RunFor(0.6);
  EXPECT_GT(processes_.leases.at(9), absl::Seconds(7));
  Start("train-0", 4);
  EXPECT_TRUE(processes_.orders.empty());
  v1::NodeCommand again;
  again.mutable_welcome()->set_lease_ms(8000);
  again.mutable_welcome()->set_controller_grace_ms(1000);
  *again.mutable_welcome()->add_unwanted() = [] {
    v1::ActorRef ref;
    ref.set_actor_id("train-0");
    ref.set_epoch(4);
    return ref;
  }();
  agent_->OnCommand(again);
  ASSERT_EQ(processes_.orders.size(), 1u);
  EXPECT_EQ(processes_.orders[0].second.stop().actor_id(), "train-0");
}

TEST_F(AgentCoreTest, AKilledShimIsToldWithTheLogsLastLines) {
  Join();
  Start("gen-0", 1);
  Started(1, "gen-0", 1, 10);
  agent_->OnShimGone(1, "was killed by signal 9 (Killed)");
  const v1::ActorExited exited = uplink_.Reports().back().exited();
  EXPECT_EQ(exited.exit_signal(), 9);
  ASSERT_EQ(exited.last_lines_size(), 2);
  EXPECT_EQ(exited.last_lines(0), "the last line");
  EXPECT_THAT(exited.last_lines(1), HasSubstr("the shim of gen-0 was killed by signal 9"));
  EXPECT_EQ(host_.remembered.count("gen-0"), 1u);
  Start("odd-0", 1);
  agent_->OnShimGone(2, "could not be started: no memory");
  EXPECT_THAT(uplink_.Reports().back().start_failed().message(), HasSubstr("no memory"));
}

TEST_F(AgentCoreTest, AShimThatDoesNotObeyIsKilled) {
  Join();
  Start("gen-0", 1);
  Started(1, "gen-0", 1, 10);
  Stop("gen-0", 1, 2000);
  RunFor(2.5);
  EXPECT_TRUE(processes_.killed.empty());
  RunFor(1);
  EXPECT_EQ(processes_.killed.count(1), 1u);
}

TEST_F(AgentCoreTest, PortsAreLeasedForAnActorsLife) {
  Join();
  Start("train-0", 1);
  Started(1, "train-0", 1, 10);
  const auto lease = [&](int count) {
    v1::NodeCommand command;
    command.mutable_lease_ports()->set_id(5);
    command.mutable_lease_ports()->mutable_owner()->set_actor_id("train-0");
    command.mutable_lease_ports()->mutable_owner()->set_epoch(1);
    command.mutable_lease_ports()->set_count(count);
    agent_->OnCommand(command);
    return uplink_.events.back().ports();
  };
  const v1::PortsLeased two = lease(2);
  EXPECT_THAT(std::vector<int>(two.ports().begin(), two.ports().end()), ::testing::ElementsAre(20000, 20002));
  EXPECT_THAT(lease(2).error(), HasSubstr("only 1 are free"));
  Exited(1, "train-0", 1, 0);
  EXPECT_THAT(lease(2).error(), HasSubstr("2 resting"));
  RunFor(61);
  Join();
  EXPECT_EQ(lease(3).ports_size(), 3);
}

TEST_F(AgentCoreTest, GivesUpWhereNobodyAnswers) {
  Create();
  for (int i = 0; i < 40 && !done_.has_value(); ++i) {
    agent_->OnUplinkDown(UplinkLoss::kHeadGone, absl::UnavailableError("refused"));
    RunFor(1);
  }
  ASSERT_TRUE(done_.has_value());
  EXPECT_EQ(done_->code(), absl::StatusCode::kUnavailable);
  EXPECT_GE(loop_->Now() - absl::UnixEpoch(), absl::Seconds(30));
}

}  // namespace
}  // namespace manta::node
