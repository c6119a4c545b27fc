#include "common/call/core/call_table.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/call/core/outcome.h"

namespace manta::call {
namespace {

constexpr size_t kMaxCallerId = 64;
constexpr size_t kMaxIncarnations = 65536;  // and actors

// "train-3" is of the group "train"; with its job before it where there is one.
std::string GroupOf(const std::string& actor_id) {
  return actor_id.substr(0, actor_id.rfind('-'));
}

}  // namespace

CallTable::CallTable(Options options) : options_(std::move(options)), next_session_(options_.first_session) {
  while (next_session_ == 0) {
    std::random_device device;
    next_session_ = (uint64_t{device()} << 32 | device()) << 16 >> 1;
  }
  MANTA_CHECK(options_.window > 0 && (options_.window & (options_.window - 1)) == 0) << "window " << options_.window;
}

CallTable::~CallTable() = default;

absl::Status CallTable::CheckCaller(const v1::CallerId& caller) {
  if (caller.id().empty() || caller.id().size() > kMaxCallerId) {
    return absl::InvalidArgumentError(
        absl::StrCat("a caller's id has 1 to ", kMaxCallerId, " bytes, not ", caller.id().size()));
  }
  if (options_.fencing && !caller.actor_id().empty()) {
    const auto fence = fences_.find(GroupOf(caller.actor_id()));
    if (fence != fences_.end() && caller.epoch() < fence->second) {
      return absl::FailedPreconditionError(absl::StrCat(caller.actor_id(), " of epoch ", caller.epoch(),
                                                        " is fenced off: epoch ", fence->second,
                                                        " is the oldest that may call"));
    }
  }
  if (!options_.sealing) return absl::OkStatus();
  if (!caller.actor_id().empty()) {
    const auto newest = epochs_.find(caller.actor_id());
    if (newest == epochs_.end() && epochs_.size() >= kMaxIncarnations) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMaxIncarnations, " calling actors are known; no more are taken"));
    }
    if (newest != epochs_.end() && caller.epoch() < newest->second) {
      return absl::FailedPreconditionError(absl::StrCat(caller.actor_id(), " of epoch ", caller.epoch(),
                                                        " is over: it has called in epoch ", newest->second));
    }
  }
  const auto newest = incarnations_.find(caller.id());
  if (newest == incarnations_.end() && caller.incarnation() != 0 && incarnations_.size() >= kMaxIncarnations) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxIncarnations, " durable callers are known; no more are taken"));
  }
  if (newest != incarnations_.end() && caller.incarnation() < newest->second) {
    return absl::FailedPreconditionError(
        absl::StrCat("incarnation ", caller.incarnation(), " of this caller is over: ", newest->second, " has come"));
  }
  return absl::OkStatus();
}

CallTable::Sessions CallTable::SealOlder(const v1::CallerId& caller) {
  Sessions older;
  if (!options_.sealing) return older;
  bool first = caller.incarnation() == 0;  // nothing of it can be older
  if (!first) incarnations_[caller.id()] = caller.incarnation();
  if (!caller.actor_id().empty()) {
    const auto [newest, added] = epochs_.try_emplace(caller.actor_id(), caller.epoch());
    first &= added || newest->second == caller.epoch();
    newest->second = caller.epoch();
  }
  if (first) return older;
  for (const auto& [id, session] : sessions_) {
    const v1::CallerId& other = session->caller();
    const bool before = other.id() == caller.id() && other.incarnation() < caller.incarnation();
    const bool over =
        !other.actor_id().empty() && other.actor_id() == caller.actor_id() && other.epoch() < caller.epoch();
    if (before || over) older.push_back(session);
  }
  for (const auto& session : older) sessions_.erase(session->id());
  return older;
}

void CallTable::CutOlder(const Sessions& older) {
  for (const auto& session : older) {
    // A durable caller asks for the results of what ran; nobody waits for an actor's that is gone.
    const bool durable = session->caller().incarnation() != 0;
    session->Cut(absl::FailedPreconditionError(durable ? "a newer incarnation of this caller has come"
                                                       : "this caller's actor has called in a newer epoch"),
                 /*cancel_running=*/!durable);
  }
}

absl::StatusOr<CallTable::Opened> CallTable::Open(const v1::SessionOpen& open, std::shared_ptr<ReplyBatchSink> link,
                                                  v1::SessionOpened* opened) {
  std::shared_ptr<ServerSession> session;
  Sessions older;
  {
    std::lock_guard lock(mu_);
    if (open.actor_id() != options_.actor_id || open.epoch() != options_.epoch) {
      return NotStarted(
          absl::FailedPreconditionError(absl::StrCat("this is ", options_.actor_id, " of epoch ", options_.epoch,
                                                     ", not ", open.actor_id(), " of epoch ", open.epoch())));
    }
    if (const absl::Status known = CheckCaller(open.caller()); !known.ok()) return NotStarted(known);
    if (open.session() != 0) {
      const auto found = sessions_.find(open.session());
      if (found == sessions_.end() || found->second->caller().id() != open.caller().id()) {
        return Unknown(
            absl::AbortedError(absl::StrCat("the session with ", options_.actor_id, " is over and forgotten")));
      }
      session = found->second;
    } else {
      if (!draining_.ok()) return NotStarted(draining_);
      if (sessions_.size() >= options_.max_sessions) {
        return NotStarted(absl::ResourceExhaustedError(
            absl::StrCat(options_.actor_id, " has ", sessions_.size(), " sessions; it takes no more")));
      }
      older = SealOlder(open.caller());
      session = std::make_shared<ServerSession>(this, next_session_++, open.caller());
      sessions_.emplace(session->id(), session);
    }
  }
  CutOlder(older);
  opened->set_epoch(options_.epoch);
  opened->set_max_in_flight(options_.window);
  opened->set_host_id(options_.host_id);
  for (const v1::MethodInfo& method : options_.methods) *opened->add_methods() = method;
  Opened result;
  result.link = session->Attach(std::move(link), open, opened);
  result.session = std::move(session);
  return result;
}

void CallTable::Close(const std::shared_ptr<ServerSession>& session) {
  {
    std::lock_guard lock(mu_);
    sessions_.erase(session->id());
  }
  session->Cut(absl::CancelledError("the caller ended its session"), /*cancel_running=*/true);
}

void CallTable::Forget(const std::shared_ptr<ServerSession>& session, uint64_t link) {
  if (session->newest_link() == link) Close(session);
}

void CallTable::CloseAll(const absl::Status& why) {
  std::map<uint64_t, std::shared_ptr<ServerSession>> all;
  {
    std::lock_guard lock(mu_);
    all.swap(sessions_);
  }
  for (const auto& [id, session] : all) session->Cut(why, true);
}

void CallTable::Drain(const std::string& why) {
  std::lock_guard lock(mu_);
  if (draining_.ok()) draining_ = absl::UnavailableError(absl::StrCat(options_.actor_id, " stops: ", why));
  is_draining_ = true;
}

void CallTable::RaiseFence(const std::string& group, uint64_t min_epoch) {
  Sessions cut;
  {
    std::lock_guard lock(mu_);
    uint64_t& fence = fences_[group];
    fence = std::max(fence, min_epoch);
    if (!options_.fencing) return;
    for (auto it = sessions_.begin(); it != sessions_.end();) {
      const v1::CallerId& caller = it->second->caller();
      const bool old = !caller.actor_id().empty() && GroupOf(caller.actor_id()) == group && caller.epoch() < min_epoch;
      if (old) cut.push_back(it->second);
      it = old ? sessions_.erase(it) : std::next(it);
    }
  }
  for (const auto& session : cut) {
    session->Cut(absl::FailedPreconditionError(absl::StrCat("group ", group, " is in epoch ", min_epoch, " by now")),
                 true);
  }
}

v1::QueryCallsReply CallTable::Query(const v1::QueryCallsRequest& request) {
  v1::QueryCallsReply reply;
  Sessions older;
  {
    std::lock_guard lock(mu_);
    if (CheckCaller(request.caller()).ok()) older = SealOlder(request.caller());
  }
  CutOlder(older);
  std::lock_guard lock(mu_);
  for (const std::string& key : request.release()) {
    const auto found = keyed_.find({request.caller().id(), key});
    if (found == keyed_.end() || found->second.state == v1::CALL_STATE_QUEUED ||
        found->second.state == v1::CALL_STATE_RUNNING)
      continue;
    keyed_bytes_ -= found->second.reply.payload().size();
    keyed_.erase(found);
  }
  for (const std::string& key : request.keys()) {
    v1::CallResult* result = reply.add_results();
    result->set_key(key);
    const auto found = keyed_.find({request.caller().id(), key});
    result->set_state(found == keyed_.end() ? v1::CALL_STATE_NEVER_SEEN : found->second.state);
    if (found != keyed_.end() && found->second.state == v1::CALL_STATE_DONE)
      *result->mutable_reply() = found->second.reply;
  }
  return reply;
}

void CallTable::Tick() {
  Sessions over;
  const absl::Time now = options_.clock();
  {
    std::lock_guard lock(mu_);
    for (auto it = sessions_.begin(); it != sessions_.end();) {
      const bool old = now - it->second->detached_since() >= options_.session_ttl;
      if (old) over.push_back(it->second);
      it = old ? sessions_.erase(it) : std::next(it);
    }
  }
  for (const auto& session : over) session->Cut(absl::AbortedError("the caller has been gone for too long"), true);
}

CallTable::Counts CallTable::counts() const {
  Counts counts{.admitted = admitted_,
                .refused = refused_,
                .finished = finished_,
                .cancelled = cancelled_,
                .kept_bytes = kept_bytes_};
  std::lock_guard lock(mu_);
  counts.sessions = sessions_.size();
  counts.keys = keyed_.size();
  return counts;
}

absl::Status CallTable::BeginKey(const v1::CallerId& caller, const std::string& key) {
  std::lock_guard lock(mu_);
  if (keyed_.contains({caller.id(), key})) {
    return absl::AlreadyExistsError(absl::StrCat("a call with the key ", key, " was made already: ask for its result"));
  }
  if (keyed_.size() >= options_.max_keys || keyed_bytes_ >= options_.max_key_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(keyed_.size(), " results are kept under keys (", keyed_bytes_, " bytes); release some first"));
  }
  keyed_.emplace(Key(caller.id(), key), Keyed());
  return absl::OkStatus();
}

void CallTable::KeyRuns(const v1::CallerId& caller, const std::string& key) {
  std::lock_guard lock(mu_);
  const auto found = keyed_.find({caller.id(), key});
  if (found != keyed_.end()) found->second.state = v1::CALL_STATE_RUNNING;
}

void CallTable::KeyEnds(const v1::CallerId& caller, const std::string& key, const v1::Reply& reply, bool ran) {
  std::lock_guard lock(mu_);
  const auto found = keyed_.find({caller.id(), key});
  if (found == keyed_.end()) return;
  if (!ran) {
    keyed_.erase(found);  // it never ran: another may run under this key
    return;
  }
  const size_t bytes = reply.payload().size();
  if (keyed_bytes_ + bytes > options_.max_key_bytes) {
    found->second.state = v1::CALL_STATE_FORGOTTEN;
    return;
  }
  keyed_bytes_ += bytes;
  found->second.state = v1::CALL_STATE_DONE;
  found->second.reply = reply;
}

}  // namespace manta::call
