// CallTable: an actor's sessions, what it will not take any more, and the results kept under keys.
//
// Open is the door of a session: it names the actor and its epoch, is refused to callers of an older epoch or
// incarnation than is known, and takes a session up again by its number. What is known comes from the head (fencing:
// the least epoch of a group), and from the callers (sealing: who comes in a new incarnation, or as an actor in a new
// epoch, says that there are none before it, and what they had sent starts no more). Sessions without a link live
// `session_ttl`; then their calls are cancelled and their number is remembered no more, so that taking it up is
// refused.
//
// A call with a key leaves its result here under (caller, key) until the caller releases it: QueryCalls tells a caller
// that was restarted what became of its calls, after sealing its older incarnations. A key that is there is never run
// again; a full table refuses new keys rather than forgetting old ones.
//
// Thread-safe. Lock order: a session's mutex before the table's.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/call/core/server_session.h"

namespace manta::call {

class CallTable {
 public:
  struct Options {
    std::string actor_id;
    uint64_t epoch = 0;
    std::string host_id;
    std::vector<v1::MethodInfo> methods;
    uint32_t window = 4096;  // a session's calls without an acknowledged reply; a power of two
    size_t max_sessions = 4096;
    size_t kept_bytes = size_t{64} << 20;
    absl::Duration session_ttl = absl::Minutes(2);
    size_t max_keys = 4096;
    size_t max_key_bytes = size_t{64} << 20;
    bool fencing = true, sealing = true;  // off only in a deliberately broken build's test
    uint64_t first_session = 0;           // 0: random, so that another process's numbers mean nothing here
    Clock clock = SteadyNow;
  };
  explicit CallTable(Options options);
  ~CallTable();

  struct Opened {
    std::shared_ptr<ServerSession> session;
    uint64_t link = 0;
  };
  // Everything that is refused says NOT_STARTED.
  absl::StatusOr<Opened> Open(const v1::SessionOpen& open, std::shared_ptr<ReplyBatchSink> link,
                              v1::SessionOpened* opened);
  // Its caller said goodbye.
  void Close(const std::shared_ptr<ServerSession>& session);
  // The same, on that link: nothing where the session has a newer one.
  void Forget(const std::shared_ptr<ServerSession>& session, uint64_t link);
  // Ends every session.
  void CloseAll(const absl::Status& why);

  // No new sessions and no new calls; what was admitted runs.
  void Drain(const std::string& why);
  // Callers of that group in an older epoch are cut off and refused.
  void RaiseFence(const std::string& group, uint64_t min_epoch);
  v1::QueryCallsReply Query(const v1::QueryCallsRequest& request);
  // Ends sessions whose time is over; once a second.
  void Tick();

  struct Counts {
    uint64_t sessions = 0, admitted = 0, refused = 0, finished = 0, cancelled = 0, kept_bytes = 0, keys = 0;
  };
  Counts counts() const;
  const Options& options() const { return options_; }

 private:
  friend class ServerSession;
  struct Keyed {
    v1::CallState state = v1::CALL_STATE_QUEUED;
    v1::Reply reply;
  };
  using Key = std::pair<std::string, std::string>;
  using Sessions = std::vector<std::shared_ptr<ServerSession>>;
  absl::Status CheckCaller(const v1::CallerId& caller);
  // Takes out the sessions of those that this caller follows; for CutOlder, without the lock.
  Sessions SealOlder(const v1::CallerId& caller);
  static void CutOlder(const Sessions& older);
  // For sessions, with their mutex held:
  absl::Status BeginKey(const v1::CallerId& caller, const std::string& key);
  void KeyRuns(const v1::CallerId& caller, const std::string& key);
  void KeyEnds(const v1::CallerId& caller, const std::string& key, const v1::Reply& reply, bool ran);

  const Options options_;
  mutable std::mutex mu_;
  uint64_t next_session_;
  std::map<uint64_t, std::shared_ptr<ServerSession>> sessions_;
  absl::flat_hash_map<std::string, uint64_t> fences_;        // group -> least epoch
  absl::flat_hash_map<std::string, uint64_t> incarnations_;  // durable callers' newest
  absl::flat_hash_map<std::string, uint64_t> epochs_;        // calling actors' newest
  std::map<Key, Keyed> keyed_;
  size_t keyed_bytes_ = 0;
  absl::Status draining_;
  std::atomic<bool> is_draining_{false};
  std::atomic<size_t> kept_bytes_{0};
  std::atomic<uint64_t> admitted_{0}, refused_{0}, finished_{0}, cancelled_{0};
};

}  // namespace manta::call
