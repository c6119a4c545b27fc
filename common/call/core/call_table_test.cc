// Whom the table takes calls from: fences, and sealing by those who come later.
#include "common/call/core/call_table.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/call/core/outcome.h"
#include "gtest/gtest.h"

namespace manta::call {
namespace {

struct Nowhere final : ReplyBatchSink {
  void Write(const v1::ReplyBatch&) override {}
  void Close(const absl::Status&) override { closed = true; }
  bool closed = false;
};

// A table, and sessions whose calls wait to run.
class Served {
 public:
  explicit Served(bool sealing = true) : table(Options(sealing)) {}
  struct Session {
    CallTable::Opened opened;
    std::shared_ptr<Nowhere> link = std::make_shared<Nowhere>();
    uint64_t last = 0;
  };
  absl::StatusOr<Session> Open(const v1::CallerId& caller, uint64_t number = 0) {
    v1::SessionOpen open;
    *open.mutable_caller() = caller;
    open.set_actor_id("a-0");
    open.set_epoch(1);
    open.set_session(number);
    Session session;
    v1::SessionOpened answer;
    auto opened = table.Open(open, session.link, &answer);
    if (!opened.ok()) return opened.status();
    session.opened = *std::move(opened);
    session.opened.session->OnWriteDone(session.opened.link);
    return session;
  }
  // How many were admitted, 0 or 1.
  size_t Call(Session& session) {
    v1::CallBatch batch;
    v1::Call& call = *batch.add_calls();
    call.set_seq(++session.last);
    call.set_deadline_ms(10000);
    const size_t before = waiting.size();
    session.opened.session->OnBatch(session.opened.link, batch, &waiting);
    return waiting.size() - before;
  }
  // Of those that were admitted, in order: whether each runs.
  std::vector<bool> Run() {
    std::vector<bool> ran;
    for (CallRef& ref : std::exchange(waiting, {})) {
      ran.push_back(ref.session->StartRunning(ref.call));
      if (ran.back()) ref.session->Finish(ref.call, absl::OkStatus(), nullptr);
    }
    return ran;
  }
  CallTable table;
  std::vector<CallRef> waiting;

 private:
  static CallTable::Options Options(bool sealing) {
    CallTable::Options options{.actor_id = "a-0", .epoch = 1, .window = 16};
    options.sealing = sealing;
    options.methods.emplace_back().set_name("work");
    return options;
  }
};

v1::CallerId Actor(const std::string& id, uint64_t epoch, const std::string& process) {
  v1::CallerId caller;
  caller.set_id(process);
  caller.set_actor_id(id);
  caller.set_epoch(epoch);
  return caller;
}

TEST(CallTable, AnActorsNewerEpochSealsTheOlder) {
  Served served;
  auto old = served.Open(Actor("gen-0", 5, "x")).value();
  auto same = served.Open(Actor("gen-0", 5, "another client of x")).value();
  auto peer = served.Open(Actor("gen-1", 4, "y")).value();
  EXPECT_EQ(served.Call(old) + served.Call(same) + served.Call(peer), 3u);
  auto next = served.Open(Actor("gen-0", 6, "z")).value();
  EXPECT_TRUE(old.link->closed);
  EXPECT_TRUE(same.link->closed);
  EXPECT_FALSE(peer.link->closed);
  EXPECT_EQ(served.Call(old), 0u);  // was on its way
  EXPECT_EQ(served.Call(next), 1u);
  EXPECT_EQ(served.Run(), (std::vector<bool>{false, false, true, true}));

  for (const uint64_t number : {uint64_t{0}, old.opened.session->id()}) {
    const absl::Status late = served.Open(Actor("gen-0", 5, "x"), number).status();
    EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(OutcomeOf(late), v1::CALL_OUTCOME_NOT_STARTED);
    EXPECT_EQ(late.message(), "gen-0 of epoch 5 is over: it has called in epoch 6");
  }
}

TEST(CallTable, ADurableCallersNewerIncarnationSealsTheOlder) {
  Served served;
  v1::CallerId caller;
  caller.set_id("durable");
  caller.set_incarnation(1);
  auto old = served.Open(caller).value();
  EXPECT_EQ(served.Call(old), 1u);
  v1::QueryCallsRequest query;
  caller.set_incarnation(2);
  *query.mutable_caller() = caller;
  served.table.Query(query);
  EXPECT_EQ(served.Call(old), 0u);
  EXPECT_EQ(served.Run(), (std::vector<bool>{false}));
  caller.set_incarnation(1);
  EXPECT_EQ(served.Open(caller).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CallTable, AFenceCutsAGroupsOlderEpochsOff) {
  Served served;
  auto old = served.Open(Actor("gen-0", 5, "x")).value();
  auto other = served.Open(Actor("train-0", 5, "y")).value();
  EXPECT_EQ(served.Call(old) + served.Call(other), 2u);
  served.table.RaiseFence("gen", 6);
  EXPECT_EQ(served.Run(), (std::vector<bool>{false, true}));
  EXPECT_EQ(served.Open(Actor("gen-3", 5, "z")).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(served.Open(Actor("gen-3", 6, "z")).ok());
}

// What the simulator must notice.
TEST(CallTable, WithoutSealingTheOlderRuns) {
  Served served(/*sealing=*/false);
  auto old = served.Open(Actor("gen-0", 5, "x")).value();
  auto next = served.Open(Actor("gen-0", 6, "z")).value();
  EXPECT_EQ(served.Call(next) + served.Call(old), 2u);
  EXPECT_EQ(served.Run(), (std::vector<bool>{true, true}));
}

}  // namespace
}  // namespace manta::call
