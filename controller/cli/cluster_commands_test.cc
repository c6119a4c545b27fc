// The cluster commands against a head that answers what the test tells it to: what they ask, what they print, with
// which code they end.
#include "controller/cli/cluster_commands.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/rpc/certificates.h"
#include "common/rpc/server.h"
#include "common/rpc/token.h"
#include "controller/cli/daemon.h"
#include "controller/cli/output.h"
#include "controller/cli/run_dir.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "grpcpp/server_context.h"
#include "gtest/gtest.h"
#include "manta/v1/cluster.grpc.pb.h"

namespace manta::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FakeHead final : public v1::ClusterService::Service {
 public:
  grpc::Status List(grpc::ServerContext*, const v1::ListRequest* request, v1::ListReply* reply) override {
    list_request = *request;
    *reply = list;
    // Two pages.
    if (request->after().empty() && list.actors_size() > 1) {
      reply->mutable_actors()->DeleteSubrange(1, list.actors_size() - 1);
      reply->set_next("1");
    } else if (!request->after().empty()) {
      reply->mutable_actors()->DeleteSubrange(0, 1);
    }
    return grpc::Status::OK;
  }
  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest* request, v1::DescribeReply* reply) override {
    if (request->what() != "train") return {grpc::StatusCode::NOT_FOUND, "there is no '" + request->what() + "'"};
    reply->mutable_group()->set_role("train");
    reply->mutable_group()->set_job("run");
    reply->mutable_group()->set_state("READY");
    reply->mutable_group()->add_history("epoch 2: train-0 was killed by signal 9");
    return grpc::Status::OK;
  }
  grpc::Status WaitNodes(grpc::ServerContext*, const v1::WaitNodesRequest* request, v1::Done*) override {
    if (request->nodes() <= 2) return grpc::Status::OK;
    return {grpc::StatusCode::DEADLINE_EXCEEDED, "2 of 3 nodes have joined"};
  }
  grpc::Status StopJob(grpc::ServerContext*, const v1::JobRef* request, v1::Done*) override {
    stopped = request->job();
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request, v1::Done*) override {
    drained = *request;
    return grpc::Status::OK;
  }
  grpc::Status Shutdown(grpc::ServerContext*, const v1::ShutdownRequest*, v1::Done*) override {
    return grpc::Status::OK;
  }
  grpc::Status Logs(grpc::ServerContext*, const v1::LogsRequest* request,
                    grpc::ServerWriter<v1::LogChunk>* writer) override {
    logs_request = *request;
    const auto write = [&](uint64_t rank, const std::string& data) {
      v1::LogChunk chunk;
      chunk.set_id(rank);
      chunk.set_data(data);
      writer->Write(chunk);
    };
    write(0, "zero a\nzero");
    write(1, "one a\n");
    write(0, " b\n");
    write(1, "one, unfinished");
    return grpc::Status::OK;
  }

  v1::ListReply list;
  v1::ListRequest list_request;
  v1::LogsRequest logs_request;
  v1::DrainRequest drained;
  std::string stopped;
};

class ClusterCommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) / absl::StrCat("cluster-commands-", getpid());
    fs::create_directories(dir_);
    const std::string token = rpc::CreateTokenFile(dir_ / "token").value();
    server_ = rpc::Server::Start({.token = token}, {&head_}).value();
    ASSERT_TRUE(WriteControllerAddress(dir_, server_->address()).ok());
  }
  void TearDown() override { fs::remove_all(dir_); }

  // Its exit code; what it printed is in out_ and error_.
  int Run(std::vector<std::string> args, bool with_dir = true) {
    CLI::App app("test", "manta");
    app.require_subcommand(1);
    const ClusterCommands commands = AddClusterCommands(app);
    if (with_dir) args.insert(args.end(), {"--dir", dir_.string()});
    std::reverse(args.begin(), args.end());
    try {
      app.parse(args);
    } catch (const CLI::ParseError& error) {
      error_ = error.what();
      return 64;
    }
    ::testing::internal::CaptureStdout();
    absl::Status status;
    for (const ClusterCommand& command : commands) {
      if (*command.app) status = command.run();
    }
    std::fflush(stdout);
    out_ = ::testing::internal::GetCapturedStdout();
    error_ = std::string(status.message());
    return ExitCode(status);
  }

  FakeHead head_;
  std::unique_ptr<rpc::Server> server_;
  fs::path dir_;
  std::string out_, error_;
};

TEST_F(ClusterCommandsTest, ListsAreTables) {
  v1::NodeInfo* node = head_.list.add_nodes();
  node->set_node("n0");
  node->set_state("JOINED");
  node->set_cpu_slots(8);
  node->set_cpu_used(3);
  node->set_memory_bytes(uint64_t{16} << 30);
  (*node->mutable_labels())["zone"] = "a";
  EXPECT_EQ(Run({"nodes"}), 0) << error_;
  EXPECT_EQ(out_,
            "node  state   cpu slots  gpus    memory     silent  address  labels\n"
            "n0    JOINED  3 of 8     0 of 0  16384 MiB  0 ms    -        zone=a\n");
  EXPECT_TRUE(head_.list_request.nodes());
}

TEST_F(ClusterCommandsTest, JsonIsTheReplysMessageOverAllPages) {
  for (int rank = 0; rank < 2; ++rank) {
    v1::ActorInfo* actor = head_.list.add_actors();
    actor->set_actor_id(absl::StrCat("train-", rank));
    actor->set_rank(rank);
    actor->set_epoch((uint64_t{7} << 32) + 1);
    actor->set_state(v1::ACTOR_STATE_READY);
  }
  EXPECT_EQ(Run({"actors", "--json", "--role", "train"}), 0) << error_;
  v1::ListReply parsed;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out_, &parsed).ok()) << out_;
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(parsed, head_.list)) << out_;
  EXPECT_EQ(head_.list_request.role(), "train");
  EXPECT_THAT(out_, HasSubstr("\"actor_id\": \"train-1\""));
}

TEST_F(ClusterCommandsTest, DescribeSaysWhatIsKnown) {
  EXPECT_EQ(Run({"describe", "train"}), 0) << error_;
  EXPECT_THAT(out_, HasSubstr("group        run/train\nstate        READY\n"));
  EXPECT_THAT(out_, HasSubstr("history      epoch 2: train-0 was killed by signal 9\n"));
  EXPECT_EQ(Run({"describe", "nobody"}), 64);
  EXPECT_EQ(error_, "there is no 'nobody'");
}

TEST_F(ClusterCommandsTest, LogsComeInWholeLines) {
  EXPECT_EQ(Run({"logs", "gen", "-n", "5"}), 0) << error_;
  EXPECT_EQ(out_, "gen-0 | zero a\ngen-1 | one a\ngen-0 | zero b\ngen-1 | one, unfinished\n");
  EXPECT_TRUE(head_.logs_request.all_ranks());
  EXPECT_EQ(head_.logs_request.lines(), 5);
  EXPECT_EQ(Run({"logs", "gen", "--rank", "1"}), 0) << error_;
  EXPECT_FALSE(head_.logs_request.all_ranks());
  EXPECT_EQ(head_.logs_request.rank(), 1);
}

TEST_F(ClusterCommandsTest, WaitDrainAndStop) {
  EXPECT_EQ(Run({"wait", "--nodes", "2", "--timeout", "1"}), 0) << error_;
  EXPECT_EQ(Run({"wait", "--nodes", "3", "--timeout", "1"}), 69);
  EXPECT_EQ(error_, "2 of 3 nodes have joined");
  EXPECT_EQ(Run({"drain", "n0", "n1", "--undo"}), 0) << error_;
  EXPECT_EQ(head_.drained.nodes_size(), 2);
  EXPECT_TRUE(head_.drained.undo());
  EXPECT_EQ(Run({"stop", "job-1"}), 0) << error_;
  EXPECT_EQ(head_.stopped, "job-1");
  EXPECT_EQ(Run({"stop"}), 64);
  EXPECT_EQ(Run({"stop", "job-1", "--all"}), 64);
  EXPECT_EQ(Run({"stop", "--all", "--json"}), 0) << error_;
}

TEST_F(ClusterCommandsTest, CertificatesAreMadeRenewedAndReplaced) {
  const std::string certs = (dir_ / "certs").string();
  const auto read = [&](const char* name) { return ReadFile(fs::path(certs) / name).value(); };
  EXPECT_EQ(Run({"init-certs", certs, "--job", "nightly", "--nodes", "n0", "--json"}, false), 0) << error_;
  EXPECT_THAT(out_, HasSubstr("\"job\":\"nightly\""));
  const std::string ca = read("ca.pem"), n0 = read("n0.pem"), token = read("token.node");
  // Renewed without a word of the job or its nodes.
  EXPECT_EQ(Run({"init-certs", certs, "--nodes", "n1"}, false), 0) << error_;
  EXPECT_EQ(read("ca.pem"), ca);
  EXPECT_NE(read("n0.pem"), n0);
  EXPECT_EQ(read("token.node"), token);
  const auto holders = rpc::HoldersIn(certs).value();
  ASSERT_EQ(holders.size(), 6u);
  EXPECT_EQ(holders[1].Uri(), "manta://nightly/node/n0");
  EXPECT_EQ(Run({"init-certs", certs, "--job", "other"}, false), 64);
  EXPECT_THAT(error_, HasSubstr("holds certificates of job nightly, not of other"));

  EXPECT_EQ(Run({"init-certs", certs, "--add-ca", "--drop-old-ca"}, false), 64);
  EXPECT_EQ(Run({"init-certs", certs, "--add-ca"}, false), 0) << error_;
  EXPECT_THAT(read("ca.pem"), HasSubstr(ca));
  EXPECT_EQ(Run({"init-certs", certs}, false), 0) << error_;
  EXPECT_EQ(Run({"init-certs", certs, "--drop-old-ca"}, false), 0) << error_;
  EXPECT_EQ(read("ca.pem").find(ca), std::string::npos);
  EXPECT_TRUE(rpc::CheckFilesFit(certs + "/ca.pem", certs + "/n0.pem", certs + "/n0.key").ok());
}

TEST_F(ClusterCommandsTest, WrongUseIs64AndNobodyThereIs69) {
  EXPECT_EQ(Run({"nodes", "--nonsense"}), 64);
  EXPECT_EQ(Run({"nodes", "--dir", "/nowhere"}, false), 64);
  EXPECT_THAT(error_, HasSubstr("/nowhere: no cluster or run has started there"));
  server_->Shutdown(absl::ZeroDuration());
  server_.reset();
  EXPECT_EQ(Run({"nodes"}), 69);
  EXPECT_THAT(error_, HasSubstr("its controller has ended"));
  EXPECT_EQ(Run({"stacks"}), 69);
}

TEST_F(ClusterCommandsTest, ADaemonThatEndsAtOnceIsExplained) {
  const DaemonSpec spec{.name = "sh",
                        .executable = "/bin/sh",
                        .args = {"-c", "echo no room >&2; exit 64"},
                        .log = dir_ / "sh.log",
                        .pid_file = {}};
  const absl::Status status = StartDaemon(spec, absl::Seconds(10)).status();
  EXPECT_EQ(ExitCode(status), 64);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot start sh: it exited with code 64"));
  EXPECT_EQ(GetErrorInfo(status).last_lines(0), "no room");
  const auto daemon = StartDaemon({.name = "sh",
                                   .executable = "/bin/sh",
                                   .args = {"-c", "echo ready; exec sleep 0.3"},
                                   .log = dir_ / "sh.log",
                                   .pid_file = dir_ / "sh.pid"},
                                  absl::Seconds(10));
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  EXPECT_EQ(daemon->first_line, "ready");
  EXPECT_EQ(RunningDaemon(dir_ / "sh.pid", "manta-node"), 0);
}

}  // namespace
}  // namespace manta::cli
