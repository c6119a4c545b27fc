// An actor in Python is alive as long as it computes, whatever it computes: in Python on another thread, under calls,
// or in one operation that holds the interpreter's lock. One that is stopped is not.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/actor/client.h"
#include "common/base/kill.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/python_program.h"
#include "tests/testing/build_dir.h"
#include "tests/testing/launched_cluster.h"

namespace manta::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kProgram[] = R"(
import os
import time
import manta


class Worker(manta.Actor):

    @manta.method(lane="burn")
    def burn(self, request, context):  # seconds, of Python
        end, n = time.monotonic() + float(request), 0
        while time.monotonic() < end:
            n += 1
        return b"%d" % n

    @manta.method(lane="burn")
    def hold(self, request, context):  # seconds, or a little more, in one operation
        begin = time.monotonic()
        sum(range(10**7))
        once = time.monotonic() - begin
        begin = time.monotonic()
        sum(range(int(10**7 * float(request) / once)))
        return b"%g" % (time.monotonic() - begin)

    @manta.method(idempotent=True)
    def who(self, request, context):
        return b"%d" % os.getpid()


manta.serve(Worker())
)";

class PythonLiveness : public ::testing::Test {
 protected:
  void SetUp() override {
    const PythonProgram python = PythonProgram::Find();
    if (!python.missing.empty()) GTEST_SKIP() << "python-grpcio: " << python.missing;
    auto cluster = LaunchedCluster::Launch(BuildDir() / "bin", "liveness_test", 4);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    const fs::path program = cluster_->dir() / "worker.py";
    std::ofstream(program) << kProgram;
    v1::GroupRequest request;
    request.set_role("worker");
    request.set_name("worker");
    request.set_executable(python.python);
    request.add_args(program.string());
    (*request.mutable_env())["PYTHONPATH"] = python.path;
    request.mutable_restart()->set_kind(v1::RestartPolicy::REPLACE_ONE);
    request.mutable_restart()->set_backoff_ms(100);
    request.mutable_restart()->set_max_restarts(5);
    request.mutable_placement()->add_bundles()->set_cpu_slots(1);
    request.mutable_placement()->set_repeat(1);
    request.mutable_placement()->set_deadline_ms(20000);
    const auto reply = cluster_->CreateGroup(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    pid_ = reply->ranks(0).pid();
    client_ =
        actor::Client::Create({.token = cluster_->token(), .head = [this] { return cluster_->address(); }}).value();
    worker_.emplace(client_->Actor("worker"));
  }
  std::future<absl::StatusOr<std::string>> Start(const std::string& method, const std::string& argument) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<std::string>>>();
    worker_->StartBytes(method, argument, {.deadline = absl::Seconds(100)},
                        [promise](absl::StatusOr<std::string> reply) { promise->set_value(std::move(reply)); });
    return promise->get_future();
  }
  absl::StatusOr<std::string> Who() { return worker_->CallBytes("who", "", {.deadline = absl::Seconds(60)}); }

  std::unique_ptr<LaunchedCluster> cluster_;
  std::unique_ptr<actor::Client> client_;
  std::optional<actor::ActorHandle> worker_;
  int64_t pid_ = 0;
};

TEST_F(PythonLiveness, CallsGoOnBesideAThreadThatBurns) {
  auto burnt = Start("burn", "12");
  const absl::Time until = absl::Now() + absl::Seconds(12);
  int calls = 0;
  absl::Duration slowest;
  for (absl::Time next = absl::Now(); absl::Now() < until; next += absl::Milliseconds(5)) {  // 200 a second
    const absl::Time begin = absl::Now();
    ASSERT_EQ(Who().value_or(""), absl::StrCat(pid_));
    slowest = std::max(slowest, absl::Now() - begin);
    ++calls;
    absl::SleepFor(next - absl::Now());
  }
  const auto result = burnt.get();
  ASSERT_TRUE(result.ok()) << result.status();
  std::printf("%d calls beside it, the slowest %.0f ms\n", calls, absl::ToDoubleMilliseconds(slowest));
}

TEST_F(PythonLiveness, AnOperationThatHoldsTheLockIsNoSilence) {
  const auto held = Start("hold", "14").get();  // a silent worker is dead after ten seconds
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(Who().value_or(""), absl::StrCat(pid_));
}

TEST_F(PythonLiveness, AStoppedOneIsDeadSoon) {
  ASSERT_EQ(Who().value_or(""), absl::StrCat(pid_));
  const absl::Time begin = absl::Now();
  ASSERT_TRUE(KillProcess(pid_, SIGSTOP));
  const auto other = Who();  // idempotent: the next one answers
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(*other, absl::StrCat(pid_));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(25));
}

}  // namespace
}  // namespace manta::testing
