// What a container platform sees of the processes: probes over HTTP, readiness that follows the cluster, the end on
// SIGTERM and its exit codes.
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/rpc/listen.h"
#include "common/rpc/token.h"
#include "gmock/gmock.h"
#include "manta/v1/cluster.grpc.pb.h"
#include "tests/integration/runtime_job.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;

int FreePort() {
  const int socket = rpc::ListenOn("127.0.0.1:0").value();
  const int port = rpc::PortOf(socket);
  close(socket);
  return port;
}

// The status line, or empty where nobody answers.
std::string Get(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string reply;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n");
    (void)!send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    char bytes[512];
    for (ssize_t n; (n = recv(fd, bytes, sizeof(bytes), 0)) > 0;) reply.append(bytes, static_cast<size_t>(n));
  }
  close(fd);
  return reply.substr(0, reply.find('\r'));
}

bool WaitFor(int port, const std::string& path, const std::string& line) {
  for (int i = 0; i < 500; ++i) {
    if (Get(port, path) == line) return true;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return false;
}

std::string Listen(int port) {
  return absl::StrCat("127.0.0.1:", port);
}

// Its exit code; 1000 where it does not end.
int CodeOf(Process& process) {
  const auto ended = process.WaitFor(absl::Seconds(10));
  return ended.has_value() ? ended->code : 1000;
}

TEST(Container, AnAgentIsReadyOnceItHasJoinedAndEndsItsWorkersOnSigterm) {
  const int port = FreePort();
  RuntimeJob job("gen 1 1\nseconds 30\n", {}, {"--cpu-slots", "4", "--probe-listen", Listen(port)});
  ASSERT_TRUE(job.WaitReady());
  EXPECT_TRUE(WaitFor(port, "/healthz", "HTTP/1.1 200 OK"));
  EXPECT_TRUE(WaitFor(port, "/readyz", "HTTP/1.1 200 OK"));
  EXPECT_EQ(Get(port, "/"), "HTTP/1.1 404 Not Found");
  job.node().Signal(SIGTERM);
  EXPECT_EQ(CodeOf(job.node()), 0) << job.Log("node-n0.log");
  EXPECT_EQ(Get(port, "/healthz"), "");
  EXPECT_TRUE(job.WaitAllGone(absl::Seconds(15)).ok());
}

TEST(Container, AnAgentWithoutAHeadIsAliveAndNotReady) {
  const int port = FreePort(), nobody = FreePort();
  const char* build = std::getenv("MANTA_BUILD_DIR");
  const auto dir = std::filesystem::path(::testing::TempDir()) / absl::StrCat("container.", getpid());
  std::filesystem::create_directories(dir);
  ASSERT_TRUE(rpc::CreateTokenFile(dir / "token").ok());
  Process agent = Process::Spawn({.executable = absl::StrCat(build != nullptr ? build : "build", "/bin/manta-node"),
                                  .args = {"--controller", Listen(nobody), "--token-file", (dir / "token").string(),
                                           "--name", "n0", "--probe-listen", Listen(port)},
                                  .new_process_group = true})
                      .value();
  EXPECT_TRUE(WaitFor(port, "/healthz", "HTTP/1.1 200 OK"));
  EXPECT_EQ(Get(port, "/readyz"), "HTTP/1.1 503 Service Unavailable");
  agent.Signal(SIGTERM);
  EXPECT_EQ(CodeOf(agent), 0);
  std::filesystem::remove_all(dir);
}

TEST(Container, AHeadThatIsMovedLeavesWhatRunsToTheNext) {
  const int port = FreePort();
  const std::vector<std::string> args = {"--cluster", "--probe-listen", Listen(port), "--on-sigterm", "leave"};
  RuntimeJob job("", args);
  EXPECT_TRUE(WaitFor(port, "/healthz", "HTTP/1.1 200 OK"));
  EXPECT_TRUE(WaitFor(port, "/readyz", "HTTP/1.1 200 OK"));
  EventLoop loop;
  auto stub = v1::ClusterService::NewStub(rpc::OpenChannel(job.address(), job.token()).value());
  v1::WaitNodesRequest wait;
  wait.set_nodes(1);
  wait.set_timeout_ms(10000);
  ASSERT_TRUE(RunToCompletion(loop, rpc::Call(loop, stub->async(), &rpc::AsyncOf<v1::ClusterService>::WaitNodes, wait,
                                              {.deadline = absl::Seconds(15)}))
                  .ok());
  v1::GroupRequest request;
  request.set_role("gen");
  request.set_executable((job.bin() / "runtime_worker").string());
  request.mutable_placement()->add_bundles()->set_cpu_slots(1);
  request.mutable_placement()->set_repeat(1);
  request.mutable_placement()->set_deadline_ms(10000);
  request.set_start_deadline_ms(10000);
  const auto create = [&] {
    return RunToCompletion(loop, rpc::Call(loop, stub->async(), &rpc::AsyncOf<v1::ClusterService>::CreateGroup, request,
                                           {.deadline = absl::Seconds(20)}));
  };
  const auto group = create();
  ASSERT_TRUE(group.ok()) << group.status();
  const auto pid = static_cast<int>(group->ranks(0).pid());
  ASSERT_GT(pid, 1);

  job.controller().Signal(SIGTERM);
  EXPECT_EQ(CodeOf(job.controller()), 0) << job.Log("controller.log");
  EXPECT_EQ(Get(port, "/healthz"), "");
  EXPECT_EQ(kill(pid, 0), 0);
  EXPECT_THAT(job.Log("controller.log"), HasSubstr("everything stays as it is for the next controller"));
  std::vector<std::string> again = {"--run-dir", job.run_dir().string()};
  again.insert(again.end(), args.begin(), args.end());
  Process next = job.StartMarked("runtime_controller", again, "controller.log");
  EXPECT_TRUE(WaitFor(port, "/readyz", "HTTP/1.1 200 OK"));
  const auto adopted = create();  // it is there
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_TRUE(adopted->adopted());
  EXPECT_EQ(adopted->ranks(0).pid(), pid);

  KillProcess(next.pid(), SIGINT);  // this one stops everything
  EXPECT_EQ(CodeOf(next), 0) << job.Log("controller.log");
  EXPECT_TRUE(job.WaitAllGone(absl::Seconds(15)).ok());
}

TEST(Container, WrongUseIs64) {
  const char* build = std::getenv("MANTA_BUILD_DIR");
  const std::string bin = absl::StrCat(build != nullptr ? build : "build", "/bin/");
  for (const auto& [program, args] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"manta-node", {"--controller", "127.0.0.1:1"}},
           {"manta-node", {"--controller", "127.0.0.1:1", "--token-file", "/nonexistent/token", "--name", "n0"}},
           {"runtime_controller", {"--on-sigterm", "sometimes", "--run-dir", "/nonexistent"}}}) {
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    Process process =
        Process::Spawn({.executable = bin + program, .args = args, .stdout_fd = null, .stderr_fd = null}).value();
    close(null);
    EXPECT_EQ(CodeOf(process), 64) << program;
  }
}

}  // namespace
}  // namespace manta::testing
