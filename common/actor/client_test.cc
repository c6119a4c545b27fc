// An actor written with Worker::Handle and its callers: blocking, from coroutines, streamed, and whole groups.
#include "common/actor/client.h"

#include <filesystem>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/actor/group_handle.h"
#include "common/actor/worker.h"
#include "common/base/status.h"
#include "common/call/core/outcome.h"
#include "common/rpc/token.h"
#include "gtest/gtest.h"
#include "manta/v1/actor.pb.h"

namespace manta::actor {
namespace {

// What the tests say: `epoch` is a number, `reason` a text.
using Message = v1::PeerLostRequest;

Message Number(uint64_t n) {
  Message message;
  message.set_epoch(n);
  return message;
}

const CallOptions kSoon{.deadline = absl::Seconds(20)};

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    token_file_ = absl::StrCat(::testing::TempDir(), "/client_test.", getpid());
    token_ = rpc::CreateTokenFile(token_file_).value();
  }
  void TearDown() override {
    for (auto& worker : workers_) worker->Shutdown("the test ends", 0);
    for (auto& thread : threads_) thread.join();
    std::filesystem::remove(token_file_);
  }
  ActorAddress Start(int rank, const std::function<void(Worker&)>& methods) {
    const std::string id = absl::StrCat("sum-", rank);
    std::vector<std::string> args = {"w", "--standalone", "--actor-id", id, "--epoch",
                                     "3", "--token-file", token_file_};
    std::vector<char*> argv;
    for (auto& arg : args) argv.push_back(arg.data());
    workers_.push_back(Worker::Create(static_cast<int>(argv.size()), argv.data()).value());
    Worker* worker = workers_.back().get();
    methods(*worker);
    std::promise<void> ready;
    threads_.emplace_back([worker] { worker->Run(); });
    worker->loop().Post([&] { ready.set_value(); });
    ready.get_future().wait();
    return {id, 3, worker->address()};
  }
  std::unique_ptr<Client> MakeClient() { return Client::Create({.token = token_}).value(); }

  std::string token_file_, token_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
};

void Methods(Worker& worker) {
  auto sum = std::make_shared<uint64_t>(0);
  worker.Handle<Message, Message>("add", [sum](const Message& request, CallContext&) -> absl::StatusOr<Message> {
    if (request.epoch() == 13) return absl::InvalidArgumentError("not that number");
    return Number(*sum += request.epoch());
  });
  worker.HandleStream<Message, Message>(
      "count", [](const Message& request, ItemWriter<Message>& items, CallContext&) -> absl::Status {
        for (uint64_t i = 0; i < request.epoch(); ++i) {
          if (absl::Status status = items.Write(Number(i)); !status.ok()) return status;
        }
        return absl::OkStatus();
      });
  worker.Handle<Message, Message>("wait", [](const Message&, CallContext& context) -> absl::StatusOr<Message> {
    while (!context.cancelled()) absl::SleepFor(absl::Milliseconds(1));
    return absl::CancelledError("told to");
  });
}

Task<absl::StatusOr<uint64_t>> AddTwice(EventLoop& loop, ActorHandle actor) {
  CallOptions options{.deadline = absl::Seconds(10)};
  const auto first = co_await actor.Call<Message, Message>(loop, "add", Number(1), options);
  if (!first.ok()) co_return first.status();
  const auto second = co_await actor.Call<Message, Message>(loop, "add", Number(2), options);
  if (!second.ok()) co_return second.status();
  co_return second->epoch();
}

TEST_F(ClientTest, CallsTypedMethods) {
  auto client = MakeClient();
  ActorHandle actor = client->ActorAt(Start(0, Methods));
  EXPECT_EQ((actor.CallBlocking<Message, Message>("add", Number(4), kSoon).value().epoch()), 4u);
  EventLoop loop;
  EXPECT_EQ(RunToCompletion(loop, AddTwice(loop, actor)).value(), 7u);
  const absl::Status refused = actor.CallBlocking<Message, Message>("add", Number(13), kSoon).status();
  EXPECT_EQ(refused.message(), "not that number");
  EXPECT_EQ(call::OutcomeOf(refused), v1::CALL_OUTCOME_FAILED);
  const absl::Status garbage = actor.CallBytes("add", "\xff\xff\xff", kSoon).status();
  EXPECT_EQ(garbage.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(call::OutcomeOf(garbage), v1::CALL_OUTCOME_NOT_STARTED);
  EXPECT_FALSE(client->Actor("sum").CallBytes("add", "", kSoon).ok()) << "there is no resolver";
}

TEST_F(ClientTest, ReadsStreamedResults) {
  auto client = MakeClient();
  ActorHandle actor = client->ActorAt(Start(0, Methods));
  auto items = actor.Stream<Message, Message>("count", Number(100), kSoon);
  for (uint64_t i = 0; i < 100; ++i) ASSERT_EQ(items.Next().value().value().epoch(), i);
  EXPECT_FALSE(items.Next().value().has_value());
  auto wrong = actor.Stream<Message, Message>("add", Number(1), kSoon);
  EXPECT_EQ(wrong.Next().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClientTest, CallsGroups) {
  auto client = MakeClient();
  std::vector<ActorHandle> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(client->ActorAt(Start(rank, Methods)));
  const GroupHandle group(ranks);
  const auto same = group.Broadcast<Message, Message>("add", Number(5), kSoon).value();
  ASSERT_EQ(same.size(), 4u);
  for (const Message& one : same) EXPECT_EQ(one.epoch(), 5u);
  const auto each = group.Scatter<Message, Message>("add", {Number(1), Number(2), Number(3), Number(4)}, kSoon).value();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(each[i].epoch(), 5u + i + 1);
  EXPECT_FALSE((group.Scatter<Message, Message>("add", {Number(1)}, kSoon).ok()));

  // One rank fails at once while the others would wait: the whole ends at once, with that rank's error.
  const absl::Time start = absl::Now();
  const auto mixed = group.Scatter<Message, Message>("add", {Number(1), Number(1), Number(13), Number(1)}, kSoon);
  EXPECT_EQ(mixed.status().message(), "rank 2: not that number");
  EXPECT_EQ(GetErrorInfo(mixed.status()).rank(), 2);
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

}  // namespace
}  // namespace manta::actor
