// The end of a world: nothing goes wrong any more, and after a while everybody must have an answer and nothing be left.
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/world.h"

namespace manta::sim {

void World::Quiesce() {
  calm_ = true;
  Log("calm from here");
  if (calls_ != nullptr) calls_->Calm();
  for (const auto& agent : agents_) agent->Calm();
  commit_slowness_ = absl::ZeroDuration();
  if (journal_ != nullptr) journal_->set_health(absl::OkStatus());
  loop_->RunFor(absl::Seconds(45));  // cables heal, hosts boot, the head comes back
  if (core_ == nullptr) StartHead();
  journal_->set_health(absl::OkStatus());
  v1::DrainRequest open;
  for (const auto& agent : agents_) open.add_nodes(agent->name());
  open.set_undo(true);
  core_->Drain(open, [](absl::StatusOr<v1::Done>) {});
  loop_->RunFor(absl::Seconds(150));
  Verify();
  CheckRest();
  for (auto& [name, ask] : asks_) {
    if (ask.state == Ask::State::kThere || ask.state == Ask::State::kAsked) Remove(ask);
  }
  loop_->RunFor(absl::Seconds(40));
  Verify();
  bool stopped = false;
  core_->Shutdown(absl::Seconds(1), "the end", [&](absl::StatusOr<v1::Done> done) {
    stopped = true;
    if (!done.ok()) truth_.Broken(absl::StrCat("the end: ", done.status().ToString()));
  });
  loop_->RunFor(absl::Seconds(20));
  Verify();
  if (!stopped) truth_.Broken("the cluster did not stop");
  for (const auto& [key, process] : truth_.live()) {
    truth_.Broken(absl::StrCat(process.actor_id, " epoch ", process.epoch, " is left behind on ", process.node));
  }
  for (const auto& [key, value] : disk_->rows) {
    if (key.first == core::Journal::Kind::kGroup) truth_.Broken(absl::StrCat("row ", key.second, " is left behind"));
  }
}

// Nothing has gone wrong for minutes: everybody has an answer, and what the head says is so.
void World::CheckRest() {
  v1::ListRequest request;
  request.set_groups(true);
  request.set_nodes(true);
  v1::ListReply reply;
  core_->List(request, &reply);
  for (const auto& node : reply.nodes()) {
    if (node.state() != "JOINED") truth_.Broken(absl::StrCat(node.node(), " is ", node.state(), " in peace"));
  }
  std::set<std::pair<std::string, uint64_t>> known, ready;
  std::map<std::string, uint64_t> again;  // groups that were started more than once, and their epochs
  for (const auto& group : reply.groups()) {
    if (group.state() != "READY" && group.state() != "FAILED" && group.state() != "QUEUED") {
      truth_.Broken(absl::StrCat("group ", group.role(), " is ", group.state(), " in peace: ",
                                 group.history().empty() ? "" : group.history(group.history_size() - 1)));
    }
    const bool whole = asks_.at(group.role()).group.restart().kind() == v1::RestartPolicy::RESTART_GROUP;
    if (group.state() == "READY" && group.restarts() > 0 && whole) again[group.role()] = group.epoch();
    for (const auto& rank : group.ranks()) {
      if (group.state() == "READY") ready.emplace(rank.actor_id(), rank.epoch());
      known.emplace(rank.actor_id(), rank.epoch());
      if (group.state() == "READY" && !truth_.Lives(rank.actor_id(), rank.epoch())) {
        truth_.Broken(absl::StrCat(rank.actor_id(), " epoch ", rank.epoch(), " is called ready and does not run"));
      }
    }
  }
  if (calls_ != nullptr) calls_->CheckRest(again, ready);
  for (const auto& [key, process] : truth_.live()) {
    if (known.count(key) == 0) {
      truth_.Broken(absl::StrCat(process.actor_id, " epoch ", process.epoch, " runs on ", process.node, " for nobody"));
    }
  }
  for (const auto& [name, ask] : asks_) {
    if (ask.state == Ask::State::kAsked || ask.state == Ask::State::kRemoving) {
      truth_.Broken(absl::StrCat(name, " was never answered"));
    }
  }
}

}  // namespace manta::sim
