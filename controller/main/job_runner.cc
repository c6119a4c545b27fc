#include "controller/main/job_runner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "spdlog/spdlog.h"

namespace manta::controller {
namespace {

constexpr absl::Duration kStopPatience = absl::Seconds(2);  // for the algorithm to notice
constexpr size_t kEndedKept = 100;                          // jobs whose events are still there to be read

}  // namespace

struct JobRunner::Job {
  Job(EventLoop& loop, uint64_t first_event)
      : events(std::make_shared<RunEvents>(10000, first_event)), returned(loop) {}
  std::string name;
  std::filesystem::path run_dir, config_path;
  bool resumed = false, began = false, ended = false;
  std::shared_ptr<RunEvents> events;
  std::unique_ptr<JobCluster> cluster;
  CancelSource stop;
  OneShot<absl::StatusOr<RunOutcome>> returned;
  std::function<void(const absl::Status&)> on_end;
};

JobRunner::JobRunner(EventLoop& loop, std::filesystem::path bin_dir, Algorithm algorithm)
    : loop_(loop), bin_dir_(std::move(bin_dir)), algorithm_(std::move(algorithm)) {}
JobRunner::~JobRunner() = default;

void JobRunner::RunLocal(const std::string& name, const std::filesystem::path& run_dir,
                         const std::filesystem::path& config_path, std::function<void(const absl::Status&)> on_end) {
  // This process is one of as many as there were incarnations of its journal, which is the run's.
  head_->core().AddLocalJob(name, run_dir.string(), static_cast<int>(head_->incarnation()) - 1);
  auto job = std::make_shared<Job>(loop_, head_->incarnation() << 32);
  job->name = name;
  job->run_dir = run_dir;
  job->config_path = config_path;
  job->resumed = head_->HasRowsOf(name);
  job->on_end = std::move(on_end);
  jobs_[name] = job;
  Begin(job);
}

void JobRunner::Run(const core::JobStart& start) {
  std::shared_ptr<Job>& job = jobs_[start.job];
  if (job == nullptr) job = std::make_shared<Job>(loop_, head_->incarnation() << 32);
  job->name = start.job;
  job->run_dir = start.run_dir;
  job->config_path = job->run_dir / "config.resolved.yaml";
  job->resumed = start.resumed;
  std::error_code error;
  std::filesystem::create_directories(job->run_dir / "logs", error);
  absl::Status status =
      error ? ErrnoError("create the folder", job->run_dir / "logs", error.value()) : absl::OkStatus();
  if (status.ok() && !std::filesystem::exists(job->config_path, error)) {
    status = WriteFileAtomically(job->config_path, start.config_yaml);
  }
  if (!status.ok()) {
    loop_.Post([this, job, status] { Ended(job, status); });
    return;
  }
  Begin(job);
}

void JobRunner::Begin(const std::shared_ptr<Job>& job) {
  job->began = true;
  job->cluster = std::make_unique<JobCluster>(
      loop_, head_->core(), JobCluster::Options{.job = job->name, .connect = [this](const std::string& address) {
                                                  return head_->Connect(address);
                                                }});
  job->cluster->OnGroupFailed([job](const Group&, const absl::Status& status) { job->stop.Cancel(status); });
  job->events->AddListener([this, name = job->name, events = job->events.get()] {
    head_->core().JobProgress(name, events->step(), events->num_steps());
  });
  spdlog::info("job {}: {} in {}", job->name, job->resumed ? "goes on" : "begins", job->run_dir.string());
  Spawn(loop_, Drive(this, job), [this, job](const absl::Status& status) { Ended(job, status); });
}

Task<absl::Status> JobRunner::Drive(JobRunner* self, std::shared_ptr<Job> job) {
  RunContext context{.loop = &self->loop_,
                     .cluster = job->cluster.get(),
                     .events = job->events.get(),
                     .run_dir = job->run_dir,
                     .config_path = job->config_path,
                     .bin_dir = self->bin_dir_,
                     .stop = job->stop.token(),
                     .job = job->name,
                     .resumed = job->resumed,
                     .calls = &self->head_->calls()};
  internal::RunDetached(self->algorithm_(std::move(context)),
                        [job](absl::StatusOr<RunOutcome> outcome) { job->returned.Set(std::move(outcome)); });
  const auto on_stop = job->stop.token().OnCancel([self, job] { self->StopActors(job); });
  if (job->stop.cancelled()) self->StopActors(job);
  const absl::StatusOr<RunOutcome> outcome = co_await job->returned.Wait();
  absl::Status status = outcome.status();
  if (job->stop.cancelled() && !status.ok()) {
    status = job->stop.token().status();  // why it was stopped, rather than what broke while it was
  } else {
    status = co_await job->cluster->Explain(status);
  }
  std::string checkpoint, summary;
  if (outcome.ok()) {
    checkpoint = outcome->checkpoint;
    summary = outcome->summary;
  }
  job->events->Ended(status, checkpoint, summary);
  const absl::Status stopped = co_await job->cluster->StopAll(kStopGrace);
  if (!stopped.ok()) spdlog::error("{}", std::string(stopped.message()));
  co_return status;
}

// As soon as it is to stop: calls that it waits for end with the actors. Frames that never return are left behind.
void JobRunner::StopActors(const std::shared_ptr<Job>& job) {
  spdlog::info("stopping job {}: {}", job->name, std::string(job->stop.token().status().message()));
  internal::RunDetached(job->cluster->StopAll(kStopGrace), [job](const absl::Status&) {});
  loop_.RunAfter(kStopPatience, [job] { job->returned.Set(job->stop.token().status()); });
}

void JobRunner::Ended(const std::shared_ptr<Job>& job, const absl::Status& status) {
  job->ended = true;
  if (!job->events->ended()) job->events->Ended(status, "", "");
  if (job->on_end) {
    job->on_end(status);
  } else {
    head_->core().JobEnded(job->name, status);
  }
  ended_.push_back(job->name);
  if (ended_.size() <= kEndedKept) return;
  jobs_.erase(ended_.front());
  ended_.pop_front();
}

void JobRunner::StopAll(const absl::Status& reason) {
  for (const auto& [name, job] : jobs_) {
    if (job->began && !job->ended) job->stop.Cancel(reason);
  }
}

void JobRunner::Stop(const std::string& name, const absl::Status& reason) {
  const auto found = jobs_.find(name);
  if (found != jobs_.end() && found->second->began && !found->second->ended) found->second->stop.Cancel(reason);
}

void JobRunner::Stop(const std::string& name, const std::string& reason) {
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return;
  if (found->second->on_end) {
    Stop(name, absl::CancelledError(absl::StrCat("stopped: ", reason)));
  } else {
    head_->core().StopJob(name, reason, [](absl::StatusOr<v1::Done>) {});
  }
}

absl::StatusOr<RunService::Runs::Run> JobRunner::Find(const std::string& name) {
  auto found = name.empty() && jobs_.size() == 1 ? jobs_.begin() : jobs_.find(name);
  if (found == jobs_.end() && !name.empty()) {
    // One that waits for its turn has no events yet: they are watched from here on.
    const absl::StatusOr<v1::DescribeReply> known = head_->core().Describe(name);
    if (known.ok() && known->has_job()) {
      auto job = std::make_shared<Job>(loop_, head_->incarnation() << 32);
      job->name = name;
      job->run_dir = known->job().run_dir();
      if (known->job().state() == "ENDED") {  // under an earlier head
        job->ended = true;
        job->events->Ended(FromProto(known->job().status()), "", "");
      }
      found = jobs_.emplace(name, std::move(job)).first;
    }
  }
  if (found == jobs_.end()) {
    const std::string names =
        absl::StrJoin(jobs_, ", ", [](std::string* out, const auto& job) { absl::StrAppend(out, job.first); });
    return absl::NotFoundError(absl::StrCat(name.empty() ? "no job is named" : absl::StrCat("no job ", name),
                                            "; there ", jobs_.empty() ? "is none" : absl::StrCat("are ", names)));
  }
  const Job& job = *found->second;
  return RunService::Runs::Run{.job = job.name, .run_dir = job.run_dir.string(), .events = job.events};
}

}  // namespace manta::controller
