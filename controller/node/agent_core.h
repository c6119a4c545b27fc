// AgentCore: what a node agent is, without system calls and without gRPC: it keeps the node's membership and lease,
// starts and stops actors by their shims, tells the head how they fare, and takes over what an earlier agent has left.
//
// Identity is (actor id, epoch) everywhere. A StartActor that is repeated is answered with what became of the first;
// one of an older epoch than the newest seen is refused; one of a newer epoch ends what still runs of the older ones
// first. An exit is told until the head says that it is durable (ReportsAck), over reconnects and restarts of the agent
// too.
//
// Lease: BeatAck extends it to `lease_ms` after the beat was SENT. Every 500 ms the shims get what is left of it; an
// agent that is stopped, or cut off, thereby loses its workers in time (their shims end them). Where the head's machine
// says that the head is gone, nobody can have given the actors' places away: the agent then extends the lease itself
// for `controller_grace`. Where that is 0, all actors are ended when it is gone.
//
// Belongs to its loop, as do the ports; all must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "controller/node/ports.h"
#include "manta/v1/node.pb.h"

namespace manta::node {

struct AgentOptions {
  v1::NodeHello hello;                              // all but `running`
  absl::Duration join_timeout = absl::Seconds(30);  // for the first welcome
  int port_min = 20000, port_max = 29999;           // that actors may lease
  std::string token_file;                           // what MANTA_TOKEN_FILE says to workers
  std::string controller_address;                   // MANTA_CONTROLLER
};

class AgentCore {
 public:
  // `on_done` is called once, when the agent is to end and no actor is left; OK where it was told to.
  AgentCore(EventLoop& loop, ProcessPort& processes, UplinkPort& uplink, HostPort& host, AgentOptions options,
            std::function<void(const absl::Status&)> on_done);
  ~AgentCore();
  AgentCore(const AgentCore&) = delete;
  AgentCore& operator=(const AgentCore&) = delete;

  // Takes over what runs, then joins.
  void Start();
  // Ends all actors, each with `grace` between SIGTERM and SIGKILL, then the agent.
  void Shutdown(absl::Duration grace, absl::Status why = absl::OkStatus());

  // ---- What the ports say
  void OnCommand(const v1::NodeCommand& command);  // of the attempt that was opened last
  void OnUplinkDown(UplinkLoss loss, const absl::Status& status);
  void OnShim(ShimId shim, const v1::ShimReport& report);
  // Its workers are gone too. `why`: "was killed by signal 9 (Killed)", or why it was not started.
  void OnShimGone(ShimId shim, const std::string& why);

  // ---- For tests and status
  size_t num_actors() const;  // that run or are being started
  bool joined() const;
  absl::Time lease_until() const;  // InfinitePast where there is none

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace manta::node
