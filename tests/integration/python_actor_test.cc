// An actor in Python (sdk/python) and callers in C++: the same sessions, streams, errors and limits over the call
// plane. Skipped ("python-grpcio") where python3 has no grpcio; `make setup` puts one into .deps/python.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/actor/client.h"
#include "common/base/status.h"
#include "common/rpc/token.h"
#include "controller/node/process.h"
#include "gmock/gmock.h"
#include "google/protobuf/wrappers.pb.h"
#include "gtest/gtest.h"
#include "tests/integration/python_program.h"

namespace manta::testing {
namespace {

namespace fs = std::filesystem;
using google::protobuf::Int32Value;
using ::testing::HasSubstr;

constexpr char kProgram[] = R"(
import time
import manta
from google.protobuf.wrappers_pb2 import Int32Value


class Tally(manta.Actor):
    lanes = {"narrow": (1, 2)}

    def setup(self):
        self.total = 0

    @manta.method(Int32Value)
    def add(self, request, context):
        self.total += request.value
        return Int32Value(value=self.total)

    @manta.method()
    def refuse(self, request, context):
        raise manta.CallError("FAILED_PRECONDITION", "not today")

    @manta.method()
    def bug(self, request, context):
        return {}["nothing"]

    @manta.method(lane="narrow")
    def wait(self, request, context):
        return b"cancelled" if context.wait_cancelled(float(request)) else b"waited"

    @manta.method(Int32Value, lane="stream")
    def count(self, request, context):
        for i in range(request.value):
            yield Int32Value(value=i)

    @manta.method(lane="control")
    def size(self, request, context):
        return b"%d" % len(request)


manta.serve(Tally())
)";

class PythonActor : public ::testing::Test {
 protected:
  void SetUp() override {
    const PythonProgram python = PythonProgram::Find();
    if (!python.missing.empty()) GTEST_SKIP() << "python-grpcio: " << python.missing;
    setenv("PYTHONPATH", python.path.c_str(), 1);
    dir_ = fs::path(::testing::TempDir()) / absl::StrCat("python-actor-", getpid());
    fs::create_directories(dir_);
    token_ = rpc::CreateTokenFile(dir_ / "token").value();
    std::ofstream(dir_ / "tally.py") << kProgram;
    int out[2];
    ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
    const int log = open((dir_ / "log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    actor_.emplace(Process::Spawn({.executable = python.python,
                                   .args = {(dir_ / "tally.py").string(), "--standalone", "--token-file",
                                            (dir_ / "token").string(), "--actor-id", "tally-0", "--epoch", "7",
                                            "--parent-pid", absl::StrCat(getpid())},
                                   .stdout_fd = out[1],
                                   .stderr_fd = log})
                       .value());
    close(out[1]);
    close(log);
    std::string line;
    for (char c; read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    close(out[0]);
    ASSERT_TRUE(absl::StartsWith(line, "listening ")) << line << Log();
    address_ = line.substr(10);
    client_ = actor::Client::Create({.token = token_}).value();
  }
  void TearDown() override {
    client_.reset();
    if (!actor_.has_value()) return;
    actor_->Signal(SIGTERM);
    const auto exit = actor_->WaitFor(absl::Seconds(10));
    ASSERT_TRUE(exit.has_value());
    EXPECT_EQ(exit->code, 0) << exit->ToString() << Log();
    if (!HasFailure()) fs::remove_all(dir_);
  }
  std::string Log() const {
    std::ifstream file(dir_ / "log");
    return absl::StrCat("\n", std::string(std::istreambuf_iterator<char>(file), {}));
  }
  actor::ActorHandle Handle(uint64_t epoch = 7) { return client_->ActorAt({"tally-0", epoch, address_}); }
  static actor::CallOptions Within(double seconds) { return {.deadline = absl::Seconds(seconds)}; }
  static Int32Value Number(int32_t value) {
    Int32Value message;
    message.set_value(value);
    return message;
  }

  std::string token_, address_;
  fs::path dir_;
  std::optional<Process> actor_;
  std::unique_ptr<actor::Client> client_;
};

TEST_F(PythonActor, AnswersInOrder) {
  const actor::ActorHandle tally = Handle();
  for (int i = 1; i <= 200; ++i) {
    const auto reply = tally.CallBlocking<Int32Value, Int32Value>("add", Number(1), Within(20));
    ASSERT_TRUE(reply.ok()) << reply.status() << Log();
    ASSERT_EQ(reply->value(), i);
  }
  // Many at once, of one caller and lane: still in order.
  std::vector<std::promise<absl::StatusOr<std::string>>> replies(500);
  for (auto& reply : replies) {
    tally.StartBytes("add", Number(1).SerializeAsString(), Within(30),
                     [&](absl::StatusOr<std::string> bytes) { reply.set_value(std::move(bytes)); });
  }
  for (size_t i = 0; i < replies.size(); ++i) {
    const auto bytes = replies[i].get_future().get();
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    Int32Value value;
    ASSERT_TRUE(value.ParseFromString(*bytes));
    EXPECT_EQ(value.value(), static_cast<int>(201 + i));
  }
}

TEST_F(PythonActor, ErrorsSayWhatIsKnownOfTheCall) {
  const auto outcome = [](const absl::Status& status) { return GetErrorInfo(status).outcome(); };
  const absl::Status refused = Handle().CallBytes("refuse", "", Within(20)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_EQ(refused.message(), "not today");
  EXPECT_EQ(outcome(refused), v1::CALL_OUTCOME_FAILED);
  const absl::Status bug = Handle().CallBytes("bug", "", Within(20)).status();
  EXPECT_THAT(std::string(bug.message()), HasSubstr("KeyError: 'nothing'"));
  EXPECT_THAT(Log(), HasSubstr("Traceback"));
  const absl::Status unknown = Handle().CallBytes("nothing", "", Within(20)).status();
  EXPECT_EQ(outcome(unknown), v1::CALL_OUTCOME_NOT_STARTED) << unknown;
  const absl::Status garbage = Handle().CallBytes("add", "\xff", Within(20)).status();
  EXPECT_EQ(garbage.code(), absl::StatusCode::kInvalidArgument) << garbage;
  EXPECT_EQ(outcome(garbage), v1::CALL_OUTCOME_NOT_STARTED);
  const absl::Status late = Handle().CallBytes("wait", "3", Within(0.3)).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(outcome(late), v1::CALL_OUTCOME_UNKNOWN);
  const absl::Status stale = Handle(/*epoch=*/6).CallBytes("add", "", Within(20)).status();
  EXPECT_EQ(stale.code(), absl::StatusCode::kFailedPrecondition) << stale;
  EXPECT_THAT(std::string(stale.message()), HasSubstr("epoch 7, not tally-0 of epoch 6"));
}

TEST_F(PythonActor, StrangersAreRefused) {
  auto stranger = actor::Client::Create({.token = std::string(64, '0')}).value();
  const absl::Status status = stranger->ActorAt({"tally-0", 7, address_}).CallBytes("add", "", Within(20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
}

TEST_F(PythonActor, StreamsAndLargeArguments) {
  auto items = Handle().Stream<Int32Value, Int32Value>("count", Number(1000), Within(30));
  for (int i = 0; i < 1000; ++i) {
    const auto item = items.Next();
    ASSERT_TRUE(item.ok()) << item.status();
    ASSERT_TRUE(item->has_value()) << i;
    ASSERT_EQ((*item)->value(), i);
  }
  EXPECT_FALSE(items.Next().value().has_value());
  const auto size = Handle().CallBytes("size", std::string(5 << 20, 'x'), Within(30));  // in chunks
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(*size, absl::StrCat(5 << 20));
}

TEST_F(PythonActor, AFullLaneRefusesAndControlGoesOn) {
  const actor::ActorHandle tally = Handle();
  std::vector<std::promise<absl::Status>> ended(6);
  for (auto& end : ended) {
    tally.StartBytes("wait", "1", Within(20),
                     [&](absl::StatusOr<std::string> reply) { end.set_value(reply.status()); });
  }
  const absl::Time begin = absl::Now();
  EXPECT_EQ(tally.CallBytes("size", "abc", Within(20)).value(), "3");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
  int refused = 0;
  for (auto& end : ended) {
    const absl::Status status = end.get_future().get();
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(GetErrorInfo(status).outcome(), v1::CALL_OUTCOME_NOT_STARTED);
  }
  EXPECT_GE(refused, 3);  // one runs, two wait
}

TEST_F(PythonActor, StopWaitsForWhatRuns) {
  std::promise<absl::StatusOr<std::string>> reply;
  Handle().StartBytes("wait", "0.5", Within(20), [&](absl::StatusOr<std::string> bytes) { reply.set_value(bytes); });
  absl::SleepFor(absl::Milliseconds(200));
  actor_->Signal(SIGTERM);
  const auto bytes = reply.get_future().get();
  ASSERT_TRUE(bytes.ok()) << bytes.status() << Log();
  EXPECT_EQ(*bytes, "waited");
}

}  // namespace
}  // namespace manta::testing
