// ServerSession: an actor's half of a session with one caller: which of its calls were seen, which wait or run, and the
// replies that the caller has not acknowledged. CallTable makes sessions and takes them up again.
//
// At most once: OnBatch admits a call only if its number is greater than all that were seen before, so that no
// duplicate, however it came, reaches a handler. Replies are kept until acknowledged and sent again on the next link;
// the process keeps at most CallTable's `kept_bytes` of them, and says of one that did not fit that it ran.
//
// Thread-safe: one mutex, never held while a link, a handler or a callback is called. In steady state a call allocates
// nothing. Handlers' threads hold the session through CallRef.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/call/core/call_context.h"
#include "common/call/core/ring.h"
#include "common/call/core/transport.h"
#include "manta/v1/call.pb.h"

namespace manta::call {

class CallTable;
class ServerSession;
struct ServerCall;

// A call that was admitted: its number will not be admitted again.
struct CallRef {
  std::shared_ptr<ServerSession> session;
  ServerCall* call = nullptr;
};

class ServerSession : public std::enable_shared_from_this<ServerSession> {
 public:
  ServerSession(CallTable* table, uint64_t id, v1::CallerId caller);
  ~ServerSession();

  // ---- Links
  // Takes `link`; what came on an older one and is not admitted yet is dropped. Fills `never_seen` out of
  // `open.pending`. `opened` is the link's first batch, written by the caller; OnWriteDone then says that it is out.
  uint64_t Attach(std::shared_ptr<ReplyBatchSink> link, const v1::SessionOpen& open, v1::SessionOpened* opened);
  // Appends the calls that are to run, in order; their fields are moved out of the batch. Refusals are answered.
  void OnBatch(uint64_t link, v1::CallBatch& batch, std::vector<CallRef>* admitted);
  void OnWriteDone(uint64_t link);
  void OnBroken(uint64_t link);

  // ---- A call's life: Begin in OnBatch, then these two, or Finish alone
  // Its turn has come: whether it may run. If not it is answered (cancelled, too late, its caller was cut off).
  bool StartRunning(ServerCall* call);
  // The only way a call ends. The payload is moved out. True where replies wait that nobody has been told of: whoever
  // is told calls Flush, soon.
  bool Finish(ServerCall* call, const absl::Status& status, std::string* payload);
  void Flush();

  static CallContext* context(ServerCall* call);

  // ---- For the table
  uint64_t id() const { return id_; }
  const v1::CallerId& caller() const { return caller_; }
  // Nothing of it starts any more; what runs is cancelled where `cancel_running`; its link is closed.
  void Cut(const absl::Status& why, bool cancel_running);
  uint64_t newest_link() const;
  absl::Time detached_since() const;  // InfiniteFuture while it has a link

 private:
  friend struct ServerCall;
  struct Out {
    ServerCall* call = nullptr;
    std::unique_ptr<v1::Reply> item;
  };
  struct Told {  // a call whose cancellation its handler is to hear of
    ServerCall* call;
    absl::AnyInvocable<void()> callback;
  };
  ServerCall* Find(uint64_t seq);
  bool Begin(v1::Call& call, absl::Time now, std::vector<CallRef>* admitted);
  void Free(ServerCall* call);
  void Acked(uint64_t seq);
  void CancelCall(ServerCall* call, std::vector<Told>* told);
  void Tell(std::vector<Told>& told);
  bool FinishLocked(ServerCall* call, const absl::Status& status, std::string* payload);
  void Keep(ServerCall* call);
  void Drop(ServerCall* call);
  absl::Status WriteItem(ServerCall* call, std::string payload);
  void SetOnCancel(ServerCall* call, absl::AnyInvocable<void()> callback);
  void Write(std::unique_lock<std::mutex>& lock);
  void BuildBatch();

  CallTable* const table_;
  const uint64_t id_;
  const v1::CallerId caller_;
  mutable std::mutex mu_;
  std::condition_variable changed_;                 // credit came, a call was cancelled, a cancel callback has returned
  std::vector<std::unique_ptr<ServerCall>> calls_;  // [window], made when first used, then reused
  uint64_t max_seen_ = 0, acked_through_ = 0;
  Ring<Out> out_;
  std::shared_ptr<ReplyBatchSink> link_;
  uint64_t link_number_ = 0;
  bool writing_ = false, in_write_call_ = false, dirty_ = false, heartbeat_ = false;
  absl::Status cut_;
  absl::Time detached_since_;
  v1::ReplyBatch batch_;
};

}  // namespace manta::call
