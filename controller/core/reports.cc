// What agents say of the actors on their nodes.
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/cluster/death.h"
#include "controller/core/core_impl.h"

namespace manta::controller::core {

std::pair<Group*, int> Core::Impl::FindActor(const std::string& actor_id, uint64_t epoch, NodeId node) {
  const auto parsed = ParseActorId(actor_id);
  if (!parsed.has_value()) return {nullptr, 0};
  Group* group = Find(parsed->first);
  if (group == nullptr || parsed->second >= static_cast<int>(group->ranks.size())) return {nullptr, 0};
  const Actor& rank = group->ranks[parsed->second];
  if (rank.epoch != epoch || (node != scheduler::kNoNode && rank.place.node != node)) return {nullptr, 0};
  return {group, parsed->second};
}

void Core::Impl::OnReport(Node& node, const v1::ActorReport& report) {
  if (report.has_exited()) return OnExit(node, report.exited());
  if (report.has_start_failed()) return OnStartFailed(node, report);
  if (report.has_worker()) return OnWorker(node, report);
  const auto [group, i] = FindActor(report.actor_id(), report.epoch(), node.id);
  if (group == nullptr || group->ranks[i].gone()) {
    if (report.snapshot().has_exited()) return OnExit(node, report.snapshot().exited());
    if (report.has_started() || report.has_snapshot()) StopUnknown(node, report.actor_id(), report.epoch());
    return;
  }
  Actor& rank = group->ranks[i];
  if (report.pid() > 0) rank.pid = report.pid();
  if (report.has_started()) {
    if (report.started().pid() > 0) rank.pid = report.started().pid();
    if (group->request.plain()) OnReady(*group, i, rank.pid, "");
  } else if (report.has_snapshot()) {
    const v1::ActorSnapshot& snapshot = report.snapshot();
    if (snapshot.has_exited()) return OnExit(node, snapshot.exited());
    if (snapshot.has_ready() || group->request.plain()) OnReady(*group, i, rank.pid, snapshot.ready().address());
    if (rank.phase == ActorPhase::kUnknown) {  // of a row that says that it was ready; it says that it is not yet
      rank.phase = ActorPhase::kStarting;
      rank.start_until = loop_.Now() + absl::Milliseconds(group->request.start_deadline_ms());
    }
    if (snapshot.has_beat()) OnBeat(rank, snapshot.beat());
  }
}

// The agent may forget an actor's end once what follows from it here is durable.
void Core::Impl::AckEnd(Node& node, const std::string& actor_id, uint64_t epoch) {
  v1::NodeCommand ack;
  v1::ActorRef* ref = ack.mutable_reports_ack()->add_exits();
  ref->set_actor_id(actor_id);
  ref->set_epoch(epoch);
  if (node.unwanted.erase({actor_id, epoch}) > 0) UpdateUsable(node);
  Command(node.id, std::move(ack));
}

void Core::Impl::OnStartFailed(Node& node, const v1::ActorReport& report) {
  const auto [group, i] = FindActor(report.actor_id(), report.epoch(), node.id);
  if (group != nullptr && group->ranks[i].may_run()) {
    const absl::Status failed = ActorNotStarted(IdentityOf(*group, i), report.start_failed().message());
    const bool asked = group->ranks[i].phase == ActorPhase::kStopping;
    group->ranks[i].phase = ActorPhase::kGone;
    if (!asked) RankFailed(*group, i, failed);
    RankGone(*group, i);
  }
  AckEnd(node, report.actor_id(), report.epoch());
}

void Core::Impl::OnExit(Node& node, const v1::ActorExited& exited) {
  const auto [group, i] = FindActor(exited.actor_id(), exited.epoch(), node.id);
  if (group != nullptr && group->ranks[i].may_run()) {
    Actor& rank = group->ranks[i];
    if (exited.pid() > 0) rank.pid = exited.pid();
    const bool asked = rank.phase == ActorPhase::kStopping;
    const absl::Status died = ActorDied(IdentityOf(*group, i), exited);
    rank.phase = ActorPhase::kGone;
    // A program that is no actor ends when it has done its work.
    rank.done = group->request.plain() && exited.exit_code() == 0 && !asked && !rank.failed;
    if (!asked && !rank.failed && !rank.done) RankFailed(*group, i, died);
    if (rank.died.ok() && !asked && !rank.done) rank.died = died;
    RankGone(*group, i);
  }
  AckEnd(node, exited.actor_id(), exited.epoch());
}

void Core::Impl::OnWorker(Node& node, const v1::ActorReport& report) {
  const auto [group, i] = FindActor(report.actor_id(), report.epoch(), node.id);
  if (group == nullptr || group->ranks[i].gone()) return StopUnknown(node, report.actor_id(), report.epoch());
  Actor& rank = group->ranks[i];
  if (report.pid() > 0) rank.pid = report.pid();
  rank.last_beat = loop_.Now();
  switch (report.worker().report_case()) {
    case v1::WorkerReport::kReady:
      OnReady(*group, i, rank.pid, report.worker().ready().address());
      break;
    case v1::WorkerReport::kBeat:
      OnBeat(rank, report.worker().beat());
      break;
    case v1::WorkerReport::kProgress:
      if (report.worker().progress().step() != rank.step) rank.last_progress = loop_.Now();
      rank.step = report.worker().progress().step();
      break;
    case v1::WorkerReport::kNote:
      Note(*group, absl::StrCat(ActorId(group->key, i), ": ", report.worker().note().text().substr(0, 200)));
      break;
    default:
      break;
  }
}

void Core::Impl::OnBeat(Actor& rank, const v1::WorkerBeat& beat) {
  rank.last_beat = loop_.Now();
  rank.beats = true;
  // What was idle and has work begins its time; whatever was done since the last beat is progress.
  if ((rank.running == 0 && beat.running() > 0) || beat.completed() != rank.completed) rank.last_progress = loop_.Now();
  rank.running = beat.running();
  rank.queued = beat.queued();
  rank.completed = beat.completed();
  rank.resident = beat.resident();
  rank.refused = beat.refused();
}

void Core::Impl::OnReady(Group& group, int i, int64_t pid, const std::string& address) {
  Actor& rank = group.ranks[i];
  if (pid > 0) rank.pid = pid;
  if ((rank.phase != ActorPhase::kStarting && rank.phase != ActorPhase::kUnknown) || rank.failed) return;
  rank.phase = ActorPhase::kReady;
  rank.was_ready = true;
  rank.address = address;
  rank.last_beat = rank.last_progress = loop_.Now();
  rank.start_until = absl::InfiniteFuture();
  SendFencesTo(group, i);
  GroupChanged(group);
  CheckReady(group);
}

void Core::Impl::StopUnknown(Node& node, const std::string& actor_id, uint64_t epoch) {
  // Of an epoch that is over, or of nobody: nobody else will ever stop it.
  v1::NodeCommand command;
  command.mutable_stop()->set_actor_id(actor_id);
  command.mutable_stop()->set_epoch(epoch);
  Command(node.id, std::move(command));
}

}  // namespace manta::controller::core
