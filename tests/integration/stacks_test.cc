// `manta stacks` of processes that are real: what their threads do comes back to who has asked, of actors in C++ and
// Python from themselves, of other programs as seen from outside, and none is disturbed by it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/actor/client.h"
#include "common/base/file.h"
#include "controller/node/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/python_program.h"
#include "tests/testing/build_dir.h"
#include "tests/testing/launched_cluster.h"

namespace manta::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPython[] = R"(
import time
import manta


class Sleeper(manta.Actor):

    @manta.method(lane="deep")
    def doze(self, request, context):
        return self.in_the_depths(context)

    def in_the_depths(self, context):
        return b"cancelled" if context.wait_cancelled(60) else b"slept"


manta.serve(Sleeper())
)";

class Stacks : public ::testing::Test {
 protected:
  void SetUp() override {
    auto cluster = LaunchedCluster::Launch(BuildDir() / "bin", "stacks_test", 8);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    client_ =
        actor::Client::Create({.token = cluster_->token(), .head = [this] { return cluster_->address(); }}).value();
  }
  void Start(v1::GroupRequest request, int ranks) {
    request.mutable_restart()->set_kind(v1::RestartPolicy::FAIL_JOB);
    request.mutable_placement()->add_bundles()->set_cpu_slots(1);
    request.mutable_placement()->set_repeat(ranks);
    request.mutable_placement()->set_deadline_ms(20000);
    const auto reply = cluster_->CreateGroup(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
  }
  // What `manta stacks` prints, and its exit code.
  std::string Print(std::vector<std::string> args, int code) const {
    const fs::path out = cluster_->dir() / "stacks.out";
    const std::string command = absl::StrCat("exec \"$0\" stacks \"$@\" >", out.string(), " 2>&1");
    std::vector<std::string> all = {"-c", command, (BuildDir() / "bin/manta").string(), "--dir",
                                    cluster_->dir().string()};
    all.insert(all.end(), args.begin(), args.end());
    auto process = Process::Spawn({.executable = "/bin/sh", .args = std::move(all)});
    EXPECT_TRUE(process.ok()) << process.status();
    const auto exit = process->WaitFor(absl::Seconds(40));
    EXPECT_TRUE(exit.has_value() && exit->code == code) << (exit.has_value() ? exit->ToString() : "it does not end");
    return ReadFile(out).value_or("");
  }

  std::unique_ptr<LaunchedCluster> cluster_;
  std::unique_ptr<actor::Client> client_;
};

TEST_F(Stacks, OfActorsThatAreInACallAndOfOtherPrograms) {
  v1::GroupRequest cpp;
  cpp.set_role("train");
  cpp.set_name("trainer");
  cpp.set_executable((BuildDir() / "bin/named_actor").string());
  Start(cpp, 2);
  // Both are in a call, as ranks that wait in a collective are.
  std::vector<std::shared_ptr<actor::CallCanceller>> calls;
  for (int rank = 0; rank < 2; ++rank) {
    calls.push_back(
        client_->Actor("trainer", rank).StartBytes("hang", "", {.deadline = absl::Seconds(60)}, [](auto) {}));
  }
  v1::GroupRequest plain;
  plain.set_role("other");
  plain.set_executable("/bin/sleep");
  plain.add_args("1000");
  plain.set_plain(true);
  Start(plain, 1);

  const absl::Time begin = absl::Now();
  const std::string trainers = Print({"--role", "train"}, 0);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(8));
  for (const char* actor : {"train-0", "train-1"})
    EXPECT_THAT(trainers, HasSubstr(absl::StrCat(actor, "\nstack of "))) << actor;
  EXPECT_THAT(trainers, HasSubstr("seen from outside:"));
  EXPECT_THAT(trainers, Not(HasSubstr("other-0")));

  const std::string everyone = Print({}, 0);
  for (const char* actor : {"train-0", "train-1", "other-0"})
    EXPECT_THAT(everyone, HasSubstr(absl::StrCat(actor, "\n")));
  EXPECT_THAT(everyone, HasSubstr(" (sleep) state "));
  EXPECT_THAT(Print({"--role", "nobody"}, 64), HasSubstr("no actor nobody runs"));
  for (const auto& call : calls) call->Cancel();
}

TEST_F(Stacks, OfAnActorInPython) {
  const PythonProgram python = PythonProgram::Find();
  if (!python.missing.empty()) GTEST_SKIP() << "python-grpcio: " << python.missing;
  const fs::path program = cluster_->dir() / "sleeper.py";
  std::ofstream(program) << kPython;
  v1::GroupRequest request;
  request.set_role("sleeper");
  request.set_name("sleeper");
  request.set_executable(python.python);
  request.add_args(program.string());
  (*request.mutable_env())["PYTHONPATH"] = python.path;
  Start(request, 1);
  const auto call = client_->Actor("sleeper").StartBytes("doze", "", {.deadline = absl::Seconds(60)}, [](auto) {});
  absl::SleepFor(absl::Milliseconds(500));
  for (int round = 0; round < 3; ++round) {  // whoever asks often takes nobody's breath away
    const std::string text = Print({"--role", "sleeper"}, 0);
    EXPECT_THAT(text, HasSubstr("sleeper-0\nStack (most recent call first):\n"));
    EXPECT_THAT(text, HasSubstr("in in_the_depths\n"));  // the handler's thread
    EXPECT_THAT(text, HasSubstr("asyncio"));             // the loop's
    EXPECT_THAT(text, Not(HasSubstr("[New LWP")));
  }
  call->Cancel();
}

}  // namespace
}  // namespace manta::testing
