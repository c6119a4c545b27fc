#include "tests/sim/call_network.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace manta::sim {
namespace {

constexpr absl::Duration kReconnectFor = absl::Seconds(10);

}  // namespace

absl::Duration Calls::Delay() {
  return absl::Microseconds(100 + Below(3000));
}

// ---- Processes

void Calls::Started(const Process& process) {
  auto server = std::make_shared<Server>();
  server->key = {process.actor_id, process.epoch};
  server->node = process.node;
  server->link = options_.link_of(process.node);
  server->lane = server->lanes.Add("work", {.concurrency = 1, .capacity = 6});
  call::CallTable::Options table{.actor_id = process.actor_id, .epoch = process.epoch, .window = 16};
  table.kept_bytes = 4096;
  table.fencing = options_.fencing;
  table.sealing = options_.sealing;
  table.first_session = (next_session_ += 1000);
  table.clock = [this] { return loop_.Now(); };
  v1::MethodInfo method;
  method.set_name("work");
  table.methods.push_back(method);
  server->table = std::make_unique<call::CallTable>(std::move(table));
  servers_[server->key] = server;
  BeginActor(*server);
}

// Callers lie under their group's name and rank in no table: an actor's is its process's.
void Calls::BeginActor(const Server& server) {
  const std::string& id = server.key.first;
  if (!id.ends_with("-0")) return;  // a group's first rank, in each of its epochs
  auto caller = std::make_unique<Caller>();
  caller->id = absl::StrCat("process ", callers_.size());
  caller->self = server.key;
  caller->link = server.link;
  callers_.push_back(std::move(caller));
  if (begun_) Act(*callers_.back());
}

void Calls::Fenced(const std::string& actor_id, uint64_t epoch, const v1::Fence& fence) {
  const auto found = servers_.find({actor_id, epoch});
  if (found == servers_.end()) return;
  uint64_t& known = found->second->fences[fence.group()];
  known = std::max(known, fence.min_epoch());
  found->second->table->RaiseFence(fence.group(), fence.min_epoch());
}

void Calls::Ended(const std::string& actor_id, uint64_t epoch) {
  const auto found = servers_.find({actor_id, epoch});
  if (found == servers_.end()) return;
  const std::shared_ptr<Server> server = found->second;
  servers_.erase(found);
  server->alive = false;
  graveyard_.push_back(server);
  for (const auto& caller : callers_) {
    if (caller->self == server->key) Gone(*caller);
  }
  for (const auto& weak : server->wires) {
    const auto wire = weak.lock();
    if (wire != nullptr && !wire->given_up) wire->down->Send([this, wire] { Break(wire); });  // its host resets it
  }
}

void Calls::RunServer(const std::shared_ptr<Server>& server) {
  if (!server->alive || server->runs) return;
  while (server->lanes.ClaimAny(0) == server->lane) {
    call::CallRef ref;
    if (!server->lanes.Next(server->lane, &ref)) continue;
    if (!ref.session->StartRunning(ref.call)) {
      server->lanes.GiveBack(server->lane);
      continue;
    }
    server->runs = true;
    const call::CallContext* context = call::ServerSession::context(ref.call);
    const std::string payload(context->payload());
    Execute(server, payload, ref.session->id(), context->call().seq());
    const absl::Duration takes = absl::Milliseconds(Below(50) == 0 ? Below(3000) : 1 + Below(30));
    After(takes, [this, server, ref, payload] {
      if (!server->alive) return;
      server->runs = false;
      std::string reply = absl::StrCat("done ", payload);
      const absl::Status status = Below(12) == 0 ? absl::OutOfRangeError("the handler's own") : absl::OkStatus();
      if (ref.session->Finish(ref.call, status, &reply)) ref.session->Flush();
      server->lanes.GiveBack(server->lane);
      RunServer(server);
    });
    return;
  }
}

void Calls::Execute(const std::shared_ptr<Server>& server, const std::string& payload, uint64_t session, uint64_t seq) {
  ++executed_;
  const uint64_t id = std::strtoull(payload.c_str(), nullptr, 10);
  Attempt& attempt = attempts_.at(id);
  Request& request = requests_.at(attempt.request);
  const std::string where = absl::StrCat(server->key.first, " of epoch ", server->key.second);
  if (++attempt.executions > 1) truth_.Broken(absl::StrCat("call ", id, " is executed twice, at ", where));
  if (++request.executions > 1) {
    truth_.Broken(absl::StrCat("request ", attempt.request, " is executed again by call ", id, ", at ", where));
  }
  if (attempt.must_not_run) truth_.Broken(absl::StrCat("call ", id, " runs at ", where, " after it was NOT_STARTED"));
  uint64_t& last = server->last_seq[session];
  if (seq <= last) truth_.Broken(absl::StrCat("call ", id, " of session ", session, " runs out of order"));
  last = seq;
  if (attempt.from.first.empty()) return;
  const auto& [actor, epoch] = attempt.from;
  uint64_t& newest = server->last_epoch[actor];
  if (epoch < newest) {
    truth_.Broken(absl::StrCat("call ", id, " of ", actor, " in epoch ", epoch, " runs at ", where,
                               ", where one of its epoch ", newest, " has run"));
  }
  newest = std::max(newest, epoch);
  const auto fence = server->fences.find(actor.substr(0, actor.rfind('-')));
  if (fence != server->fences.end() && epoch < fence->second) {
    truth_.Broken(absl::StrCat("call ", id, " of ", actor, " in epoch ", epoch, " runs at ", where,
                               ", which knows that its group is in ", fence->second));
  }
}

// ---- Links

void Calls::Connect(const std::shared_ptr<Conn>& conn) {
  if (conn->failed || conn->wire != nullptr) return;
  const auto server = servers_.find(conn->key);
  const std::shared_ptr<Link> link = server == servers_.end() ? nullptr : server->second->link;
  const Link* const from = conn->caller->link.get();
  if (link != nullptr && (link->cut || (from != nullptr && from->cut))) {
    if (Now() - conn->broken_since > kReconnectFor) {
      return FailConn(*conn, absl::UnavailableError("it was not reached for 10 s"));
    }
    return After(absl::Seconds(1), [this, conn] { Connect(conn); });
  }
  if (server == servers_.end()) return FailConn(*conn, absl::UnavailableError("its port is closed"));
  auto wire = std::make_shared<Wire>();
  wire->conn = conn;
  wire->server = server->second;
  wire->up = std::make_shared<Pipe>(loop_, random_, link, conn->caller->link, false);
  wire->down = std::make_shared<Pipe>(loop_, random_, link, conn->caller->link, false);
  server->second->wires.push_back(wire);
  conn->wire = wire;
  wire->up->Send([this, conn, wire, open = conn->session->OpenBatch()] { OpenAtServer(conn, wire, open); });
}

void Calls::OpenAtServer(const std::shared_ptr<Conn>& conn, const std::shared_ptr<Wire>& wire,
                         const v1::CallBatch& open) {
  if (!wire->server->alive) return;  // a break is on its way
  v1::SessionOpened opened;
  const auto result = wire->server->table->Open(open.open(), std::make_shared<ServerEnd>(this, wire), &opened);
  if (!result.ok()) {
    wire->down->Send([this, conn, wire, status = result.status()] {
      if (!std::exchange(wire->given_up, true)) FailConn(*conn, status);
    });
    return;
  }
  wire->session = result->session;
  wire->server_link = result->link;
  wire->down->Send([this, conn, wire, opened] {
    if (wire->given_up || conn->failed) return;  // the server has a link that the caller never had
    // From here on batches may be repeated and change places.
    const std::shared_ptr<Link> link = wire->server->link;
    wire->up = std::make_shared<Pipe>(loop_, random_, link, conn->caller->link, options_.wild);
    wire->down = std::make_shared<Pipe>(loop_, random_, link, conn->caller->link, options_.wild);
    conn->open = true;
    conn->broken_since = absl::InfiniteFuture();
    wire->client_link = conn->session->Attach(std::make_shared<ClientEnd>(this, wire), opened);
    for (auto& waiting : std::exchange(conn->waiting, {})) waiting();
  });
  After(absl::ZeroDuration(), [wire] { wire->session->OnWriteDone(wire->server_link); });
}

void Calls::ClientEnd::Write(const v1::CallBatch& batch) {
  wire_->up->Send([calls = calls_, wire = wire_, batch] { calls->Deliver(wire, batch); });
  calls_->After(absl::ZeroDuration(), [wire = wire_] {
    if (const auto conn = wire->conn.lock()) conn->session->OnWriteDone(wire->client_link);
  });
}

void Calls::Deliver(const std::shared_ptr<Wire>& wire, v1::CallBatch batch) {
  const std::shared_ptr<Server> server = wire->server;
  if (!server->alive) return;
  std::vector<call::CallRef> admitted;
  wire->session->OnBatch(wire->server_link, batch, &admitted);
  for (call::CallRef& ref : admitted) {
    const absl::Status fits = server->lanes.Admit(server->lane, ref);
    if (!fits.ok() && ref.session->Finish(ref.call, fits, nullptr)) ref.session->Flush();
  }
  RunServer(server);
}

void Calls::ServerEnd::Write(const v1::ReplyBatch& batch) {
  const std::shared_ptr<Wire> wire = wire_.lock();
  if (wire == nullptr) return;  // the caller has given it up, and nothing is on its way any more
  wire->down->Send([wire, batch = v1::ReplyBatch(batch)]() mutable {
    const auto conn = wire->conn.lock();
    if (conn == nullptr || wire->client_link == 0) return;
    conn->session->OnReplies(wire->client_link, batch);
  });
  calls_->After(absl::ZeroDuration(), [wire] {
    if (wire->server->alive) wire->session->OnWriteDone(wire->server_link);
  });
}

void Calls::ServerEnd::Close(const absl::Status&) {
  const std::shared_ptr<Wire> wire = wire_.lock();
  if (wire != nullptr) wire->down->Send([calls = calls_, wire] { calls->Break(wire); });
}

// The caller's end is over. The server may hear of it at once, later, or only by the next Open.
void Calls::Break(std::shared_ptr<Wire> wire) {
  if (std::exchange(wire->given_up, true)) return;
  const auto conn = wire->conn.lock();
  if (wire->session != nullptr && Below(3) > 0) {
    After(absl::Milliseconds(Below(2) == 0 ? 1 : Below(8000)), [wire] {
      if (wire->server->alive) wire->session->OnBroken(wire->server_link);
    });
  }
  if (conn == nullptr || conn->wire != wire) return;
  conn->wire = nullptr;
  if (wire->client_link != 0) conn->session->OnBroken(wire->client_link);
  if (conn->broken_since == absl::InfiniteFuture()) conn->broken_since = Now();
  if (!conn->failed) After(Delay(), [this, conn] { Connect(conn); });
}

void Calls::FailConn(Conn& conn, const absl::Status& why) {
  if (std::exchange(conn.failed, true)) return;
  conn.session->Fail(why);
  for (auto& waiting : std::exchange(conn.waiting, {})) waiting();
}

}  // namespace manta::sim
