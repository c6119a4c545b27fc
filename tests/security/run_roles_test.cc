// Roles and certificates in a run's real processes: head, agent and workers let in whom their protos name, the call
// plane too; what is refused is counted and written down.
#include "common/call/call_client.h"
#include "common/rpc/certificates.h"
#include "common/rpc/keys.h"
#include "common/rpc/token.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "manta/v1/actor.grpc.pb.h"
#include "manta/v1/cluster.grpc.pb.h"
#include "tests/integration/runtime_job.h"
#include "tests/security/stranger.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class RunRoles : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> controller_args = {}, std::vector<std::string> node_args = {"--cpu-slots", "4"}) {
    job_.emplace("train 1 1\nseconds 60\n", std::move(controller_args), std::move(node_args));
    ASSERT_TRUE(job_->WaitReady()) << job_->Log("controller.log") << job_->Log("node-n0.log");
    v1::GroupRequest request;
    request.set_role("count");
    request.set_executable((job_->bin() / "counting_actor").string());
    request.add_args((job_->run_dir() / "counted").string());
    request.mutable_placement()->add_bundles()->set_cpu_slots(1);
    request.mutable_placement()->set_repeat(1);
    request.mutable_placement()->set_deadline_ms(10000);
    request.set_start_deadline_ms(10000);
    const auto group = Ask(&v1::ClusterService::Stub::CreateGroup, Cluster("token"), request);
    ASSERT_TRUE(group.ok()) << group.status();
    counter_ = group->ranks(0);
    v1::ListRequest all;
    all.set_actors(true);
    const v1::ListReply list = Ask(&v1::ClusterService::Stub::List, Cluster("token"), all).value();
    for (const v1::ActorInfo& actor : list.actors()) {
      if (actor.actor_id() == "train-0") trainer_ = actor;
    }
    ASSERT_FALSE(trainer_.address().empty());
  }
  void TearDown() override {
    if (job_.has_value()) (void)job_->StopRun("enough");
    job_.reset();
    unsetenv("MANTA_TLS_DIR");
    rpc::SetProcessTls(std::nullopt);
  }

  std::string Keys(const std::string& file) const { return rpc::ReadTokenFile(job_->run_dir() / file).value(); }
  std::shared_ptr<grpc::Channel> Connect(const std::string& address, const std::string& file) const {
    return rpc::OpenChannel(address, Keys(file)).value();
  }
  std::unique_ptr<v1::ClusterService::Stub> Cluster(const std::string& file) const {
    return v1::ClusterService::NewStub(Connect(job_->address(), file));
  }
  template <typename Stub, typename Request, typename Reply>
  static absl::StatusOr<Reply> Ask(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                                   const std::unique_ptr<Stub>& stub, const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    Reply reply;
    const absl::Status status = rpc::FromGrpc(((*stub).*method)(&context, request, &reply));
    if (!status.ok()) return status;
    return reply;
  }
  absl::StatusCode Ping(const std::string& token) {
    auto stub = v1::ActorService::NewStub(rpc::OpenChannel(trainer_.address(), token).value());
    return Ask(&v1::ActorService::Stub::Ping, stub, v1::PingRequest()).status().code();
  }
  absl::Status Count(const std::string& token) {
    auto client = call::CallClient::Create({.token = token, .caller = {}, .reconnect_for = absl::Seconds(3)}).value();
    auto peer = client->Connect(counter_.address(), counter_.actor_id(), counter_.epoch());
    if (!peer.ok()) return peer.status();
    return (*peer)->CallBlocking("count", "1", {.deadline = absl::Seconds(10)}).status();
  }
  double Refused(const std::string& reason) {
    const auto counters = Ask(&v1::ClusterService::Stub::Counters, Cluster("token.reader"), v1::ListRequest());
    EXPECT_TRUE(counters.ok()) << counters.status();
    return counters.ok() ? counters->counters().at(absl::StrCat("manta_rpc_refused_total{reason=\"", reason, "\"}")) : -1;
  }
  bool WaitLog(const std::string& name, const std::string& what) {
    for (int i = 0; i < 100; ++i, absl::SleepFor(absl::Milliseconds(50))) {
      if (job_->Log(name).find(what) != std::string::npos) return true;
    }
    return false;
  }

  std::optional<RuntimeJob> job_;
  v1::ActorInfo counter_, trainer_;
};

TEST_F(RunRoles, EveryServerKeepsToThem) {
  Start();
  // What a worker has: its own token, and nobody else's.
  EXPECT_EQ(rpc::ReadTokenFile(job_->run_dir() / "node-n0" / "worker.token").value(), Keys("token.worker"));

  const double before = Refused("role");
  v1::JobRef everything;
  for (const char* file : {"token.worker", "token.node", "token.reader"}) {
    EXPECT_EQ(Ask(&v1::ClusterService::Stub::StopJob, Cluster(file), everything).status().code(),
              absl::StatusCode::kPermissionDenied)
        << file;
  }
  EXPECT_EQ(Refused("role"), before + 3);
  EXPECT_TRUE(Ask(&v1::ClusterService::Stub::List, Cluster("token.node"), v1::ListRequest()).ok());
  EXPECT_EQ(Ask(&v1::ClusterService::Stub::List, Cluster("token.worker"), v1::ListRequest()).status().code(),
            absl::StatusCode::kPermissionDenied);

  const std::string strangers = rpc::RoleTokens("another job").KeysOf(v1::ROLE_ADMIN);
  EXPECT_EQ(Ping(Keys("token")), absl::StatusCode::kOk);
  EXPECT_EQ(Ping(Keys("token.worker")), absl::StatusCode::kOk);
  EXPECT_EQ(Ping(Keys("token.node")), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Ping(strangers), absl::StatusCode::kUnauthenticated);
  EXPECT_TRUE(WaitLog("train-0.log", "refused reason=wrong_token method=/manta.v1.ActorService/Ping"));

  EXPECT_TRUE(Count(Keys("token")).ok()) << Count(Keys("token"));
  EXPECT_TRUE(Count(Keys("token.worker")).ok());
  for (const std::string& token : {Keys("token.reader"), Keys("token.node")}) {
    const absl::Status status = Count(token);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  }
  EXPECT_EQ(Count(strangers).code(), absl::StatusCode::kUnauthenticated);
  EXPECT_TRUE(WaitLog(counter_.actor_id() + ".log", "refused reason=role method=/manta.v1.CallService/Open"));

  EXPECT_TRUE(WaitLog("audit.log", "call method=/manta.v1.NodeService/Join role=node peer=ipv4:127.0.0.1:"));
  EXPECT_TRUE(WaitLog("audit.log", "call method=/manta.v1.ClusterService/CreateGroup role=admin peer=ipv4:127.0.0.1:"));
  EXPECT_TRUE(WaitLog("audit.log", "refused reason=role method=/manta.v1.ClusterService/StopJob because"));
  EXPECT_TRUE(job_->StopRun("enough").ok());
  EXPECT_TRUE(WaitLog("audit.log", "StopRun role=admin peer=ipv4:127.0.0.1:"));
  EXPECT_TRUE(job_->WaitAllGone(absl::Seconds(15)).ok());
}

TEST_F(RunRoles, CertificatesCarryAWholeRun) {
  const auto dir = std::filesystem::path(::testing::TempDir()) / absl::StrCat("run_roles.", getpid());
  std::filesystem::remove_all(dir);
  ASSERT_TRUE(rpc::InitCertificates(dir / "tls", {.job = "job", .nodes = {"n0"}}).ok());
  setenv("MANTA_TLS_DIR", (dir / "tls").c_str(), 1);
  rpc::SetProcessTls(rpc::TlsFilesIn(dir / "tls", "admin").value());
  // Beyond loopback; what is told is the host's name.
  Start({"--listen", "0.0.0.0:0"}, {"--cpu-slots", "4", "--address", "127.0.0.2"});
  EXPECT_THAT(job_->address(), Not(StartsWith("0.0.0.0")));
  EXPECT_THAT(trainer_.address(), StartsWith("127.0.0.2:"));

  EXPECT_EQ(Ping(Keys("token")), absl::StatusCode::kOk);
  EXPECT_TRUE(Count(Keys("token")).ok()) << Count(Keys("token"));
  EXPECT_TRUE(WaitLog("audit.log", "certificate=manta://job/node/n0 begins"));

  // Renewed while all goes on.
  ASSERT_TRUE(rpc::InitCertificates(dir / "tls", {.job = "job", .nodes = {"n0"}}).ok());
  absl::SleepFor(absl::Milliseconds(2500));
  EXPECT_EQ(Ping(Keys("token")), absl::StatusCode::kOk);
  EXPECT_TRUE(Count(Keys("token.worker")).code() == absl::StatusCode::kPermissionDenied) << "an admin's certificate";

  // Another job's certificate, and none.
  ASSERT_TRUE(rpc::InitCertificates(dir / "other", {.job = "job"}).ok());
  rpc::TlsFiles others = rpc::TlsFilesIn(dir / "other", "admin").value();
  others.ca = dir / "tls" / "ca.pem";
  auto stranger = v1::ActorService::NewStub(StrangersChannel(trainer_.address(), others, Keys("token")));
  EXPECT_EQ(Ask(&v1::ActorService::Stub::Ping, stranger, v1::PingRequest()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_TRUE(WaitLog("train-0.log", "refused reason=tls"));
  rpc::SetProcessTls(std::nullopt);
  EXPECT_EQ(Ping(Keys("token")), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(WaitLog("train-0.log", "refused reason=first_bytes"));

  rpc::SetProcessTls(rpc::TlsFilesIn(dir / "tls", "admin").value());
  EXPECT_TRUE(job_->StopRun("enough").ok());
  EXPECT_TRUE(job_->WaitAllGone(absl::Seconds(15)).ok());
  std::filesystem::remove_all(dir);
}

TEST_F(RunRoles, NobodyListensBeyondLoopbackWithoutCertificates) {
  const char* build = std::getenv("MANTA_BUILD_DIR");
  const std::string bin = std::string(build != nullptr ? build : "build") + "/bin/";
  const auto dir = std::filesystem::path(::testing::TempDir()) / absl::StrCat("run_roles.", getpid());
  std::filesystem::create_directories(dir);
  ASSERT_TRUE(rpc::CreateTokenFile(dir / "token").ok());
  const std::vector<std::pair<std::string, std::vector<std::string>>> programs = {
      {"runtime_controller", {"--run-dir", dir.string(), "--listen", "0.0.0.0:0", "--cluster"}},
      {"runtime_worker", {"--standalone", "--token-file", (dir / "token").string(), "--listen", "0.0.0.0:0"}},
  };
  for (const auto& [program, args] : programs) {
    const std::string log = (dir / program).string();
    const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    Process process = Process::Spawn({.executable = bin + program, .args = args, .stdout_fd = fd, .stderr_fd = fd}).value();
    close(fd);
    const auto ended = process.WaitFor(absl::Seconds(10));
    ASSERT_TRUE(ended.has_value()) << program;
    EXPECT_NE(ended->code, 0) << program;
    EXPECT_THAT(ReadFile(log).value(), HasSubstr("refusing to listen on 0.0.0.0:0: without TLS credentials")) << program;
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace manta::testing
