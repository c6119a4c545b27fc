// DurableCaller: a head's own calls to actors, none of which is lost or made twice when the head is killed.
//
//   absl::StatusOr<std::string> reply = co_await calls->Call(job, actor, "add", bytes, "order-17", absl::Minutes(1));
//   ... what came of it is written down ...
//   calls->Forget(job, "order-17");
//
// A call is in the journal, durably, before it is sent, and the actor keeps its result under its key. A later head, for
// which this is a new incarnation of the same caller, asks the actor for what the journal names (Resolve): that seals the
// older incarnation, so that nothing of it can start any more. What has run answers with its result, what runs is waited
// for, what never began is NOT_STARTED and may be called again under the same key, and where the actor is gone the effect is
// UNKNOWN. What each call came to is told again until it is forgotten.
//
// A call that is forgotten leaves a mark in the journal until the actor has dropped its result, so that none is left with the
// actor for good. Journal writes are grouped, so that many calls at once cost each a few milliseconds and no more. Belongs to the head's
// loop. Keys are a job's own; one that is not forgotten is refused to another call.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "controller/core/ports.h"
#include "manta/v1/call.grpc.pb.h"
#include "manta/v1/journal.pb.h"

namespace manta::actor {
class Client;
}

namespace manta::controller {

struct CallTarget {
  std::string actor_id;
  uint64_t epoch = 0;
  std::string address;
};

class DurableCaller {
 public:
  struct Options {
    std::string id;            // of the caller in all of its incarnations: 16 bytes
    uint64_t incarnation = 0;  // the head's
    std::string token;
    std::function<std::shared_ptr<grpc::Channel>(const std::string& address)> connect;
    absl::Duration patience = absl::Seconds(10);  // with an actor that does not say what became of a call
  };
  // `rows`: what the journal holds; those of other kinds are left alone.
  DurableCaller(EventLoop& loop, core::Journal& journal, Options options, const std::vector<core::JournalEntry>& rows);
  ~DurableCaller();
  DurableCaller(const DurableCaller&) = delete;
  DurableCaller& operator=(const DurableCaller&) = delete;

  // Errors carry the outcome (ErrorInfo): NOT_STARTED, FAILED (the actor's own) or UNKNOWN.
  Task<absl::StatusOr<std::string>> Call(std::string job, CallTarget actor, std::string method, std::string argument,
                                         std::string key, absl::Duration deadline);
  struct Resolved {
    std::string key;
    std::string method;
    std::string actor_id;
    absl::StatusOr<std::string> reply;
  };
  // What became of the calls of this job that heads before this one have made and nobody has forgotten, in their keys'
  // order.
  Task<std::vector<Resolved>> Resolve(std::string job);
  // The caller has taken note of what the call came to.
  void Forget(const std::string& job, const std::string& key);

 private:
  struct Row {
    v1::CallRow call;
    bool left_over = false;  // by an earlier head, and not resolved yet
    bool kept = true;        // the actor may have a result
  };
  v1::CallerId Caller() const;
  absl::StatusOr<actor::Client*> Client();
  Task<absl::StatusOr<std::string>> AskWhatBecame(std::string name, v1::CallRow row);
  Task<bool> Durable();
  void Note(const std::string& name, const absl::Status& outcome);
  void Release(const std::string& address, std::string name);
  void FlushReleases();
  void Released(const std::string& address, const std::vector<std::string>& names, const absl::Status& status);
  std::unique_ptr<v1::CallService::Stub>& StubOf(const std::string& address);

  EventLoop& loop_;
  core::Journal& journal_;
  const Options options_;
  std::unique_ptr<actor::Client> client_;
  std::map<std::string, Row> rows_;  // by "JOB/KEY"
  std::map<std::string, std::unique_ptr<v1::CallService::Stub>> stubs_;
  std::map<std::string, std::vector<std::string>> releases_;  // by address: calls whose results the actor may drop
  std::map<std::string, int> releasing_;                      // each of them, and how often the actor was asked
  EventLoop::TimerId release_timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::controller
