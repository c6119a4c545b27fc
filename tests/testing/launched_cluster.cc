#include "tests/testing/launched_cluster.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/kill.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "common/rpc/token.h"
#include "controller/node/process.h"
#include "grpcpp/client_context.h"
#include "tests/integration/marked_processes.h"

namespace manta::testing {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

}  // namespace

absl::Status LaunchedCluster::Manta(std::vector<std::string> args) const {
  const std::filesystem::path log_path = dir_ / "manta.log";
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  auto process = Process::Spawn({.executable = (bin_ / "manta").string(),
                                 .args = std::move(args),
                                 .env = {{kMarkVariable, mark_}},
                                 .stdout_fd = log,
                                 .stderr_fd = log});
  close(log);
  if (!process.ok()) return process.status();
  const auto exit = process->WaitFor(kPatience);
  if (!exit.has_value()) {
    process->Signal(SIGKILL);
    return absl::DeadlineExceededError("it does not end");
  }
  if (exit->code == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(exit->ToString(), ": ", ReadFile(log_path, 4096).value_or("")));
}

absl::StatusOr<std::unique_ptr<LaunchedCluster>> LaunchedCluster::Launch(const std::filesystem::path& bin,
                                                                         const std::string& tag, int cpu_slots) {
  static int count = 0;
  std::unique_ptr<LaunchedCluster> cluster(new LaunchedCluster());
  cluster->bin_ = bin;
  cluster->mark_ = absl::StrCat(tag, ".", getpid(), ".", ++count);
  cluster->dir_ = std::filesystem::temp_directory_path() / cluster->mark_;
  std::error_code error;
  std::filesystem::create_directories(cluster->dir_, error);
  const absl::Time begin = absl::Now();
  const absl::Status launched = cluster->Manta(
      {"launch", "--dir", cluster->dir_.string(), "--name", "here", "--cpu-slots", absl::StrCat(cpu_slots)});
  cluster->ready_seconds_ = absl::ToDoubleSeconds(absl::Now() - begin);
  if (!launched.ok()) return Annotate(launched, "manta launch");
  MANTA_ASSIGN_OR_RETURN(cluster->token_, rpc::ReadTokenFile(cluster->dir_ / "token"));
  MANTA_ASSIGN_OR_RETURN(cluster->address_, ReadFile(cluster->dir_ / "controller.address", 256));
  cluster->address_ = cluster->address_.substr(0, cluster->address_.find('\n'));
  MANTA_ASSIGN_OR_RETURN(const auto channel, rpc::OpenChannel(cluster->address_, cluster->token_));
  cluster->stub_ = v1::ClusterService::NewStub(channel);
  return cluster;
}

LaunchedCluster::~LaunchedCluster() {
  stub_.reset();
  if (const absl::Status stopped = Manta({"stop", "--all", "--dir", dir_.string()}); !stopped.ok()) {
    std::fprintf(stderr, "manta stop --all: %s\n", std::string(stopped.message()).c_str());
  }
  for (int i = 0; i < 200 && !MarkedProcesses(mark_).empty(); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
    if (i < 100) continue;
    for (const FoundProcess& process : MarkedProcesses(mark_)) KillProcess(process.pid, SIGKILL);
  }
  std::error_code error;
  std::filesystem::remove_all(dir_, error);
}

absl::StatusOr<v1::GroupReply> LaunchedCluster::CreateGroup(const v1::GroupRequest& request) const {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  v1::GroupReply reply;
  MANTA_RETURN_IF_ERROR(rpc::FromGrpc(stub_->CreateGroup(&context, request, &reply)));
  return reply;
}

absl::Status LaunchedCluster::RemoveGroup(const std::string& role) const {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  v1::GroupRef request;
  request.set_role(role);
  request.set_grace_ms(1000);
  v1::Done reply;
  return rpc::FromGrpc(stub_->RemoveGroup(&context, request, &reply));
}

}  // namespace manta::testing
