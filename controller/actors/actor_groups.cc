#include "controller/actors/actor_groups.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/actor/zygote.h"  // the variable's name alone: nothing of it is linked
#include "common/base/status.h"

namespace manta::controller {
namespace {

constexpr int kMostNamed = 8;  // ranks that a line about a group lists

int64_t Milliseconds(double seconds) {
  return absl::ToInt64Milliseconds(absl::Seconds(seconds));
}

v1::Strategy StrategyOf(const std::string& name) {
  if (name == "spread") return v1::STRATEGY_SPREAD;
  if (name == "strict_pack") return v1::STRATEGY_STRICT_PACK;
  if (name == "strict_spread") return v1::STRATEGY_STRICT_SPREAD;
  return v1::STRATEGY_PACK;
}

v1::RestartPolicy::Kind PolicyOf(const std::string& name) {
  if (name == "restart_group") return v1::RestartPolicy::RESTART_GROUP;
  if (name == "replace_one") return v1::RestartPolicy::REPLACE_ONE;
  return v1::RestartPolicy::FAIL_JOB;
}

std::string Where(const Group& group) {
  std::string text;
  for (const GroupMember& member : group.members()) {
    if (member.rank == kMostNamed) return absl::StrCat(text, ", ...");
    absl::StrAppend(&text, text.empty() ? "" : ", ", member.actor_id, " (pid ", member.pid, ") on ", member.node,
                    member.address.empty() ? "" : absl::StrCat(" at ", member.address));
  }
  return text;
}

}  // namespace

v1::GroupRequest GroupRequestOf(const config::ActorGroupConfig& group, const std::string& job) {
  v1::GroupRequest request;
  request.set_role(group.role);
  request.set_executable(group.executable);
  for (const std::string& arg : group.args) request.add_args(arg);
  request.mutable_env()->insert(group.env.begin(), group.env.end());
  if (!group.working_dir.empty()) (*request.mutable_env())[actor::kWorkingDirVariable] = group.working_dir;
  for (const std::string& name : group.env_allow) request.add_env_allow(name);
  request.set_plain(group.plain);
  request.set_prefork(group.prefork);
  request.set_torchrun(group.torchrun);
  request.set_ports_per_rank(static_cast<int32_t>(group.ports));
  request.set_detached(group.detached);
  request.set_name(group.name.value_or(job == core::kOnlyJob ? group.role : absl::StrCat(job, "/", group.role)));
  request.set_start_deadline_ms(Milliseconds(group.start_timeout_s));
  request.set_progress_timeout_ms(Milliseconds(group.progress_timeout_s));
  request.mutable_limits()->set_file_bytes(group.file_bytes);
  request.mutable_limits()->set_open_files(static_cast<int32_t>(group.open_files));
  v1::RestartPolicy& restart = *request.mutable_restart();
  restart.set_kind(PolicyOf(group.restart.policy));
  restart.set_max_restarts(static_cast<int32_t>(group.restart.max_restarts));
  restart.set_backoff_ms(Milliseconds(group.restart.backoff_s));
  restart.set_backoff_max_ms(Milliseconds(group.restart.backoff_max_s));
  restart.set_reset_after_ms(Milliseconds(group.restart.reset_after_s));
  v1::PlacementRequest& placement = *request.mutable_placement();
  placement.set_job(job);
  placement.set_repeat(static_cast<int32_t>(group.ranks));
  placement.set_strategy(StrategyOf(group.strategy));
  placement.set_segment(static_cast<int32_t>(group.segment));
  placement.mutable_selector()->insert(group.labels.begin(), group.labels.end());
  for (const std::string& node : group.avoid) placement.add_avoid(node);
  placement.set_deadline_ms(Milliseconds(group.placement_timeout_s));
  v1::Bundle& bundle = *placement.add_bundles();
  bundle.set_cpu_slots(static_cast<int32_t>(group.cpus));
  bundle.set_gpus(static_cast<int32_t>(group.gpus));
  bundle.set_memory_bytes(group.memory_bytes);
  bundle.set_gpu_slot(group.gpu_slot);
  return request;
}

struct ActorGroups::State {
  explicit State(RunContext c) : context(std::move(c)), over(*context.loop) {}
  const RunContext context;
  std::set<std::string> live;   // roles that the job waits for
  std::set<std::string> ready;  // told of
  bool started = false;
  OneShot<absl::Status> over;
};

Task<absl::StatusOr<std::shared_ptr<ActorGroups>>> ActorGroups::Start(RunContext context,
                                                                      std::vector<config::ActorGroupConfig> groups) {
  auto state = std::make_shared<State>(context);
  context.cluster->OnGroupEvent([state](const core::GroupEvent& event) { OnEvent(state, event); });
  std::vector<Task<absl::Status>> starts;
  for (const config::ActorGroupConfig& group : groups) {
    if (!group.detached) state->live.insert(group.role);
    starts.push_back(StartOne(state, GroupRequestOf(group, context.job)));
  }
  const std::vector<absl::Status> ends = co_await WhenAll(std::move(starts));
  const absl::Status status = FirstError(ends);
  if (!status.ok()) co_return status;
  state->started = true;
  if (state->live.empty()) state->over.Set(absl::OkStatus());
  co_return std::shared_ptr<ActorGroups>(new ActorGroups(state));
}

Task<absl::Status> ActorGroups::StartOne(std::shared_ptr<State> state, v1::GroupRequest request) {
  const std::string role = request.role();
  const absl::StatusOr<std::shared_ptr<Group>> group = co_await state->context.cluster->StartGroup(std::move(request));
  if (!group.ok()) co_return group.status();
  RunEvents& events = *state->context.events;
  if ((*group)->members().empty()) {
    state->live.erase(role);
    events.Text(absl::StrCat(role, ": has ended well before the controller was started again"));
    co_return absl::OkStatus();
  }
  state->ready.insert(role);
  events.Text(absl::StrCat(role, (*group)->adopted() ? ": runs on: " : ": ready: ", Where(**group)));
  co_return absl::OkStatus();
}

void ActorGroups::OnEvent(const std::shared_ptr<State>& state, const core::GroupEvent& event) {
  RunEvents& events = *state->context.events;
  const std::string& role = event.key.role;
  switch (event.kind) {
    case core::GroupEvent::kRestarting:
      events.Warning(absl::StrCat(role, ": started again: ", std::string(event.status.message())));
      break;
    case core::GroupEvent::kReady:  // the first time is StartOne's
      if (state->ready.count(role) > 0) events.Text(absl::StrCat(role, ": ready again"));
      break;
    case core::GroupEvent::kFailed:
      break;  // ends the job
    case core::GroupEvent::kEnded:
      if (!event.status.ok() || state->live.erase(role) == 0) break;
      events.Text(absl::StrCat(role, ": has ended"));
      if (state->started && state->live.empty()) state->over.Set(absl::OkStatus());
      break;
  }
}

Task<absl::Status> ActorGroups::WaitEnded(CancelToken stop) {
  if (stop.cancelled()) co_return stop.status();
  OneShot<absl::Status> over = state_->over;
  const CancelToken::Registration registration = stop.OnCancel([over, stop]() mutable { over.Set(stop.status()); });
  co_return co_await over.Wait();
}

}  // namespace manta::controller
