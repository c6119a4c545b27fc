// `manta stop JOB`, `manta stop --all`.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/process_info.h"
#include "common/base/status.h"
#include "controller/cli/cluster_client.h"
#include "controller/cli/cluster_commands.h"
#include "controller/cli/output.h"

namespace manta::cli {
namespace {

struct StopOptions {
  CommonOptions common;
  std::string job;
  bool all = false;
  double grace = 2;
};

// The head's own end, where it runs on this machine: `pid` as it has written it.
absl::Status WaitForEnd(const std::filesystem::path& dir, absl::Duration timeout) {
  const absl::StatusOr<std::string> text = ReadFile(dir / "controller.pid", 64);
  int pid = 0;
  if (!text.ok() || !absl::SimpleAtoi(*text, &pid)) return absl::OkStatus();
  const int fd = OpenPidFd(pid);
  if (fd < 0) return absl::OkStatus();
  pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
  const int ready = poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  close(fd);
  if (ready > 0) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("the controller (pid ", pid, ") still runs"));
}

absl::Status Stop(const StopOptions& options) {
  if (options.all == !options.job.empty()) return UserError("manta stop: give a job, or --all for the whole cluster");
  MANTA_ASSIGN_OR_RETURN(ClusterClient client, ClusterClient::Open(options.common.dir));
  const absl::Duration grace = absl::Seconds(options.grace);
  v1::Done done;
  if (options.all) {
    v1::ShutdownRequest request;
    request.set_grace_ms(absl::ToInt64Milliseconds(grace));
    request.set_reason("manta stop --all");
    MANTA_ASSIGN_OR_RETURN(
        done, client.Call(&v1::ClusterService::Stub::Shutdown, client.cluster(), request, grace + kAnswerDeadline));
    MANTA_RETURN_IF_ERROR(WaitForEnd(client.dir(), kAnswerDeadline));
  } else {
    v1::JobRef request;
    request.set_job(options.job);
    request.set_reason("manta stop");
    MANTA_ASSIGN_OR_RETURN(
        done, client.Call(&v1::ClusterService::Stub::StopJob, client.cluster(), request, grace + 3 * kAnswerDeadline));
  }
  if (options.common.json) {
    PrintJson(done);
  } else {
    std::printf("%s has ended\n", options.all ? "the cluster" : options.job.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddStop(CLI::App& app, ClusterCommands* commands) {
  auto options = std::make_shared<StopOptions>();
  CLI::App* command = app.add_subcommand("stop", "Stop a job, or the whole cluster");
  command->add_option("job", options->job, "the job, as `manta jobs` lists it");
  command->add_flag("--all", options->all, "stop every job, the nodes' agents and the controller");
  command->add_option("--grace", options->grace, "seconds between asking a worker to end and killing it")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  AddCommonOptions(*command, &options->common);
  commands->push_back({command, [options] { return Stop(*options); }});
}

}  // namespace manta::cli
