// CallClient: a caller's connections to actors. A Peer is the connection to one of them: a session
// (core/client_session.h) over a stream that is made again when it breaks. A process needs one client; all are
// thread-safe.
//
//   auto client = CallClient::Create({.token = token}).value();
//   std::shared_ptr<Peer> peer = client->Connect("127.0.0.1:4242", "counter-0", /*epoch=*/1).value();
//   absl::StatusOr<std::string> reply = peer->CallBlocking("add", bytes, {.deadline = absl::Seconds(1)});
//
// A stream that breaks while its actor lives costs its callers nothing but time. An actor whose process is gone is
// known by the refused connection: its calls end at once. One that cannot be reached is tried again for
// `reconnect_for`, unless somebody who knows better calls Peer::Fail before. A peer that has failed stays so; Connect
// makes another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/call/core/client_session.h"

namespace grpc {
class CompletionQueue;
}

namespace manta::call {

struct CallOptions {
  absl::Duration deadline;    // from now; finite and positive
  std::string_view key = {};  // see core/call_table.h
};

class Peer {
 public:
  virtual ~Peer() = default;
  // Calls `then` once the session is open (at once where it is), or with its failure, or after `timeout`; on a thread
  // that polls, or on this one.
  virtual void WhenOpen(absl::Duration timeout, absl::AnyInvocable<void(const absl::Status&)> then) = 0;
  // The same, blocking.
  [[nodiscard]] virtual absl::Status WaitOpen(absl::Duration timeout) = 0;
  // `done` is called once, on a thread that polls: it must not block. With an error at once (NOT_STARTED) it is not.
  // The session must be open; the method's number is session().FindMethod's.
  [[nodiscard]] virtual absl::StatusOr<uint64_t> Start(const CallSpec& spec, std::shared_ptr<CallSink> sink) = 0;
  // Opens the session where it is not, sends the call and waits. A large payload is copied once where the actor shares
  // this host's memory, else sent out of the caller's memory in chunks. Not from a poller's thread.
  [[nodiscard]] virtual absl::StatusOr<std::string> CallBlocking(std::string_view method, std::string_view payload,
                                                                 const CallOptions& options) = 0;
  virtual bool open() const = 0;  // was opened, and has not failed
  virtual ClientSession& session() = 0;
  // The actor is known to be gone: ends every call.
  virtual void Fail(const absl::Status& why) = 0;
};

class CallClient {
 public:
  struct Options {
    std::string token;
    v1::CallerId caller;     // without an id: a random one
    uint32_t window = 4096;  // calls to one actor without a reply; a power of two
    absl::Duration reconnect_for = absl::Seconds(10);
    bool shared_memory = true;  // for arguments of a MiB and more, where the actor is on this host; else in chunks
  };
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<CallClient>> Create(Options options);
  ~CallClient();  // says goodbye to the actors; calls under way end as CANCELLED

  // FAILED_PRECONDITION for an address beyond loopback. The same peer for the same arguments, until it has failed. The
  // connection is made meanwhile: WaitOpen.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<Peer>> Connect(const std::string& address, const std::string& actor_id,
                                                              uint64_t epoch);
  // That actor's process of that epoch is known to be gone: what its peers have under way ends with `why`.
  void FailActor(const std::string& actor_id, uint64_t epoch, const absl::Status& why);
  // For streams of other services beside the calls, and alarms: their tags are Tag's (tag.h), run by whichever thread
  // polls. What was begun on it must be cancelled before this is destroyed.
  grpc::CompletionQueue* queue();
  // Polls until `notify`, which is handed to `start`, is called.
  void RunUntil(const std::function<void(std::function<void()> notify)>& start);

  class Impl;

 private:
  explicit CallClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace manta::call
