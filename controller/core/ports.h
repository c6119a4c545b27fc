// What the head's logic reaches the world through: agents, the journal, the jobs' code. Real ones speak gRPC and SQLite
// and run coroutines; tests and the simulator have fakes.
//
// Everything here is called on the head's loop and must not block; callbacks come on that loop, and never from inside
// the call that registers them unless a function says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "manta/v1/node.pb.h"

namespace manta::controller::core {

// How a request is answered: once, on the loop, after everything that the answer follows from is durable.
template <typename T>
using Answer = absl::AnyInvocable<void(absl::StatusOr<T>)>;

// The stream to one agent. Commands arrive in order, or the stream ends (Core::NodeDisconnected).
class AgentPort {
 public:
  virtual ~AgentPort() = default;
  virtual void Send(const v1::NodeCommand& command) = 0;
  // Ends the stream. NodeDisconnected may follow, or not; the core expects nothing more of it.
  virtual void Close(const absl::Status& status) = 0;
};

// A table of rows, one value a (kind, key), that is kept over a restart of the head. Put and Erase number the changes
// 1, 2, 3 ...; changes become durable in that order, several at a time; of two changes of one row between two commits
// the last alone need be written.
class Journal {
 public:
  enum class Kind : uint8_t {  // the numbers are in files: they never change
    kIncarnation = 1,          // the adapter's own
    kJob = 2,                  // job -> v1::JobRow
    kGroup = 3,                // "JOB/ROLE" -> v1::GroupRow
    kPlacement = 4,            // id in decimal -> v1::PlacementRow
    kNodePolicy = 5,           // node -> v1::NodePolicyRow
    kCall = 6,                 // of the durable caller (controller/calls)
  };
  virtual ~Journal() = default;
  virtual void Put(Kind kind, std::string key, std::string value) = 0;
  virtual void Erase(Kind kind, std::string key) = 0;
  // The number of the last change so far; 0 before the first.
  virtual uint64_t last_sequence() const = 0;
  // Every change up to it is on disk. Moves on the loop only, before the closures that wait for it run.
  virtual uint64_t durable_sequence() const = 0;
  // Runs `then` on the loop, from the loop, once `sequence` is durable; in the order of the sequences, and of the calls
  // among equal ones. While the disk is full it waits.
  virtual void WhenDurable(uint64_t sequence, absl::AnyInvocable<void()> then) = 0;
  // OK, or why nothing becomes durable now (RESOURCE_EXHAUSTED "journal PATH: no space left on the device"): requests
  // that would change something are refused with it.
  virtual absl::Status health() const = 0;
};

// What a journal holds when a head starts.
struct JournalEntry {
  Journal::Kind kind;
  std::string key;
  std::string value;
};

// The code of jobs: coroutines of the head.
struct JobStart {
  std::string job;
  std::string name;
  std::string config_yaml;
  std::string run_dir;
  std::string working_dir;
  int priority = 0;
  bool resumed = false;  // it ran before this head did: its groups may still be there
};
class JobPort {
 public:
  virtual ~JobPort() = default;
  // Begins the job's code; Core::JobEnded follows, never from inside this call.
  virtual void Run(const JobStart& start) = 0;
  // Asks it to end soon; JobEnded follows.
  virtual void Stop(const std::string& job, const absl::Status& reason) = 0;
};

}  // namespace manta::controller::core
