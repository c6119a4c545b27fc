// A run on this machine: a controller and a node agent as children, followed to its end.
//
// A child that is killed is started again, so many times within a minute: it finds what the one before it has left, and
// the run goes on with the workers that it has (on_controller_loss: wait). With `stop`, or when it is too often, the run
// ends. Whatever happens (the run ends, Ctrl-C, a child is given up), when Run returns both children have ended; they see
// to it that the workers have, too. Nothing waits without a deadline.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "controller/cli/child.h"
#include "controller/cli/restarts.h"
#include "controller/cli/terminal.h"
#include "manta/v1/controller.grpc.pb.h"

namespace manta::cli {

struct JobOptions {
  std::filesystem::path bin_dir;
  std::filesystem::path run_dir;
  std::filesystem::path config_path;
  int cpu_slots = 0;  // that the node agent offers; 0: as many as there are CPUs
  bool wait_on_loss = true;
  int max_restarts = 3;  // of each child, within a minute
};

class Job {
 public:
  explicit Job(JobOptions options);
  ~Job();

  // Blocks until the run is over. SIGINT and SIGTERM must be blocked in every thread; they are taken here: the first
  // stops the run in order, the second at once.
  absl::Status Run();

  const std::string& summary() const { return summary_; }
  const std::string& checkpoint() const { return checkpoint_; }

 private:
  Task<absl::Status> Drive();
  Task<absl::Status> StartController();
  Task<absl::Status> StartControllerAgain();
  absl::Status StartNode();
  void WatchNode();
  void OnNodeDeath();
  bool MayRestart(const Child& child, Restarts* restarts);
  Task<absl::Status> Follow();
  Task<std::optional<absl::Status>> ReadEvents();
  Task<void> EndChildren();
  void OnSignal();
  void AskToStop(const std::string& reason);

  const JobOptions options_;
  EventLoop loop_;
  ProgressView view_;
  std::string token_;
  std::unique_ptr<Child> controller_, node_;
  Restarts controller_restarts_, node_restarts_;
  std::string address_;
  std::vector<std::unique_ptr<v1::ControllerService::Stub>> stubs_;  // the last is of the controller that is there
  uint64_t last_event_ = 0;
  CancelSource give_up_;  // cancelled when waiting longer is of no use
  int signals_seen_ = 0;
  bool run_ended_ = false;
  bool following_ = false;                  // the run's events are being read
  std::optional<absl::Status> node_death_;  // where the controller has not told of it
  absl::Status broken_;                     // how the events ended, if not with the run's end
  std::string summary_, checkpoint_;
};

}  // namespace manta::cli
