// JobRunner: the code of jobs, as coroutines on the head's loop: begins them when the core says so, stops them, says
// how they ended, and keeps their events for those who watch.
//
// A job that does not end within a moment of being told to is given up: its frames stay, what they started is stopped.
// Belongs to the loop; lives as long as the process.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "controller/cluster/run_context.h"
#include "controller/main/head.h"

namespace manta::controller {

inline constexpr absl::Duration kStopGrace = absl::Seconds(1);  // a worker's, between SIGTERM and SIGKILL

using Algorithm = std::function<Task<absl::StatusOr<RunOutcome>>(RunContext)>;

class JobRunner final : public Head::Jobs {
 public:
  JobRunner(EventLoop& loop, std::filesystem::path bin_dir, Algorithm algorithm);
  ~JobRunner() override;

  void Attach(Head* head) override { head_ = head; }

  // A job that this process has from its command line (`manta run`). `on_end`: once, with how it ended.
  void RunLocal(const std::string& job, const std::filesystem::path& run_dir, const std::filesystem::path& config_path,
                std::function<void(const absl::Status&)> on_end);
  // Every job; the first reason stays.
  void StopAll(const absl::Status& reason);

  // ---- core::JobPort
  void Run(const core::JobStart& start) override;
  void Stop(const std::string& job, const absl::Status& reason) override;
  // ---- RunService::Runs
  absl::StatusOr<RunService::Runs::Run> Find(const std::string& job) override;
  void Stop(const std::string& job, const std::string& reason) override;

 private:
  struct Job;
  void Begin(const std::shared_ptr<Job>& job);
  static Task<absl::Status> Drive(JobRunner* self, std::shared_ptr<Job> job);
  void Ended(const std::shared_ptr<Job>& job, const absl::Status& status);
  void StopActors(const std::shared_ptr<Job>& job);

  EventLoop& loop_;
  const std::filesystem::path bin_dir_;
  const Algorithm algorithm_;
  Head* head_ = nullptr;
  std::map<std::string, std::shared_ptr<Job>> jobs_;  // waiting to begin, running, ended
  std::deque<std::string> ended_;                     // oldest first; the last ones are kept
};

}  // namespace manta::controller
