// ClientSession: a caller's half of a session with one actor. It numbers calls, holds them until their replies come,
// watches their deadlines, gathers them into batches, and carries them over from a broken link to the next.
//
// Thread-safe: one mutex, never held while a sink or a link is called. A call that was started ends exactly once, with
// its reply or with a status whose ErrorInfo says what is known of its effect (outcome.h). In steady state a call
// allocates nothing but what its sink does.
//
// Numbers (seq) only grow. A call keeps the slot `seq mod window` until its final reply has come, also when its caller
// has given it up; the next number is the next one whose slot is free. So the peer knows a call that it has seen by its
// number being no greater than the greatest it has seen, and needs no list of numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/call/core/ring.h"
#include "common/call/core/transport.h"
#include "manta/v1/call.pb.h"

namespace manta::call {

// Where a call's results go. Called without locks held, on the thread that handed the reply in; the reply's fields may
// be moved out. After OnDone the session does not touch the sink: it may live on its caller's stack.
class CallSink {
 public:
  virtual ~CallSink() = default;
  virtual void OnItem(v1::Reply& reply) { (void)reply; }  // of streaming results, in order
  virtual void OnDone(const absl::Status& status, v1::Reply& reply) = 0;
};

// An argument that lies outside of the call's message, until the peer is done with it.
class LargeArgument {
 public:
  virtual ~LargeArgument() = default;
  // Once: `safe` where the peer's final reply has come, or the call was never written; else it may still be read.
  virtual void Release(bool safe) = 0;
};

struct CallSpec {
  uint32_t method = 0;  // ClientSession::FindMethod
  std::string_view payload;
  absl::Duration deadline;  // from now; finite and positive
  uint32_t item_credit = 0;
  std::string_view key;
  const v1::ShmRef* shm = nullptr;
  uint64_t transfer = 0;
  std::shared_ptr<LargeArgument> argument = {};
};

class ClientSession {
 public:
  struct Options {
    v1::CallerId caller;
    std::string actor_id;
    uint64_t epoch = 0;
    std::string host_id;
    uint32_t window = 4096;                // calls without a final reply; a power of two
    size_t max_bytes = size_t{256} << 20;  // of their payloads
    uint32_t max_batch_calls = 256;
    size_t max_batch_bytes = size_t{1} << 20;
    Clock clock = SteadyNow;
  };
  explicit ClientSession(Options options);

  // ---- Links
  // The first batch of a link.
  v1::CallBatch OpenBatch();
  // What the peer answered to it: the calls flow from here on. Returns the link's number. A session that was opened
  // before and is not taken up again must be failed instead.
  uint64_t Attach(std::shared_ptr<CallBatchSink> link, const v1::SessionOpened& opened);
  void OnReplies(uint64_t link, v1::ReplyBatch& batch);
  void OnWriteDone(uint64_t link);
  // The calls stay, until Attach or Fail.
  void OnBroken(uint64_t link);
  // The peer is gone: what was written ends as UNKNOWN, the rest as NOT_STARTED, and nothing starts any more.
  void Fail(const absl::Status& why);
  // Deadlines and heartbeats; to be called every few milliseconds. DEADLINE_EXCEEDED where the link has been silent for
  // too long: the transport breaks it.
  absl::Status Tick();

  // ---- Calls
  // After the first Attach. UNIMPLEMENTED, NOT_STARTED where the peer has no such method.
  absl::StatusOr<uint32_t> FindMethod(std::string_view name) const;
  bool streaming(uint32_t method) const;
  bool idempotent(uint32_t method) const;
  // Returns the call's number; or an error with NOT_STARTED, and then `sink` is never called.
  absl::StatusOr<uint64_t> Start(const CallSpec& spec, std::shared_ptr<CallSink> sink);
  // Ends the call here at once, as CANCELLED, and tells the peer. Nothing where it has ended.
  void Cancel(uint64_t seq);
  void GiveCredit(uint64_t seq, uint32_t items);

  // ---- What is known
  bool attached() const;
  absl::Status failure() const;  // not OK after Fail
  uint32_t in_flight() const;
  const v1::SessionOpened& opened() const { return opened_; }  // after the first Attach
  const Options& options() const { return options_; }

 private:
  enum class State : uint8_t { kFree, kUnsent, kWritten, kAbandoned };  // abandoned: ended here, the peer still has it
  struct Slot {
    uint64_t seq = 0;
    State state = State::kFree;
    bool cancel = false;
    absl::Time deadline;
    std::shared_ptr<CallSink> sink;
    std::shared_ptr<LargeArgument> argument;
    v1::Call call;
  };
  struct Ended {
    std::shared_ptr<CallSink> sink;
    absl::Status status;
    v1::Reply* reply = nullptr;
  };
  Slot* Find(uint64_t seq);
  void Free(Slot& slot, bool safe = true);
  // Ends the call for its caller; the slot stays taken where the peer has the call.
  Ended EndHere(Slot& slot, absl::Status status);
  void Write(std::unique_lock<std::mutex>& lock);
  bool BuildBatch();
  static void Run(Ended& ended);

  const Options options_;
  const uint64_t mask_;
  v1::SessionOpened opened_;  // written once, by the first Attach
  mutable std::mutex mu_;
  std::vector<Slot> slots_;
  uint64_t last_seq_ = 0;
  uint32_t used_ = 0;
  size_t bytes_ = 0;
  Ring<uint64_t> unsent_;  // seqs, ascending; those that are not kUnsent any more are skipped
  std::vector<uint64_t> cancels_, acks_;
  std::vector<std::pair<uint64_t, uint32_t>> credits_;
  std::shared_ptr<CallBatchSink> link_;
  uint64_t link_number_ = 0;
  bool writing_ = false;        // OnWriteDone is awaited
  bool in_write_call_ = false;  // a thread is inside link->Write: batch_ is its
  bool heartbeat_ = false;
  bool opened_once_ = false;
  v1::CallBatch batch_;
  absl::Time earliest_ = absl::InfiniteFuture();  // no deadline is before it
  absl::Time last_write_ = absl::InfinitePast(), last_read_ = absl::InfinitePast();
  absl::Status failure_;
  std::vector<Ended> ended_;  // OnReplies' own; one thread at a time reads a link
};

}  // namespace manta::call
