// A worker's whole life inside this process: flags, ActorService, stopping.
#include "common/actor/worker.h"

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/actor/flags.h"
#include "common/base/task.h"
#include "common/rpc/call.h"
#include "common/rpc/channel.h"
#include "common/rpc/token.h"
#include "gtest/gtest.h"
#include "manta/v1/actor.grpc.pb.h"

namespace manta::actor {
namespace {

TEST(WorkerFlags, NamesWhatIsWrong) {
  const auto parse = [](const std::string& line) {
    return ParseWorkerFlags(line.empty() ? std::vector<std::string>{} : absl::StrSplit(line, ' '));
  };
  const auto flags = parse("--standalone --actor-id train-3 --epoch=7 --token-file t --depth 2").value();
  EXPECT_EQ(flags.rank, 3);
  EXPECT_EQ(flags.epoch, 7u);
  EXPECT_EQ(flags.rest, (std::vector<std::string>{"--depth", "2"}));
  EXPECT_EQ(parse("--standalone").status().message(), "--token-file is missing: no process serves without a job token");
  EXPECT_EQ(parse("--token-file t").status().message(),
            "no node agent has started this worker: --standalone runs one by hand");
  EXPECT_FALSE(parse("--standalone --token-file t --actor-id train").ok());
  EXPECT_FALSE(parse("--standalone --token-file t --epoch x").ok());
  EXPECT_FALSE(parse("--standalone --token-file").ok());
}

class WorkerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    token_file_ = absl::StrCat(::testing::TempDir(), "/worker_test.", getpid());
    token_ = rpc::CreateTokenFile(token_file_).value();
  }
  void TearDown() override { std::filesystem::remove(token_file_); }
  std::unique_ptr<Worker> Create(const std::string& epoch) {
    std::vector<std::string> args = {"w",       "--standalone", "--actor-id",   "train-1",
                                     "--epoch", epoch,          "--token-file", token_file_};
    std::vector<char*> argv;
    for (auto& arg : args) argv.push_back(arg.data());
    return Worker::Create(static_cast<int>(argv.size()), argv.data()).value();
  }

  EventLoop loop_;
  std::string token_file_, token_;
};

TEST_F(WorkerTest, LivesUntilStop) {
  auto worker = Create("5");
  Lane& lane = worker->AddLane("work", 1, 4);
  int lost_rank = -1;
  bool told = false;
  worker->OnPeerLost([&](int rank, const std::string&) { lost_rank = rank; });
  worker->OnStop([&] { told = true; });
  int exit_code = -1;
  std::promise<std::string> address;
  worker->loop().Post([&] { address.set_value(worker->address()); });
  std::thread main([&] { exit_code = worker->Run(); });
  auto stub = v1::ActorService::NewStub(rpc::OpenChannel(address.get_future().get(), token_).value());
  using Async = rpc::AsyncOf<v1::ActorService>;
  const rpc::CallOptions options{.deadline = absl::Seconds(10)};
  std::promise<void> gate;
  ASSERT_TRUE(lane.Post([&] { gate.get_future().wait(); }).ok());  // a busy worker still answers and beats
  const auto pong = RunToCompletion(loop_, rpc::Call(loop_, stub->async(), &Async::Ping, {}, options)).value();
  EXPECT_EQ(pong.actor_id(), "train-1");
  EXPECT_EQ(pong.epoch(), 5u);
  EXPECT_EQ(pong.pid(), getpid());
  EXPECT_EQ(pong.state(), v1::ACTOR_STATE_READY);
  auto beats = rpc::OpenStream(loop_, stub->async(), &Async::Watch, {}, options);
  const auto beat = RunToCompletion(loop_, beats.Next()).value().value();
  EXPECT_EQ(beat.queued_calls(), 1u);
  EXPECT_GT(beat.resident_bytes(), 0u);

  v1::PeerLostRequest lost;
  lost.set_epoch(4);
  lost.set_rank(0);
  EXPECT_EQ(RunToCompletion(loop_, rpc::Call(loop_, stub->async(), &Async::PeerLost, lost, options)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  lost.set_epoch(5);
  EXPECT_TRUE(RunToCompletion(loop_, rpc::Call(loop_, stub->async(), &Async::PeerLost, lost, options)).ok());

  gate.set_value();
  v1::StopRequest stop;
  stop.set_deadline_ms(60000);  // the test process is this worker's process: its watchdog must not end it
  EXPECT_TRUE(RunToCompletion(loop_, rpc::Call(loop_, stub->async(), &Async::Stop, stop, options)).ok());
  main.join();
  EXPECT_EQ(exit_code, 0);
  EXPECT_EQ(lost_rank, 0);
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace manta::actor
