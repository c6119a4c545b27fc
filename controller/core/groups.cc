// Groups: how they come to be and how they end. What brings them back in between is in policies.cc.
#include <algorithm>
#include <bit>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "controller/cluster/death.h"
#include "controller/core/core_impl.h"
#include "google/protobuf/util/message_differencer.h"
#include "spdlog/spdlog.h"

namespace manta::controller::core {
namespace {

constexpr absl::Duration kStartDeadline = absl::Seconds(60);

constexpr size_t kHistory = 16, kMaxWaiting = 10'000;

bool IsName(const std::string& name, bool dashes) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [&](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || (dashes && (c == '-' || c == '.'));
  });
}

// The first field in which they differ, as "args[1]: \"--x\" -> \"--y\"".
std::string Difference(const v1::GroupRequest& there, const v1::GroupRequest& asked) {
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  // How long room was waited for makes no other group of it.
  differencer.set_report_ignores(false);
  for (const char* field : {"deadline_ms", "wait_for_nodes"}) {
    differencer.IgnoreField(v1::PlacementRequest::descriptor()->FindFieldByName(field));
  }
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(there, asked)) return "";
  return report.substr(0, std::min(report.find('\n'), size_t{200}));
}

}  // namespace

absl::Status Core::Impl::CheckGroup(const v1::GroupRequest& request) const {
  if (!IsName(request.role(), false)) return UserError(absl::StrCat("'", request.role(), "' is no name for a group"));
  const std::string& job = request.placement().job();
  if (!IsName(job, true)) return UserError(absl::StrCat("'", job, "' is no name for a job"));
  if (request.executable().empty()) return UserError(absl::StrCat("group ", request.role(), ": names no executable"));
  if (request.start_deadline_ms() < 0 || request.progress_timeout_ms() < 0 || request.ports_per_rank() < 0 ||
      request.ports_per_rank() > 64) {
    return UserError(
        absl::StrCat("group ", request.role(), ": times are not negative, and a rank has 64 ports at most"));
  }
  if (request.placement_id() != 0) {
    const auto found = placements_.find(request.placement_id());
    if (found == placements_.end() || !found->second.placed) {
      return absl::NotFoundError(absl::StrCat("group ", request.role(), ": no placement ", request.placement_id()));
    }
    if (found->second.user.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("placement ", request.placement_id(), " is used by group ", GroupName(*found->second.user)));
    }
    return absl::OkStatus();
  }
  return scheduler::CheckRequest(request.placement());
}

void Core::Impl::CreateGroup(v1::GroupRequest request, Answer<v1::GroupReply> answer) {
  if (request.placement().job().empty()) request.mutable_placement()->set_job(kOnlyJob);
  if (request.placement().name().empty()) {
    request.mutable_placement()->set_name(GroupName({request.placement().job(), request.role()}));
  }
  if (request.start_deadline_ms() == 0) request.set_start_deadline_ms(absl::ToInt64Milliseconds(kStartDeadline));
  if (request.torchrun() && request.ports_per_rank() == 0) request.set_ports_per_rank(1);
  absl::Status status = CheckMayChange();
  const GroupKey key{request.placement().job(), request.role()};
  Group* there = Find(key);
  if (status.ok() && there == nullptr) status = CheckGroup(request);
  if (status.ok() && there == nullptr && !request.name().empty() && names_.count(request.name()) > 0) {
    status = absl::AlreadyExistsError(
        absl::StrCat("group ", GroupName(names_.at(request.name())), " is called ", request.name(), " already"));
  }
  if (status.ok() && there == nullptr && queue_.size() >= kMaxWaiting) {
    status = absl::ResourceExhaustedError(absl::StrCat(kMaxWaiting, " requests wait for room already"));
  }
  if (status.ok() && there != nullptr) {
    if (there->state == GroupState::kRemoving) {
      status = absl::FailedPreconditionError(absl::StrCat("group ", GroupName(key), " is being stopped"));
    } else if (const std::string difference = Difference(there->request, request); !difference.empty()) {
      status = absl::AlreadyExistsError(
          absl::StrCat("there is a group ", GroupName(key), " already, and it is another: ", difference));
    } else if (there->state == GroupState::kFailed) {
      status = there->failure;
    }
  }
  if (!status.ok()) return Reply<v1::GroupReply>(std::move(answer), status);
  if (const auto job = job_table_.find(key.job);
      there == nullptr && job != job_table_.end() && job->second.done.count(key.role) > 0) {
    v1::GroupReply done;  // asked for again after a restart of the head: its work is done
    done.set_role(key.role);
    done.set_adopted(true);
    return Reply<v1::GroupReply>(std::move(answer), std::move(done));
  }
  if (there != nullptr) {
    if (there->state != GroupState::kReady) {
      there->waiting.emplace_back(std::move(answer), true);
      return;
    }
    v1::GroupReply reply = ReplyOf(*there);
    reply.set_adopted(true);
    return Reply<v1::GroupReply>(std::move(answer), std::move(reply));
  }
  Group& group = *(groups_[key] = std::make_unique<Group>());
  group.key = key;
  group.serial = NextToken();
  group.request = std::move(request);
  group.waiting.emplace_back(std::move(answer), false);
  if (!group.request.name().empty()) names_[group.request.name()] = key;
  if (group.request.placement_id() != 0) {
    group.own_placement = false;
    group.placement = group.request.placement_id();
    placements_.at(group.placement).user = key;
    GroupPlaced(group);
  } else {
    Placement& placement = AddPlacement(group.request.placement());
    placement.user = key;
    group.placement = placement.id;
    Enqueue(placement);
  }
  GroupChanged(group);
}

void Core::Impl::GroupPlaced(Group& group) {
  group.waits_for.clear();
  NewEpoch(group);
}

void Core::Impl::NewEpoch(Group& group) {
  const Placement& placement = placements_.at(group.placement);
  const bool again = group.epoch != 0;
  group.epoch = NextToken();
  group.was_ready = group.planned = group.move_tried = false;
  group.ranks.clear();
  group.ranks.resize(placement.ranks.size());
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    group.ranks[i].epoch = group.epoch;
    group.ranks[i].place = placement.ranks[i];
    group.ranks[i].agent = nodes_[placement.ranks[i].node]->hello.incarnation();
  }
  SaveGroup(group);
  if (again) SendFences(group);
  if (group.request.ports_per_rank() > 0) {
    LeasePorts(group);
  } else {
    StartRanks(group);
  }
}

void Core::Impl::CheckReady(Group& group) {
  if (group.state != GroupState::kStarting && group.state != GroupState::kReady) return;
  for (const Actor& rank : group.ranks) {
    if (rank.phase != ActorPhase::kReady && !rank.done) return;
  }
  const bool first = group.state == GroupState::kStarting;
  for (Actor& rank : group.ranks) rank.replacing = false;
  group.failure = absl::OkStatus();
  group.stacks_until = absl::InfiniteFuture();
  group.ready_since = loop_.Now();
  group.was_ready = group.ever_ready = true;
  if (first) {
    spdlog::info("group {} is ready: {} ranks, epoch {}", GroupName(group.key), group.ranks.size(), group.epoch);
  }
  SetState(group, GroupState::kReady);
  SaveGroup(group);
  AnswerWaiting(group, absl::OkStatus());
  Emit(group, GroupEvent::kReady, absl::OkStatus());
}

void Core::Impl::CheckDone(Group& group) {
  if (group.state != GroupState::kStarting && group.state != GroupState::kReady) return;
  if (group.state == GroupState::kStarting) CheckReady(group);  // its last start may be heard of with its end
  if (!group.AllDone()) {
    SaveGroup(group);
    return;
  }
  spdlog::info("group {} has ended: each of its programs with 0", GroupName(group.key));
  const auto job = job_table_.find(group.key.job);
  if (job != job_table_.end() && job->second.done.insert(group.key.role).second) SaveJob(job->second);
  BeginRemoval(group, absl::ZeroDuration(), absl::OkStatus());
}

void Core::Impl::AnswerWaiting(Group& group, const absl::Status& status) {
  for (auto& [answer, adopted] : std::exchange(group.waiting, {})) {
    if (!status.ok()) {
      Reply<v1::GroupReply>(std::move(answer), status);
      continue;
    }
    v1::GroupReply reply = ReplyOf(group);
    reply.set_adopted(adopted);
    Reply<v1::GroupReply>(std::move(answer), std::move(reply));
  }
}

v1::GroupReply Core::Impl::ReplyOf(const Group& group) const {
  v1::GroupReply reply;
  reply.set_role(group.key.role);
  reply.set_epoch(group.epoch);
  reply.set_adopted(group.adopted);
  for (int i = 0; i < static_cast<int>(group.ranks.size()); ++i) *reply.add_ranks() = InfoOf(group, i);
  return reply;
}

void Core::Impl::StopRank(Group& group, int i, absl::Duration grace) {
  Actor& rank = group.ranks[i];
  if (!rank.may_run()) {
    rank.phase = ActorPhase::kGone;
    return;
  }
  rank.phase = ActorPhase::kStopping;
  rank.stop_until = loop_.Now() + grace + options_.stop_slack;
  rank.start_until = absl::InfiniteFuture();
  v1::NodeCommand command;
  command.mutable_stop()->set_actor_id(ActorId(group.key, i));
  command.mutable_stop()->set_epoch(rank.epoch);
  command.mutable_stop()->set_grace_ms(absl::ToInt64Milliseconds(grace));
  Command(rank.place.node, std::move(command));
}

void Core::Impl::RankGone(Group& group, int i) {
  Actor& rank = group.ranks[i];
  rank.phase = ActorPhase::kGone;
  rank.gone_at = rank.start_until = rank.stop_until = absl::InfiniteFuture();
  rank.running = 0;
  GroupChanged(group);
  if (group.state == GroupState::kRemoving && group.AllGone()) return FinishRemoval(group);
  if (group.state == GroupState::kRestarting && group.AllGone()) return EnterBackoff(group);
  if (rank.done) return CheckDone(group);
  if (rank.replacing && rank.backoff_until == absl::InfiniteFuture()) {
    const absl::Duration backoff = group.planned ? absl::ZeroDuration() : Backoff(group);
    rank.backoff_until = loop_.Now() + backoff;
    AfterFor(group, backoff, [i, epoch = rank.epoch](Impl& impl, Group& now) {
      if (i < static_cast<int>(now.ranks.size()) && now.ranks[i].epoch == epoch && now.ranks[i].replacing &&
          now.ranks[i].gone()) {
        impl.StartReplacement(now, i);
      }
    });
  }
}

void Core::Impl::RemoveGroup(const GroupKey& key, absl::Duration grace, Answer<v1::Done> answer) {
  Group* group = Find(key);
  if (group == nullptr) return Reply<v1::Done>(std::move(answer), v1::Done());
  const absl::Status health = journal_.health();
  if (!health.ok() && !stopping_) return Reply<v1::Done>(std::move(answer), health);
  group->removal.push_back(std::move(answer));
  const absl::Duration patience = grace + options_.stop_slack;
  AfterFor(*group, patience, [](Impl& impl, Group& late) {
    if (late.removal.empty()) return;
    spdlog::error("group {}: not every process was reported gone in time", GroupName(late.key));
    for (Answer<v1::Done>& waiting : std::exchange(late.removal, {})) {
      impl.Reply<v1::Done>(std::move(waiting), absl::DeadlineExceededError(absl::StrCat("group ", GroupName(late.key),
                                                                                        ": a process may still run")));
    }
    impl.stop_incomplete_ |= impl.stopping_;
    impl.Changed();
  });
  BeginRemoval(*group, grace, absl::CancelledError(absl::StrCat("group ", GroupName(key), " is being stopped")));
}

void Core::Impl::BeginRemoval(Group& group, absl::Duration grace, const absl::Status& told_to_waiting) {
  if (group.state == GroupState::kRemoving) return;
  SetState(group, GroupState::kRemoving);
  if (!told_to_waiting.ok()) AnswerWaiting(group, told_to_waiting);
  if (group.journalled) SaveGroup(group);
  for (int i = 0; i < static_cast<int>(group.ranks.size()); ++i) {
    group.ranks[i].replacing = false;
    StopRank(group, i, grace);
  }
  if (Fault("free_slot_early") && group.placement != 0) Release(placements_.at(group.placement));
  if (group.AllGone()) FinishRemoval(group);
}

void Core::Impl::FinishRemoval(Group& group) {
  if (Find(group.key) != &group) return;  // is done; whoever goes over its ranks comes by again
  if (group.journalled) journal_.Erase(Journal::Kind::kGroup, group.key.Name());
  if (group.own_placement) {
    if (group.placement != 0) DropPlacement(group.placement);
  } else {
    placements_.at(group.placement).user.reset();
  }
  std::erase_if(rank_items_, [&](const auto& item) {
    if (item.second.serial != group.serial) return false;
    queue_.Remove(item.first);
    return true;
  });
  if (!group.request.name().empty()) names_.erase(group.request.name());
  for (Answer<v1::Done>& answer : std::exchange(group.removal, {})) Reply<v1::Done>(std::move(answer), v1::Done());
  AnswerWaiting(group, group.failure.ok() ? absl::CancelledError("the group was stopped") : group.failure);
  Emit(group, GroupEvent::kEnded, group.failure);
  const std::string job = group.key.job;
  const auto found = groups_.find(group.key);
  graveyard_.push_back(std::move(found->second));
  groups_.erase(found);
  FinishJob(job);
  Changed();
}

void Core::Impl::SetState(Group& group, GroupState state) {
  if (group.state == state) return;
  group.state = state;
  Note(group, Name(state));
  GroupChanged(group);
}

void Core::Impl::Note(Group& group, const std::string& line) {
  group.history.push_back(
      absl::StrFormat("+%.1fs %s", absl::ToDoubleSeconds(loop_.Now() - started_), line.substr(0, 300)));
  if (group.history.size() > kHistory) group.history.pop_front();
}

void Core::Impl::SaveGroup(Group& group) {
  v1::GroupRow row;
  *row.mutable_request() = group.request;
  row.set_epoch(group.epoch);
  row.set_ready(group.was_ready);
  row.set_ever_ready(group.ever_ready);
  row.set_restarts(group.restarts);
  row.set_removing(group.state == GroupState::kRemoving);
  row.set_over(group.state == GroupState::kRestarting || group.state == GroupState::kBackoff ||
               group.state == GroupState::kQueued);
  row.set_failed(group.state == GroupState::kFailed);
  if (!group.failure.ok()) *row.mutable_failure() = ToProto(group.failure);
  if (!group.own_placement) row.set_placement_id(group.placement);
  for (const Actor& rank : group.ranks) {
    v1::ActorRow& saved = *row.add_ranks();
    saved.set_epoch(rank.epoch);
    saved.set_agent(rank.agent);
    saved.set_ready(rank.was_ready);
    saved.set_over(rank.failed);
    saved.set_done(rank.done);
    saved.mutable_place()->set_node(NodeName(rank.place.node));
    for (uint64_t left = rank.place.gpus; left != 0; left &= left - 1) {
      saved.mutable_place()->add_gpus(std::countr_zero(left));
    }
    for (int32_t port : rank.ports) saved.add_ports(port);
  }
  for (const std::string& line : group.history) row.add_history(line);
  journal_.Put(Journal::Kind::kGroup, group.key.Name(), row.SerializeAsString());
  group.journalled = true;
}

void Core::Impl::SendFences(const Group& group) {
  v1::WorkerOrder order;
  order.mutable_fence()->set_group(GroupName(group.key));
  order.mutable_fence()->set_min_epoch(group.epoch);
  if (Fault("no_fencing")) return;
  for (const auto& [key, other] : groups_) {
    if (key.job != group.key.job || key == group.key) continue;
    for (int i = 0; i < static_cast<int>(other->ranks.size()); ++i) {
      if (other->ranks[i].phase == ActorPhase::kReady) SendWorkerOrder(*other, i, order);
    }
  }
}

void Core::Impl::SendFencesTo(const Group& group, int rank) {
  if (Fault("no_fencing")) return;
  for (const auto& [key, other] : groups_) {
    if (key.job != group.key.job || key == group.key || other->restarts == 0 || other->epoch == 0) continue;
    v1::WorkerOrder order;
    order.mutable_fence()->set_group(GroupName(key));
    order.mutable_fence()->set_min_epoch(other->epoch);
    SendWorkerOrder(group, rank, order);
  }
}

}  // namespace manta::controller::core
