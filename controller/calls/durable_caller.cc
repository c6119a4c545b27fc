#include "controller/calls/durable_caller.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/actor/client.h"
#include "common/base/status.h"
#include "common/call/core/outcome.h"
#include "common/rpc/call.h"
#include "grpcpp/channel.h"

namespace manta::controller {
namespace {

constexpr absl::Duration kReleaseEvery = absl::Milliseconds(200);
constexpr absl::Duration kAskEvery = absl::Milliseconds(200);
constexpr absl::Duration kQuery = absl::Seconds(5);
constexpr int kReleaseTries = 10;
constexpr absl::Duration kLongestCall = absl::Hours(1);
constexpr uint32_t kQueryWaitMs = 2000;

std::string NameOf(const std::string& job, const std::string& key) { return absl::StrCat(job, "/", key); }

}  // namespace

DurableCaller::DurableCaller(EventLoop& loop, core::Journal& journal, Options options,
                             const std::vector<core::JournalEntry>& rows)
    : loop_(loop), journal_(journal), options_(std::move(options)) {
  for (const core::JournalEntry& entry : rows) {
    if (entry.kind != core::Journal::Kind::kCall) continue;
    v1::CallRow call;
    // One that cannot be read has no address, and resolves as UNKNOWN.
    if (call.ParseFromString(entry.value) && call.method().empty()) {  // forgotten
      Release(call.address(), entry.key);
      continue;
    }
    rows_[entry.key] = Row{.call = std::move(call), .left_over = true};
  }
}

DurableCaller::~DurableCaller() {
  *alive_ = false;
  loop_.Cancel(release_timer_);
}

v1::CallerId DurableCaller::Caller() const {
  v1::CallerId caller;
  caller.set_id(options_.id);
  caller.set_incarnation(options_.incarnation);
  return caller;
}

absl::StatusOr<actor::Client*> DurableCaller::Client() {
  if (client_ == nullptr) {
    MANTA_ASSIGN_OR_RETURN(client_, actor::Client::Create({.token = options_.token, .caller = Caller()}));
  }
  return client_.get();
}

std::unique_ptr<v1::CallService::Stub>& DurableCaller::StubOf(const std::string& address) {
  std::unique_ptr<v1::CallService::Stub>& stub = stubs_[address];
  if (stub == nullptr) {
    if (auto channel = options_.connect(address); channel != nullptr) stub = v1::CallService::NewStub(channel);
  }
  return stub;
}

Task<bool> DurableCaller::Durable() {
  OneShot<bool> durable(loop_);
  journal_.WhenDurable(journal_.last_sequence(), [durable]() mutable { durable.Set(true); });
  co_return co_await durable.Wait();
}

Task<absl::StatusOr<std::string>> DurableCaller::Call(std::string job, CallTarget actor, std::string method,
                                                      std::string argument, std::string key, absl::Duration deadline) {
  const std::string name = NameOf(job, key);
  if (rows_.count(name) > 0 || releasing_.count(name) > 0) {
    co_return call::NotStarted(absl::AlreadyExistsError(absl::StrCat("there is a call ", name, " that nobody has forgotten")));
  }
  if (const absl::Status health = journal_.health(); !health.ok()) co_return call::NotStarted(health);
  const auto client = Client();
  if (!client.ok()) co_return call::NotStarted(client.status());
  v1::CallRow row;
  row.set_actor_id(actor.actor_id);
  row.set_epoch(actor.epoch);
  row.set_address(actor.address);
  row.set_method(method);
  rows_[name].call = row;
  journal_.Put(core::Journal::Kind::kCall, name, row.SerializeAsString());
  co_await Durable();
  OneShot<absl::StatusOr<std::string>> result(loop_);
  actor::ActorAddress address;
  address.actor_id = actor.actor_id;
  address.epoch = actor.epoch;
  address.address = actor.address;
  actor::CallOptions options{.deadline = deadline, .key = name, .max_retries = 0};
  (*client)->ActorAt(address).StartBytes(std::move(method), std::move(argument), std::move(options),
                                         [result, poster = loop_.poster()](absl::StatusOr<std::string> reply) mutable {
                                           poster.Post([result, reply = std::move(reply)]() mutable {
                                             result.Set(std::move(reply));
                                           });
                                         });
  absl::StatusOr<std::string> reply = co_await result.Wait();
  const bool unknown = !reply.ok() && call::OutcomeOf(reply.status()) == v1::CALL_OUTCOME_UNKNOWN;
  Note(name, reply.status());
  if (!unknown) co_return reply;
  // The connection may have broken where the actor has not.
  absl::StatusOr<std::string> became = co_await AskWhatBecame(name, row);
  const bool told = became.ok() || call::OutcomeOf(became.status()) != v1::CALL_OUTCOME_UNKNOWN;
  Note(name, became.status());
  if (told) co_return became;
  co_return reply;
}

// Until the actor says what became of the call, or cannot be asked any more.
Task<absl::StatusOr<std::string>> DurableCaller::AskWhatBecame(std::string name, v1::CallRow row) {
  const absl::Time until = loop_.Now() + options_.patience, longest = loop_.Now() + kLongestCall;
  absl::Status why = absl::UnavailableError(absl::StrCat(row.actor_id(), " is not to be reached"));
  v1::QueryCallsRequest request;
  *request.mutable_caller() = Caller();
  request.add_keys(name);
  request.set_wait_ms(kQueryWaitMs);
  while (!row.address().empty()) {
    const std::unique_ptr<v1::CallService::Stub>& stub = StubOf(row.address());
    if (stub == nullptr) break;
    rpc::CallOptions options{.deadline = kQuery};
    absl::StatusOr<v1::QueryCallsReply> reply = co_await rpc::Call(
        loop_, stub->async(), &rpc::AsyncOf<v1::CallService>::QueryCalls, request, std::move(options));
    if (reply.ok() && reply->results_size() == 1) {
      v1::CallResult& result = *reply->mutable_results(0);
      switch (result.state()) {
        case v1::CALL_STATE_DONE:
          if (result.reply().has_error()) co_return call::Failed(FromProto(result.reply().error()));
          co_return std::move(*result.mutable_reply()->mutable_payload());
        case v1::CALL_STATE_NEVER_SEEN:
          co_return call::NotStarted(
              absl::AbortedError(absl::StrCat("call ", name, " of ", row.method(), " never reached ", row.actor_id())));
        case v1::CALL_STATE_FORGOTTEN:
          co_return call::Failed(
              absl::DataLossError(absl::StrCat("call ", name, " ran; its reply is no longer kept")));
        default:  // it waits or runs, and will end
          why = absl::DeadlineExceededError("it still runs");
          if (loop_.Now() < longest) continue;
      }
    }
    if (!reply.ok()) why = reply.status();
    if (loop_.Now() >= until) break;
    co_await Sleep(loop_, kAskEvery);
  }
  co_return call::Unknown(Annotate(why, absl::StrCat("what became of call ", name, " of ", row.method(), " to ",
                                                     row.actor_id(), " is not known")));
}

Task<std::vector<DurableCaller::Resolved>> DurableCaller::Resolve(std::string job) {
  std::vector<std::string> names;
  const std::string prefix = absl::StrCat(job, "/");
  for (auto it = rows_.lower_bound(prefix); it != rows_.end() && it->first.compare(0, prefix.size(), prefix) == 0; ++it) {
    if (it->second.left_over) names.push_back(it->first);
  }
  std::vector<Task<absl::StatusOr<std::string>>> asking;
  for (const std::string& name : names) asking.push_back(AskWhatBecame(name, rows_[name].call));
  std::vector<absl::StatusOr<std::string>> replies = co_await WhenAll(std::move(asking));
  std::vector<Resolved> resolved;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found = rows_.find(names[i]);
    if (found == rows_.end()) continue;
    found->second.left_over = false;
    Note(names[i], replies[i].status());
    resolved.push_back({names[i].substr(prefix.size()), found->second.call.method(), found->second.call.actor_id(),
                        std::move(replies[i])});
  }
  co_return resolved;
}

void DurableCaller::Note(const std::string& name, const absl::Status& outcome) {
  const auto found = rows_.find(name);
  if (found == rows_.end()) return;
  found->second.kept = outcome.ok() || call::OutcomeOf(outcome) != v1::CALL_OUTCOME_NOT_STARTED;
}

void DurableCaller::Forget(const std::string& job, const std::string& key) {
  const std::string name = NameOf(job, key);
  const auto found = rows_.find(name);
  if (found == rows_.end()) return;
  const Row row = std::move(found->second);
  rows_.erase(found);
  if (!row.kept || row.call.address().empty()) return journal_.Erase(core::Journal::Kind::kCall, name);
  v1::CallRow forgotten = row.call;
  forgotten.clear_method();
  journal_.Put(core::Journal::Kind::kCall, name, forgotten.SerializeAsString());
  releasing_[name] = 0;
  // The actor's copy goes after that: a head that finds the call must find the result.
  journal_.WhenDurable(journal_.last_sequence(), [this, alive = alive_, address = row.call.address(), name] {
    if (*alive) Release(address, name);
  });
}

void DurableCaller::Release(const std::string& address, std::string name) {
  releasing_.try_emplace(name, 0);
  releases_[address].push_back(std::move(name));
  if (release_timer_ != 0) return;
  release_timer_ = loop_.RunAfter(kReleaseEvery, [this] {
    release_timer_ = 0;
    FlushReleases();
  });
}

void DurableCaller::FlushReleases() {
  for (auto& [address, names] : std::exchange(releases_, {})) {
    const std::unique_ptr<v1::CallService::Stub>& stub = StubOf(address);
    if (stub == nullptr) {
      Released(address, names, absl::OkStatus());  // nobody is there to keep anything
      continue;
    }
    v1::QueryCallsRequest request;
    *request.mutable_caller() = Caller();
    for (const std::string& name : names) request.add_release(name);
    Spawn(loop_,
          rpc::Call(loop_, stub->async(), &rpc::AsyncOf<v1::CallService>::QueryCalls, request, {.deadline = kQuery}),
          [this, alive = alive_, address = address, names = names](const absl::StatusOr<v1::QueryCallsReply>& reply) {
            if (*alive) Released(address, names, reply.status());
          });
  }
}

// An actor that does not answer a few times is gone, and its results with it.
void DurableCaller::Released(const std::string& address, const std::vector<std::string>& names,
                             const absl::Status& status) {
  for (const std::string& name : names) {
    const auto found = releasing_.find(name);
    if (found == releasing_.end()) continue;
    if (!status.ok() && ++found->second < kReleaseTries) {
      Release(address, name);
      continue;
    }
    releasing_.erase(found);
    journal_.Erase(core::Journal::Kind::kCall, name);
  }
}

}  // namespace manta::controller
