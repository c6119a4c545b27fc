// Actors that are not quite on their caller's host: of another PID namespace, of a /proc that is another namespace's,
// of another user. Large arguments reach each of them, and no call is lost on the way. The actors are this program
// again.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/kill.h"
#include "common/base/process_info.h"
#include "common/call/call_fixture_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::call {
namespace {

constexpr uid_t kNobody = 65534;

// Answers "size" with how many bytes have come, and by which way. Ends with its parent.
int Serve() {
  TestActor actor;
  actor.server.AddMethod("size", {}, [](CallContext& context, std::string* reply) {
    const char* way = context.call().has_shm() ? "shared" : context.call().transfer() != 0 ? "chunks" : "inline";
    *reply = absl::StrCat(context.payload().size(), " ", way, " ", HostId());
    return absl::OkStatus();
  });
  actor.Start();
  std::printf("%s\n", actor.rpc->address().c_str());
  std::fflush(stdout);
  char end;
  while (read(STDIN_FILENO, &end, 1) > 0) continue;
  actor.Stop();
  return 0;
}

[[noreturn]] void Exec() {
  execl("/proc/self/exe", "other_host_test", "--serve", nullptr);
  execl(program_invocation_name, "other_host_test", "--serve", nullptr);  // where /proc says nothing of us
  _exit(127);
}

enum class Where { kHere, kPidNamespace, kForeignProc, kOtherUser };

// In the child: goes there. False where that is not permitted.
bool Go(Where where) {
  switch (where) {
    case Where::kHere:
      return true;
    case Where::kOtherUser:
      return setgid(kNobody) == 0 && setuid(kNobody) == 0;
    case Where::kPidNamespace:
    case Where::kForeignProc:
      break;
  }
  if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return false;
  const pid_t inside = fork();
  if (inside < 0) return false;
  if (inside > 0) {  // waits for the namespace's first process
    int status = 0;
    waitpid(inside, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (where == Where::kForeignProc) return true;  // /proc goes on to show the outer processes
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0;
}

class OtherHost : public ::testing::Test {
 protected:
  // The address that the actor prints; empty where it could not go there.
  std::string Start(Where where) {
    int in[2], out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    child_ = fork();
    if (child_ == 0) {
      close(in[1]);
      close(out[0]);
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      if (!Go(where)) _exit(77);
      Exec();
    }
    close(in[0]);
    close(out[1]);
    gate_ = in[1];
    std::string line;
    for (char c; read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    close(out[0]);
    return line;
  }
  void TearDown() override {
    if (gate_ >= 0) close(gate_);
    if (child_ > 1) waitpid(child_, nullptr, 0);
  }
  // "BYTES WAY HOST_ID", of an argument of 3 MiB; twice, for what one call has learned is known to the next.
  void Expect(const std::string& address, const std::string& way, bool same_id) {
    auto client = TestActor::Client();
    const auto peer = client->Connect(address, "a-0", 1).value();
    const std::string argument(3 << 20, 'x');
    for (int round = 0; round < 2; ++round) {
      const auto reply = peer->CallBlocking("size", argument, {.deadline = absl::Seconds(20)});
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_THAT(*reply, ::testing::StartsWith(absl::StrCat(3 << 20, " ", way, " ")));
      EXPECT_EQ(absl::EndsWith(*reply, HostId()), same_id) << *reply << ", here " << HostId();
    }
  }

  pid_t child_ = -1;
  int gate_ = -1;
};

TEST_F(OtherHost, AnotherProcessOfThisOneSharesMemory) {
  const std::string address = Start(Where::kHere);
  ASSERT_FALSE(address.empty());
  Expect(address, "shared", true);
}

TEST_F(OtherHost, AnotherPidNamespaceIsAnotherHost) {
  const std::string address = Start(Where::kPidNamespace);
  if (address.empty()) GTEST_SKIP() << "unshare-pid: no PID namespace with a /proc of its own may be made";
  Expect(address, "chunks", false);
}

TEST_F(OtherHost, SoIsOneThatSeesAnotherNamespacesProc) {
  const std::string address = Start(Where::kForeignProc);
  if (address.empty()) GTEST_SKIP() << "unshare-pid: no PID namespace may be made";
  Expect(address, "chunks", false);
}

TEST_F(OtherHost, AnotherUserMayNotOpenItAndNoCallIsLost) {
  if (geteuid() != 0) GTEST_SKIP() << "root: becoming another user needs it";
  const std::string address = Start(Where::kOtherUser);
  if (address.empty()) GTEST_SKIP() << "setuid: not permitted, or the program is not to be read by others";
  Expect(address, "chunks", true);
}

}  // namespace
}  // namespace manta::call

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--serve") == 0) return manta::call::Serve();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
