#include "tests/sim/calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/call/core/outcome.h"
#include "tests/sim/call_network.h"

namespace manta::sim {
namespace {

constexpr int kMaxAttempts = 6;
constexpr size_t kMaxPending = 32;

}  // namespace

class Calls::Sink final : public call::CallSink {
 public:
  Sink(Calls* calls, Caller* caller, uint64_t incarnation, uint64_t attempt)
      : calls_(calls), caller_(caller), incarnation_(incarnation), attempt_(attempt) {}
  void OnDone(const absl::Status& status, v1::Reply& reply) override {
    if (caller_->incarnation != incarnation_) return;  // its process is gone
    calls_->Ended(*caller_, attempt_, status, reply.payload());
  }

 private:
  Calls* const calls_;
  Caller* const caller_;
  const uint64_t incarnation_, attempt_;
};

Calls::Calls(EventLoop& loop, Truth& truth, Options options)
    : loop_(loop), truth_(truth), options_(std::move(options)), random_(options_.seed, 8) {
  for (const char* id : {"first", "second", "durable"}) {
    auto caller = std::make_unique<Caller>();
    caller->id = id;
    caller->durable = caller->id == "durable";
    caller->incarnation = caller->durable ? 1 : 0;
    callers_.push_back(std::move(caller));
  }
}

Calls::~Calls() {
  *alive_ = false;
  for (const auto& [key, server] : servers_) graveyard_.push_back(server);
  for (const auto& server : graveyard_) {
    for (const auto& weak : server->wires) {
      const auto wire = weak.lock();
      if (wire == nullptr) continue;
      wire->up->Clear();
      wire->down->Clear();
    }
  }
  for (const auto& weak : connections_) {
    if (const auto conn = weak.lock()) conn->waiting.clear();  // they hold what holds this
  }
}

void Calls::Begin() {
  begun_ = true;
  for (const auto& caller : callers_) Act(*caller);
}

void Calls::Calm() {
  calm_ = true;
}

void Calls::Act(Caller& caller) {
  if (calm_) return;
  NewRequest(caller);
  if (caller.durable && Below(60) == 0) {  // with calls on their way
    NewRequest(caller);
    NewRequest(caller);
    After(Delay(), [this, &caller] { Restart(caller); });
  }
  if (Below(40) == 0 && !caller.conns.empty()) {
    auto which = caller.conns.begin();
    std::advance(which, Below(caller.conns.size()));
    if (which->second->wire != nullptr) Break(which->second->wire);
  }
  const bool actor = caller.link != nullptr;  // there are many of these
  const absl::Duration pause = absl::Milliseconds(actor ? 200 + Below(4000) : 20 + Below(600));
  After(pause, [this, &caller, incarnation = caller.incarnation] {
    if (caller.link == nullptr || caller.incarnation == incarnation) Act(caller);
  });
}

void Calls::NewRequest(Caller& caller) {
  if (caller.known.empty() || Below(4) == 0) {
    v1::ListReply reply;
    if (options_.ask_head(&reply)) {
      caller.known.clear();
      for (const v1::ActorInfo& actor : reply.actors()) {
        if (actor.state() == v1::ACTOR_STATE_READY) caller.known.emplace_back(actor.actor_id(), actor.epoch());
      }
    }
  }
  if (caller.known.empty() || caller.pending.size() >= kMaxPending) return;
  // Some at once, to one actor: queues fill, batches form.
  Key at = caller.known[Below(caller.known.size())];
  // An actor that was started again calls those that it called before.
  if (const auto haunts = haunts_.find(caller.self.first); haunts != haunts_.end() && Below(2) == 0) {
    at = haunts->second[Below(haunts->second.size())];
  }
  const uint64_t count = Below(8) == 0 ? 1 + Below(10) : 1;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t id = requests_.size() + 1;
    Request& request = requests_[id];
    request.at = at;
    if (caller.durable) request.key = absl::StrCat("key ", id);
    caller.pending.insert(id);
    Send(caller, id);
  }
}

std::shared_ptr<Calls::Conn> Calls::Connection(Caller& caller, const Key& key) {
  std::shared_ptr<Conn>& conn = caller.conns[key];
  if (conn != nullptr && !conn->failed) return conn;
  conn = std::make_shared<Conn>();
  connections_.push_back(conn);
  conn->caller = &caller;
  conn->key = key;
  call::ClientSession::Options options{.actor_id = key.first, .epoch = key.second, .window = 16, .max_batch_calls = 5};
  options.caller.set_id(caller.id);
  if (caller.durable) options.caller.set_incarnation(caller.incarnation);
  options.caller.set_actor_id(caller.self.first);
  options.caller.set_epoch(caller.self.second);
  options.clock = [this] { return loop_.Now(); };
  conn->session = std::make_unique<call::ClientSession>(std::move(options));
  conn->broken_since = Now();
  Connect(conn);
  return conn;
}

void Calls::Send(Caller& caller, uint64_t id) {
  Request& request = requests_.at(id);
  ++request.attempts;
  const uint64_t number = attempts_.size() + 1;
  attempts_[number].request = id;
  attempts_[number].from = caller.self;
  const std::shared_ptr<Conn> conn = Connection(caller, request.at);
  const auto start = [this, &caller, conn, number, id, incarnation = caller.incarnation] {
    if (caller.incarnation != incarnation) return;
    const std::string payload = absl::StrCat(number);
    const call::CallSpec spec{.method = 0,
                              .payload = payload,
                              .deadline = absl::Milliseconds(Below(4) == 0 ? 20 + Below(200) : 500 + Below(8000)),
                              .key = requests_.at(id).key};
    const auto seq = conn->session->Start(spec, std::make_shared<Sink>(this, &caller, incarnation, number));
    if (!seq.ok()) return Ended(caller, number, seq.status(), "");
    if (Below(30) == 0) conn->session->Cancel(*seq);
    Tick(conn);
  };
  if (conn->open || conn->failed) {
    // Never from inside of what made it so.
    After(absl::ZeroDuration(), start);
  } else {
    conn->waiting.push_back(start);
  }
}

void Calls::Tick(const std::shared_ptr<Conn>& conn) {
  if (std::exchange(conn->ticks, true)) return;
  After(absl::Milliseconds(50), [this, conn] {
    conn->ticks = false;
    if (conn->failed) return;
    const absl::Status silent = conn->session->Tick();
    if (!silent.ok() && conn->wire != nullptr) Break(conn->wire);
    if (conn->session->in_flight() > 0) Tick(conn);
  });
}

void Calls::Ended(Caller& caller, uint64_t number, const absl::Status& status, const std::string& payload) {
  Attempt& attempt = attempts_.at(number);
  Request& request = requests_.at(attempt.request);
  if (std::exchange(attempt.ended, true)) return truth_.Broken(absl::StrCat("call ", number, " ended twice"));
  const auto told = [&](const char* what) {
    truth_.Broken(absl::StrCat("call ", number, " ran ", attempt.executions, " times and its caller was told ", what,
                               ": ", status.ToString()));
  };
  bool again = false;
  if (status.ok()) {
    if (attempt.executions != 1 || payload != absl::StrCat("done ", number)) told("OK");
  } else {
    switch (call::OutcomeOf(status)) {
      case v1::CALL_OUTCOME_NOT_STARTED:
        if (attempt.executions != 0) told("NOT_STARTED");
        attempt.must_not_run = true;
        again = !calm_ && request.attempts < kMaxAttempts;
        break;
      case v1::CALL_OUTCOME_FAILED:
        if (attempt.executions != 1) told("FAILED");
        break;
      case v1::CALL_OUTCOME_UNKNOWN:
        break;
      default:
        told("nothing of its outcome");
    }
  }
  // A key that is held for a call of an older incarnation is not this one's to send again.
  if (status.code() == absl::StatusCode::kAlreadyExists) again = false;
  if (again && !caller.known.empty() && Below(4) > 0) {
    request.at = caller.known[Below(caller.known.size())];
    After(absl::Milliseconds(Below(500)), [this, &caller, id = attempt.request, incarnation = caller.incarnation] {
      if (caller.incarnation == incarnation) Send(caller, id);
    });
    return;
  }
  request.over = true;
  caller.pending.erase(attempt.request);
}

// An actor's process has ended, in the middle of something: what it had just written goes on without it.
void Calls::Gone(Caller& caller) {
  for (const auto& [key, conn] : caller.conns) {
    if (!conn->open || conn->failed || calm_) continue;
    const uint64_t id = requests_.size() + 1, number = attempts_.size() + 1;
    requests_[id] = {.at = key, .attempts = 1, .over = true};
    attempts_[number] = {.request = id, .from = caller.self, .ended = true};
    const std::string payload = absl::StrCat(number);
    const call::CallSpec spec{.method = 0, .payload = payload, .deadline = absl::Minutes(1)};
    conn->session->Start(spec, std::make_shared<Sink>(this, &caller, caller.incarnation, number)).IgnoreError();
    if (conn->wire != nullptr && Below(3) == 0) conn->wire->up->Hold(absl::Milliseconds(Below(20000)));
    haunts_[caller.self.first].push_back(key);
  }
  Forget(caller);
  caller.pending.clear();
}

// Its process is gone: its sessions are forgotten at this end, and nobody is told any more.
void Calls::Forget(Caller& caller) {
  ++caller.incarnation;
  for (const auto& [key, conn] : std::exchange(caller.conns, {})) {
    conn->failed = true;
    if (conn->wire != nullptr) conn->wire->given_up = true;
    graveyard_of_conns_.push_back(conn);
  }
  for (auto& [number, attempt] : attempts_) {
    if (caller.pending.count(attempt.request) > 0) attempt.ended = true;
  }
}

// ---- The durable caller

// kill -9 and a start: what it had sent is on its way still.
void Calls::Restart(Caller& caller) {
  Forget(caller);
  const std::set<uint64_t> pending = caller.pending;
  After(Delay(), [this, &caller, pending, incarnation = caller.incarnation] {
    if (caller.incarnation != incarnation) return;
    for (const uint64_t id : pending) Query(caller, id);
  });
}

// Asks where it was sent what became of it; that seals the older incarnation there.
void Calls::Query(Caller& caller, uint64_t id) {
  Request& request = requests_.at(id);
  const uint64_t incarnation = caller.incarnation;
  const auto over = [this, &caller, id] {
    requests_.at(id).over = true;
    caller.pending.erase(id);
  };
  const auto found = servers_.find(request.at);
  if (found == servers_.end()) return over();  // UNKNOWN
  const std::shared_ptr<Server> server = found->second;
  const auto pipe = std::make_shared<Pipe>(loop_, random_, server->link, nullptr, false);
  pipe->Send([this, &caller, id, incarnation, server, over] {
    if (caller.incarnation != incarnation) return;
    if (!server->alive) return over();
    v1::QueryCallsRequest query;
    query.mutable_caller()->set_id(caller.id);
    query.mutable_caller()->set_incarnation(incarnation);
    query.add_keys(requests_.at(id).key);
    const v1::CallState state = server->table->Query(query).results(0).state();
    After(Delay(), [this, &caller, id, incarnation, state, over] {
      if (caller.incarnation != incarnation) return;
      Request& now = requests_.at(id);
      switch (state) {
        case v1::CALL_STATE_NEVER_SEEN:
          if (now.executions > 0) truth_.Broken(absl::StrCat("request ", id, " ran, and its actor has never seen it"));
          if (calm_ || now.attempts >= kMaxAttempts) return over();
          // It never will run there, so it may as well be done elsewhere.
          if (!caller.known.empty() && Below(2) == 0) now.at = caller.known[Below(caller.known.size())];
          return Send(caller, id);
        case v1::CALL_STATE_QUEUED:
        case v1::CALL_STATE_RUNNING:
          return After(absl::Milliseconds(200), [this, &caller, id, incarnation] {
            if (caller.incarnation == incarnation) Query(caller, id);
          });
        case v1::CALL_STATE_DONE:
          if (now.executions != 1) truth_.Broken(absl::StrCat("request ", id, " is DONE and ran not once"));
          return over();
        default:
          return over();
      }
    });
  });
}

void Calls::CheckRest(const std::map<std::string, uint64_t>& newest,
                      const std::set<std::pair<std::string, uint64_t>>& ready) {
  for (const auto& [key, server] : servers_) {
    const std::string own = key.first.substr(0, key.first.rfind('-'));
    if (ready.count(key) == 0) continue;
    for (const auto& [group, epoch] : newest) {
      const auto fence = server->fences.find(group);
      if (group == own || (fence != server->fences.end() && fence->second == epoch)) continue;
      truth_.Broken(
          absl::StrCat(key.first, " of epoch ", key.second, " was never told that ", group, " is in epoch ", epoch));
    }
  }
  for (const auto& caller : callers_) {
    for (const uint64_t id : caller->pending) truth_.Broken(absl::StrCat("request ", id, " never ended"));
  }
}

}  // namespace manta::sim
