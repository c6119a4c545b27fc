// A job of real processes for a test: a controller (runtime_controller), a node agent (manta-node), their shims and
// workers, started as `manta run` starts them. Every process carries a mark in its environment, by which the test finds
// the ones that are left. Deadlines everywhere; the destructor kills what is left.
#pragma once

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/kill.h"
#include "common/base/task.h"
#include "common/rpc/call.h"
#include "common/rpc/channel.h"
#include "controller/node/process.h"
#include "gtest/gtest.h"
#include "manta/v1/controller.grpc.pb.h"
#include "tests/integration/job_folder.h"

namespace manta::testing {

class RuntimeJob {
 public:
  explicit RuntimeJob(const std::string& config, std::vector<std::string> controller_args = {},
                      std::vector<std::string> node_args = {"--cpu-slots", "4"}, int parent_pid = 0)
      : folder_("runtime-test") {
    std::ofstream(run_dir() / "config.resolved.yaml") << config;
    controller_args_ = {"--run-dir", run_dir().string()};
    if (parent_pid > 0) controller_args_.insert(controller_args_.end(), {"--parent-pid", absl::StrCat(parent_pid)});
    controller_args_.insert(controller_args_.end(), controller_args.begin(), controller_args.end());
    StartController();
    node_args_ = {"--controller", address_, "--token-file", folder_.agents_token_file(), "--name", "n0"};
    if (parent_pid > 0) node_args_.insert(node_args_.end(), {"--parent-pid", absl::StrCat(parent_pid)});
    node_args_.insert(node_args_.end(), node_args.begin(), node_args.end());
    StartNode();
  }
  // Each again, after the first was killed: as whoever watches over them does.
  void StartController() {
    auto [controller, address] = folder_.StartServer("runtime_controller", controller_args_, "controller.log");
    controller_.emplace(std::move(controller));
    address_ = address;
    stream_.reset();
    stub_ = v1::ControllerService::NewStub(rpc::OpenChannel(address_, token()).value());
  }
  void StartNode() { node_.emplace(folder_.Start("manta-node", node_args_, "node-n0.log")); }

  ~RuntimeJob() {
    folder_.KillAll();
    controller_->WaitFor(absl::Seconds(5));
    node_->WaitFor(absl::Seconds(5));
    folder_.Remove();
  }

  // Until the algorithm has its groups (phase "waiting"); false where the run ended first.
  bool WaitReady() {
    while (true) {
      const auto event = NextEvent(absl::Seconds(20));
      if (!event.has_value() || event->has_ended()) return false;
      if (event->has_phase() && event->phase().name() == "waiting") return true;
    }
  }
  // The next event of the run; none where the stream has broken or nothing came.
  std::optional<v1::RunEvent> NextEvent(absl::Duration timeout) {
    if (!stream_.has_value()) {
      stream_.emplace(rpc::OpenStream(loop_, stub_->async(), &rpc::AsyncOf<v1::ControllerService>::WatchRun, {},
                                      {.deadline = absl::Minutes(5), .idle_timeout = timeout}));
    }
    auto event = RunToCompletion(loop_, stream_->Next());
    if (!event.ok() || !event->has_value()) return std::nullopt;
    if ((*event)->has_ended()) ended_ = FromProto((*event)->ended().status());
    return **event;
  }
  // How the run ended; none where nobody said.
  std::optional<absl::Status> WaitEnded(absl::Duration timeout = absl::Seconds(20)) {
    const absl::Time deadline = absl::Now() + timeout;
    while (!ended_.has_value() && absl::Now() < deadline && NextEvent(timeout).has_value()) continue;
    return ended_;
  }
  v1::GetStatusReply Status() {
    return RunToCompletion(loop_, rpc::Call(loop_, stub_->async(), &rpc::AsyncOf<v1::ControllerService>::GetStatus, {},
                                            {.deadline = absl::Seconds(5)}))
        .value_or(v1::GetStatusReply());
  }
  absl::Status StopRun(const std::string& reason) {
    v1::StopRunRequest request;
    request.set_reason(reason);
    return RunToCompletion(loop_, rpc::Call(loop_, stub_->async(), &rpc::AsyncOf<v1::ControllerService>::StopRun,
                                            request, {.deadline = absl::Seconds(5)}))
        .status();
  }
  int PidOf(const std::string& actor_id) {
    const v1::GetStatusReply status = Status();
    for (const auto& actor : status.actors()) {
      if (actor.actor_id() == actor_id) return static_cast<int>(actor.pid());
    }
    return -1;
  }
  int ShimOf(const std::string& actor_id) {
    for (const FoundProcess& process : Alive()) {
      if (process.command.find(absl::StrCat("--shim ", actor_id, ".")) != std::string::npos) return process.pid;
    }
    return -1;
  }

  // Every process of this job that runs (a zombie has ended).
  std::vector<FoundProcess> Alive() const { return folder_.Alive(); }
  // Waits until nothing of the job runs; how long that took, or what is left.
  absl::StatusOr<absl::Duration> WaitAllGone(absl::Duration timeout) {
    const absl::Time start = absl::Now();
    while (true) {
      controller_->TryWait();
      node_->TryWait();
      const auto alive = Alive();
      if (alive.empty()) return absl::Now() - start;
      if (absl::Now() - start > timeout) {
        std::string left;
        for (const auto& process : alive) absl::StrAppend(&left, process.pid, " ", process.command, "\n");
        return absl::DeadlineExceededError(left);
      }
      absl::SleepFor(absl::Milliseconds(10));
    }
  }
  std::string Log(const std::string& name) const { return ReadFile(run_dir() / "logs" / name).value_or(""); }

  // Another process of this job.
  Process StartMarked(const std::string& executable, std::vector<std::string> args, const std::string& log) {
    return folder_.Start(executable, std::move(args), log);
  }
  const std::filesystem::path& bin() const { return folder_.bin(); }
  const std::string& token() const { return folder_.token(); }
  Process& controller() { return *controller_; }
  Process& node() { return *node_; }
  const std::filesystem::path& run_dir() const { return folder_.path(); }
  const std::string& address() const { return address_; }

 private:
  EventLoop loop_;
  JobFolder folder_;
  std::string address_;
  std::vector<std::string> controller_args_, node_args_;
  std::optional<Process> controller_, node_;
  std::unique_ptr<v1::ControllerService::Stub> stub_;
  std::optional<rpc::Stream<v1::RunEvent>> stream_;
  std::optional<absl::Status> ended_;
};

}  // namespace manta::testing
