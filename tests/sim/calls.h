// Calls between simulated processes: the call plane's real sessions and tables (common/call/core) over a network that
// delays, holds, repeats and reorders batches and breaks links. Every process that runs serves calls; callers know
// actors by what the head has told them, which may be long out of date.
//
// What is watched: no call is executed twice, however often its caller, told that it had not started, sent it again;
// what callers are told is true (NOT_STARTED: it never runs; an answer: it ran once); calls of one session run in
// order; and every call ends. One caller is durable: it is killed, comes back with a higher incarnation, asks what
// became of its calls by their keys, and sends again what was never seen, there or elsewhere.
//
// Some processes call others themselves, and with the last that they do. What such a one has sent outlives it in the
// network; it must not run where its actor has called in a newer epoch, nor where the head's word has come that its
// group is in one (fences), and that word must have come to everybody in the end.
//
// One loop, no threads. Its random numbers are its own, so that a seed's other events are the same with and without.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/event_loop.h"
#include "common/base/random.h"
#include "common/call/core/client_session.h"
#include "manta/v1/cluster.pb.h"
#include "tests/sim/fake_network.h"
#include "tests/sim/truth.h"

namespace manta::sim {

class Calls {
 public:
  struct Options {
    uint64_t seed = 1;
    bool fencing = true, sealing = true;
    bool wild = false;  // batches are repeated and change places even within a link
    std::function<std::shared_ptr<Link>(const std::string& node)> link_of;
    std::function<bool(v1::ListReply*)> ask_head;  // false: it is away
  };
  Calls(EventLoop& loop, Truth& truth, Options options);
  ~Calls();

  void Started(const Process& process);
  void Ended(const std::string& actor_id, uint64_t epoch);
  void Fenced(const std::string& actor_id, uint64_t epoch, const v1::Fence& fence);
  void Begin();  // callers call from here on
  void Calm();   // no more calls; nothing breaks by itself
  // A minute later: every call has ended, and whoever is ready knows of those groups' newest epochs.
  void CheckRest(const std::map<std::string, uint64_t>& newest,
                 const std::set<std::pair<std::string, uint64_t>>& ready);
  uint64_t executed() const { return executed_; }

 private:
  using Key = std::pair<std::string, uint64_t>;  // actor, epoch
  struct Server;
  struct Wire;
  struct Conn;
  struct Caller;
  struct Attempt {
    uint64_t request = 0;
    Key from;  // of a caller that is an actor
    int executions = 0;
    bool ended = false, must_not_run = false;
  };
  struct Request {
    Key at;  // where its last attempt went
    int executions = 0, attempts = 0;
    bool over = false;
    std::string key;  // of a durable caller's
  };
  class Sink;
  class ClientEnd;
  class ServerEnd;

  // ---- Callers (calls.cc)
  void Act(Caller& caller);
  void NewRequest(Caller& caller);
  void Send(Caller& caller, uint64_t request);
  void Ended(Caller& caller, uint64_t attempt, const absl::Status& status, const std::string& payload);
  void Restart(Caller& caller);
  void Gone(Caller& caller);
  void Forget(Caller& caller);
  void Query(Caller& caller, uint64_t request);
  void Tick(const std::shared_ptr<Conn>& conn);
  std::shared_ptr<Conn> Connection(Caller& caller, const Key& key);

  // ---- The network (call_network.cc)
  void Connect(const std::shared_ptr<Conn>& conn);
  void OpenAtServer(const std::shared_ptr<Conn>& conn, const std::shared_ptr<Wire>& wire, const v1::CallBatch& open);
  void Break(std::shared_ptr<Wire> wire);
  void FailConn(Conn& conn, const absl::Status& why);
  void Deliver(const std::shared_ptr<Wire>& wire, v1::CallBatch batch);
  void BeginActor(const Server& server);
  void RunServer(const std::shared_ptr<Server>& server);
  void Execute(const std::shared_ptr<Server>& server, const std::string& payload, uint64_t session, uint64_t seq);

  uint64_t Below(uint64_t n) { return random_.NextBelow(n); }
  absl::Duration Delay();
  absl::Time Now() { return loop_.Now(); }
  template <typename What>
  void After(absl::Duration delay, What what) {
    loop_.RunAfter(delay, [alive = alive_, what = std::move(what)]() mutable {
      if (*alive) what();
    });
  }

  EventLoop& loop_;
  Truth& truth_;
  const Options options_;
  RandomStream random_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool begun_ = false, calm_ = false;
  uint64_t executed_ = 0, next_session_ = 1;
  std::map<Key, std::shared_ptr<Server>> servers_;  // that run
  std::vector<std::shared_ptr<Server>> graveyard_;  // sessions refer to their tables
  std::vector<std::weak_ptr<Conn>> connections_;    // all that were made
  std::vector<std::shared_ptr<Conn>> graveyard_of_conns_;
  std::vector<std::unique_ptr<Caller>> callers_;
  std::map<std::string, std::vector<Key>> haunts_;  // of calling actors that have ended: whom they called
  std::map<uint64_t, Attempt> attempts_;
  std::map<uint64_t, Request> requests_;
};

}  // namespace manta::sim
