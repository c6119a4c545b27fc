// What AgentCore needs from the world, so that it runs on real processes and a real network in `manta-node` and on
// fakes in the simulator. All of it belongs to the loop: the core calls the ports, and what they have to say comes back
// to the core's On... methods, always as a closure of its own, never from within a call.
//
// What a fake must do to be true:
//   A shim outlives its agent for ShimSpec::agent_grace and then ends its workers. It ends all its workers (SIGKILL;
//   their exits say `fenced`) when a lease that it was given runs out; one that was never given a lease has none. It
//   ends when its last worker has (one that holds a pool of pre-forked workers: a while later). Reports that it cannot
//   deliver because its agent is gone are in the snapshots that the next agent reads (Recover): `exited` among them.
//   A worker whose shim is killed dies with it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "manta/v1/node.pb.h"
#include "manta/v1/shim.pb.h"

namespace manta::node {

using ShimId = uint64_t;  // the port's; never 0, never used for another shim

struct ShimSpec {
  std::string name;            // "train-0.3": of its first actor; what its socket and title are called
  absl::Duration agent_grace;  // how long its workers live without an agent
};

struct RecoveredShim {
  ShimId id;
  v1::ShimReport snapshots;  // ActorReport.snapshot of each of its actors
};
struct Recovered {
  std::vector<RecoveredShim> shims;    // that live, and now have this agent
  std::vector<v1::ActorReport> exits;  // of shims that ended without an agent, and of an earlier one's actors: not
                                       // forgotten yet (HostPort::ForgetExit)
};

class ProcessPort {
 public:
  virtual ~ProcessPort() = default;
  // Never waits: orders may be sent to it at once. Where it cannot be started, OnShimGone says why.
  virtual ShimId StartShim(const ShimSpec& spec) = 0;
  // False where it is gone, does not read, or the order is too large for a packet (256 KiB).
  virtual bool Send(ShimId shim, const v1::ShimOrder& order) = 0;
  // SIGKILL: its workers die with it. OnShimGone comes when they have.
  virtual void KillShim(ShimId shim) = 0;
  // Finds the shims that an earlier agent of this node has left and takes them over; `done` once, within seconds.
  virtual void Recover(std::function<void(Recovered)> done) = 0;
};

class UplinkPort {
 public:
  virtual ~UplinkPort() = default;
  // A new attempt to reach the head, in place of an older one. What is sent from here on goes to it, in order. Ends in
  // AgentCore::OnUplinkDown, once; not for one that was replaced or closed.
  virtual void Open() = 0;
  virtual void Send(const v1::NodeEvent& event) = 0;  // dropped where nothing is open
  // What was sent is delivered where that is possible, then the stream ends.
  virtual void Close() = 0;
};

enum class UplinkLoss {
  kHeadGone,  // the head's machine says that nobody listens there, or the head has ended the stream in order: nobody
              // else can have been given what runs here
  kSilent,    // anything else: the network may be cut, with the head alive behind it
  kRejected,  // whoever listens there has answered that it does not want this node
};
// Whether what a stream ended with is an answer of the head's own, which no further attempt will change.
inline bool IsRejection(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
      return true;
    default:
      return false;
  }
}

// What else an agent does on its machine. The defaults are a machine that has nothing and refuses nothing.
class HostPort {
 public:
  virtual ~HostPort() = default;
  virtual bool PortIsFree(int /*port*/) { return true; }
  virtual void SaveWorkerToken(const std::string& /*token*/) {}
  // Exits that an agent must tell again after a restart.
  virtual void RememberExit(const v1::ActorReport& /*exit*/) {}
  virtual void ForgetExit(const v1::ActorRef& /*actor*/) {}
  // The last lines of a log, for what a killed shim could not tell.
  virtual std::vector<std::string> LastLines(const std::string& /*log_path*/) { return {}; }
  virtual void ReadLog(const v1::ReadLog& request, const std::string& /*log_path*/,
                       std::function<void(const v1::LogChunk&)> chunk) {
    v1::LogChunk end;
    end.set_id(request.id());
    end.set_end(true);
    chunk(end);
  }
  // The stacks of a worker: those that it writes into its log from now on, and what the machine shows of it (stacks.h).
  // May take seconds.
  virtual void DumpStacks(int64_t /*pid*/, const std::string& /*log_path*/, std::function<void(std::string)> done) {
    done("");
  }
};

}  // namespace manta::node
