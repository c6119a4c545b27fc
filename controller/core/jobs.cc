// Jobs: their code runs in coroutines of the head (JobPort); here is what is known and kept of them.
#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "controller/core/core_impl.h"
#include "spdlog/spdlog.h"

namespace manta::controller::core {
namespace {

constexpr size_t kKeptJobs = 200, kMaxJobs = 10'000, kHistory = 16;
constexpr absl::Duration kGrace = absl::Seconds(1);

bool IsJobName(const std::string& name) {
  return !name.empty() && name.size() <= 60 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace

void Core::Impl::SubmitJob(v1::SubmitRequest request, Answer<v1::JobInfo> answer) {
  absl::Status status = CheckMayChange();
  if (status.ok() && jobs_ == nullptr) status = absl::UnimplementedError("this controller runs one job of its own");
  if (status.ok() && !request.name().empty() && !IsJobName(request.name())) {
    status = UserError(absl::StrCat("'", request.name(), "' is no name for a job"));
  }
  if (status.ok() && job_table_.size() >= kMaxJobs) status = absl::ResourceExhaustedError("too many jobs");
  if (!status.ok()) return Reply<v1::JobInfo>(std::move(answer), status);
  for (const auto& [id, job] : job_table_) {
    if (!request.key().empty() && job.request.key() == request.key()) {
      return Reply<v1::JobInfo>(std::move(answer), InfoOf(job));
    }
  }
  const std::string name = request.name().empty() ? "job" : request.name();
  std::string id = name;
  for (int i = 2; job_table_.count(id) > 0; ++i) id = absl::StrCat(name, "-", i);
  Job& job = job_table_[id];
  job.id = id;
  job.request = std::move(request);
  job.arrival = ++arrivals_;
  job.submitted_unix_ms = UnixMs();
  SaveJob(job);
  spdlog::info("job {} was submitted", id);
  outbox_.Add(
      [this, start = JobStart{id, job.request.name(), job.request.config_yaml(), job.request.run_dir(),
                              job.request.working_dir(), job.request.priority(), false}] { jobs_->Run(start); });
  Reply<v1::JobInfo>(std::move(answer), InfoOf(job));
  ForgetOldJobs();
  Changed();
}

void Core::Impl::AddLocalJob(const std::string& id, const std::string& run_dir, int head_restarts) {
  Job& job = job_table_[id];
  job.id = id;
  job.local = true;
  job.head_restarts = head_restarts;
  job.request.set_run_dir(run_dir);
  job.submitted_unix_ms = UnixMs();
}

void Core::Impl::JobRestarts(const std::string& id, const std::string& why) {
  const auto found = job_table_.find(id);
  if (found == job_table_.end()) return;
  Job& job = found->second;
  ++job.worker_restarts;
  job.history.push_back(absl::StrFormat("+%.1fs %s", absl::ToDoubleSeconds(loop_.Now() - started_), why.substr(0, 300)));
  if (job.history.size() > kHistory) job.history.pop_front();
  SaveJob(job);
}

void Core::Impl::StopJob(const std::string& id, const std::string& reason, Answer<v1::Done> answer) {
  const auto found = job_table_.find(id);
  if (found == job_table_.end()) {
    return Reply<v1::Done>(std::move(answer), absl::NotFoundError(absl::StrCat("there is no job ", id)));
  }
  const absl::Status health = journal_.health();
  if (!health.ok()) return Reply<v1::Done>(std::move(answer), health);
  Job& job = found->second;
  if (job.state == "ENDED") return Reply<v1::Done>(std::move(answer), v1::Done());
  job.stopped.push_back(std::move(answer));
  if (job.state == "STOPPING") return;
  job.state = "STOPPING";
  SaveJob(job);
  const absl::Status why = absl::CancelledError(reason.empty() ? "stopped" : absl::StrCat("stopped: ", reason));
  outbox_.Add([this, id, why] {
    if (jobs_ != nullptr) jobs_->Stop(id, why);
  });
  Changed();
}

void Core::Impl::JobEnded(const std::string& id, const absl::Status& status) {
  const auto found = job_table_.find(id);
  if (found == job_table_.end() || found->second.state == "ENDED" || found->second.returned) return;
  Job& job = found->second;
  job.state = "STOPPING";
  job.returned = true;
  job.status = status;
  spdlog::info("job {} has ended: {}", id, status.ok() ? "OK" : std::string(status.message()));
  for (Group* group : Groups()) {
    if (group->key.job == id && !group->request.detached()) {
      BeginRemoval(*group, kGrace, absl::CancelledError(absl::StrCat("job ", id, " has ended")));
    }
  }
  std::vector<uint64_t> left;
  for (const auto& [placement_id, placement] : placements_) {
    if (placement.request.job() == id && !placement.user.has_value()) left.push_back(placement_id);
  }
  for (uint64_t placement : left) RemovePlacement(placement, nullptr);
  After(kGrace + options_.stop_slack, [id](Impl& impl) { impl.FinishJob(id, /*late=*/true); });
  FinishJob(id);
}

void Core::Impl::FinishJob(const std::string& id, bool late) {
  const auto found = job_table_.find(id);
  if (found == job_table_.end() || !found->second.returned || found->second.state == "ENDED") return;
  const bool left = std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) {
    return group.first.job == id && !group.second->request.detached();
  });
  if (left && !late) return;
  Job& job = found->second;
  job.state = "ENDED";
  SaveJob(job);
  for (Answer<v1::Done>& answer : std::exchange(job.stopped, {})) Reply<v1::Done>(std::move(answer), v1::Done());
  Changed();
}

void Core::Impl::SaveJob(const Job& job) {
  if (job.local) return;
  v1::JobRow row;
  *row.mutable_request() = job.request;
  row.set_job(job.id);
  row.set_state(job.state);
  if (!job.status.ok()) *row.mutable_status() = ToProto(job.status);
  row.set_submitted_unix_ms(job.submitted_unix_ms);
  row.set_arrival(job.arrival);
  row.set_head_restarts(job.head_restarts);
  row.set_worker_restarts(job.worker_restarts);
  for (const std::string& role : job.done) row.add_done(role);
  journal_.Put(Journal::Kind::kJob, job.id, row.SerializeAsString());
}

void Core::Impl::ForgetOldJobs() {
  std::vector<const Job*> ended;
  for (const auto& [id, job] : job_table_) {
    if (job.state == "ENDED" && !job.local) ended.push_back(&job);
  }
  if (ended.size() <= kKeptJobs) return;
  std::sort(ended.begin(), ended.end(), [](const Job* a, const Job* b) { return a->arrival < b->arrival; });
  for (size_t i = 0; i + kKeptJobs < ended.size(); ++i) {
    const std::string id = ended[i]->id;
    journal_.Erase(Journal::Kind::kJob, id);
    job_table_.erase(id);
  }
}

v1::JobInfo Core::Impl::InfoOf(const Job& job) const {
  v1::JobInfo info;
  info.set_job(job.id);
  info.set_name(job.request.name());
  info.set_priority(job.request.priority());
  info.set_run_dir(job.request.run_dir());
  info.set_step(job.step);
  info.set_num_steps(job.num_steps);
  info.set_submitted_unix_ms(job.submitted_unix_ms);
  info.set_head_restarts(job.head_restarts);
  info.set_worker_restarts(job.worker_restarts);
  if (!job.status.ok()) *info.mutable_status() = ToProto(job.status);
  info.set_state(job.state);
  // Of several groups that wait, the first in the queue says what for; the others wait behind it.
  const Group* first = nullptr;
  uint64_t first_arrival = UINT64_MAX;
  for (const auto& [key, group] : groups_) {
    if (key.job != job.id || group->waits_for.empty()) continue;
    const auto placement = placements_.find(group->placement);
    const uint64_t arrival = placement == placements_.end() ? UINT64_MAX : placement->second.arrival;
    if (first != nullptr && arrival >= first_arrival) continue;
    first = group.get();
    first_arrival = arrival;
  }
  if (first != nullptr) {
    info.set_waits_for(first->waits_for);
    if (job.state == "RUNNING") info.set_state("QUEUED");
  }
  return info;
}

}  // namespace manta::controller::core
