#include "common/call/core/server_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/call/core/call_table.h"
#include "common/call/core/outcome.h"
#include "common/call/core/server_call.h"

namespace manta::call {
namespace {

constexpr uint32_t kMaxCredit = 1024;
constexpr int kMaxBatchReplies = 256;
constexpr size_t kMaxBatchBytes = size_t{1} << 20;
constexpr size_t kKeptCapacity = 4096;

}  // namespace

ServerSession::ServerSession(CallTable* table, uint64_t id, v1::CallerId caller)
    : table_(table), id_(id), caller_(std::move(caller)), detached_since_(table->options_.clock()) {
  calls_.resize(table->options_.window);
}

ServerSession::~ServerSession() {
  for (const auto& call : calls_) {
    if (call != nullptr && call->kept) table_->kept_bytes_ -= call->reply.payload().size();
  }
}

CallContext* ServerSession::context(ServerCall* call) {
  return call;
}

uint64_t ServerSession::Attach(std::shared_ptr<ReplyBatchSink> link, const v1::SessionOpen& open,
                               v1::SessionOpened* opened) {
  std::vector<Told> told;
  std::shared_ptr<ReplyBatchSink> old;
  uint64_t number = 0;
  {
    std::lock_guard lock(mu_);
    old = std::move(link_);
    link_ = std::move(link);
    number = ++link_number_;
    writing_ = true;  // the answer to Open
    dirty_ = heartbeat_ = false;
    detached_since_ = absl::InfiniteFuture();
    out_.clear();
    std::vector<uint64_t> pending(open.pending().begin(), open.pending().end());
    std::sort(pending.begin(), pending.end());
    for (const auto& call : calls_) {
      if (call == nullptr || call->state == ServerCall::State::kFree) continue;
      const bool wanted = std::binary_search(pending.begin(), pending.end(), call->seq());
      if (call->state == ServerCall::State::kDone) {
        if (!wanted) Free(call.get());
      } else if (!wanted || call->sent_items) {
        call->stream_broken = call->sent_items;
        CancelCall(call.get(), &told);
      }
    }
    for (const uint64_t seq : pending) {
      ServerCall* call = Find(seq);
      if (call != nullptr && call->state == ServerCall::State::kDone) {
        if (call->sent_items) Drop(call);
        out_.push_back({call, nullptr});
      }
      if (seq > max_seen_) opened->add_never_seen(seq);
    }
    opened->set_session(id_);
  }
  if (old != nullptr) old->Close(absl::AbortedError("the session was taken up on another stream"));
  Tell(told);
  return number;
}

void ServerSession::OnBatch(uint64_t link, v1::CallBatch& batch, std::vector<CallRef>* admitted) {
  std::vector<Told> told;
  std::shared_ptr<ReplyBatchSink> close;
  {
    std::unique_lock lock(mu_);
    if (link != link_number_ || link_ == nullptr) return;
    for (const uint64_t seq : batch.acked()) Acked(seq);
    if (batch.acked_through() > acked_through_) {
      const uint64_t window = calls_.size();
      const uint64_t through = std::min(batch.acked_through(), max_seen_);
      for (uint64_t seq = std::max(acked_through_, through > window ? through - window : 0) + 1; seq <= through;
           ++seq) {
        Acked(seq);
      }
      acked_through_ = std::max(acked_through_, through);
    }
    if (batch.calls_size() > 0) {
      const absl::Time now = table_->options_.clock();
      for (v1::Call& call : *batch.mutable_calls()) {
        if (Begin(call, now, admitted)) continue;
        close = link_;  // no caller of ours does that
        break;
      }
    }
    for (const uint64_t seq : batch.cancel()) {
      ServerCall* call = Find(seq);
      if (call != nullptr && call->state != ServerCall::State::kDone) CancelCall(call, &told);
    }
    for (const v1::ItemCredit& credit : batch.credit()) {
      ServerCall* call = Find(credit.seq());
      if (call == nullptr) continue;
      call->credit = std::min(call->credit + std::min(credit.items(), kMaxCredit), kMaxCredit);
      changed_.notify_all();
    }
    if (batch.heartbeat() != 0) heartbeat_ = true;
    if (heartbeat_ || (!out_.empty() && !dirty_)) Write(lock);
  }
  Tell(told);
  if (close != nullptr) {
    close->Close(
        absl::InvalidArgumentError("a call's number is 0, or its place is taken by one without an acknowledged reply"));
  }
}

bool ServerSession::Begin(v1::Call& call, absl::Time now, std::vector<CallRef>* admitted) {
  const uint64_t seq = call.seq();
  if (seq == 0) return false;
  if (seq <= max_seen_) return true;  // seen before: whatever became of it, it is not run again
  std::unique_ptr<ServerCall>& place = calls_[seq & (calls_.size() - 1)];
  if (place == nullptr) place = std::make_unique<ServerCall>(this);
  if (place->state != ServerCall::State::kFree) return false;
  max_seen_ = seq;
  ServerCall* record = place.get();
  record->Take(call, now);
  record->state = ServerCall::State::kQueued;
  record->ran = record->sent_items = record->stream_broken = record->dropped = false;
  record->credit = std::min(record->call().item_credit(), kMaxCredit);
  absl::Status refusal;
  if (!cut_.ok()) {
    refusal = cut_;
  } else if (table_->is_draining_.load(std::memory_order_relaxed)) {
    refusal = absl::UnavailableError(absl::StrCat(table_->options_.actor_id, " stops"));
  } else if (record->call().method() >= table_->options_.methods.size()) {
    refusal = absl::UnimplementedError(absl::StrCat("there is no method ", record->call().method()));
  } else if (!record->call().key().empty()) {
    refusal = table_->BeginKey(caller_, record->call().key());
  }
  if (refusal.ok()) {
    table_->admitted_.fetch_add(1, std::memory_order_relaxed);
    admitted->push_back({shared_from_this(), record});
  } else {
    table_->refused_.fetch_add(1, std::memory_order_relaxed);
    v1::Reply& reply = record->reply;
    reply.Clear();
    reply.set_seq(seq);
    *reply.mutable_error() = ToProto(NotStarted(refusal));
    record->state = ServerCall::State::kDone;
    Keep(record);
    out_.push_back({record, nullptr});
  }
  return true;
}

bool ServerSession::StartRunning(ServerCall* call) {
  std::unique_lock lock(mu_);
  absl::Status refusal;
  if (!cut_.ok()) {
    refusal = NotStarted(cut_);
  } else if (call->cancelled()) {
    refusal = NotStarted(absl::CancelledError("cancelled before its turn"));
  } else if (table_->options_.clock() >= call->deadline()) {
    refusal = NotStarted(absl::DeadlineExceededError("its deadline passed before its turn"));
  } else {
    call->state = ServerCall::State::kRunning;
    call->ran = true;
    if (!call->call().key().empty()) table_->KeyRuns(caller_, call->call().key());
    return true;
  }
  FinishLocked(call, refusal, nullptr);
  Write(lock);
  return false;
}

bool ServerSession::Finish(ServerCall* call, const absl::Status& status, std::string* payload) {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [&] { return !call->telling; });
  return FinishLocked(call, status, payload);
}

bool ServerSession::FinishLocked(ServerCall* call, const absl::Status& status, std::string* payload) {
  call->on_cancel = nullptr;
  v1::Reply& reply = call->reply;
  reply.Clear();
  reply.set_seq(call->seq());
  if (!status.ok()) {
    *reply.mutable_error() = ToProto(call->ran ? Failed(status) : status);
  } else if (payload != nullptr) {
    reply.mutable_payload()->swap(*payload);
  }
  call->state = ServerCall::State::kDone;
  if (!call->call().key().empty()) table_->KeyEnds(caller_, call->call().key(), reply, call->ran);
  call->LetGo();
  Keep(call);
  table_->finished_.fetch_add(1, std::memory_order_relaxed);
  if (call->stream_broken || (link_ == nullptr && !call->kept)) Drop(call);
  if (link_ == nullptr) return false;  // Attach looks for it
  out_.push_back({call, nullptr});
  return !std::exchange(dirty_, true);
}

void ServerSession::Flush() {
  std::unique_lock lock(mu_);
  Write(lock);
}

void ServerSession::OnWriteDone(uint64_t link) {
  std::unique_lock lock(mu_);
  if (link != link_number_) return;
  writing_ = false;
  Write(lock);
}

void ServerSession::OnBroken(uint64_t link) {
  std::lock_guard lock(mu_);
  if (link != link_number_ || link_ == nullptr) return;
  link_ = nullptr;
  out_.clear();
  detached_since_ = table_->options_.clock();
}

void ServerSession::Cut(const absl::Status& why, bool cancel_running) {
  std::vector<Told> told;
  std::shared_ptr<ReplyBatchSink> link;
  {
    std::lock_guard lock(mu_);
    if (cut_.ok()) cut_ = why;
    link = std::exchange(link_, nullptr);
    ++link_number_;
    out_.clear();
    if (link != nullptr) detached_since_ = table_->options_.clock();
    for (const auto& call : calls_) {
      if (call == nullptr) continue;
      const bool queued = call->state == ServerCall::State::kQueued;
      if (queued || (cancel_running && call->state == ServerCall::State::kRunning)) CancelCall(call.get(), &told);
    }
  }
  if (link != nullptr) link->Close(NotStarted(why));
  Tell(told);
}

uint64_t ServerSession::newest_link() const {
  std::lock_guard lock(mu_);
  return link_number_;
}

absl::Time ServerSession::detached_since() const {
  std::lock_guard lock(mu_);
  return detached_since_;
}

ServerCall* ServerSession::Find(uint64_t seq) {
  ServerCall* call = calls_[seq & (calls_.size() - 1)].get();
  return call != nullptr && call->state != ServerCall::State::kFree && call->seq() == seq ? call : nullptr;
}

void ServerSession::Acked(uint64_t seq) {
  ServerCall* call = Find(seq);
  if (call != nullptr && call->state == ServerCall::State::kDone) Free(call);
}

void ServerSession::Free(ServerCall* call) {
  if (call->kept) table_->kept_bytes_.fetch_sub(call->reply.payload().size(), std::memory_order_relaxed);
  call->kept = false;
  if (call->reply.payload().capacity() > kKeptCapacity) std::string().swap(*call->reply.mutable_payload());
  call->state = ServerCall::State::kFree;
}

void ServerSession::Keep(ServerCall* call) {
  const size_t bytes = call->reply.payload().size();
  const size_t before = table_->kept_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  call->kept = before + bytes <= table_->options_.kept_bytes;
  if (!call->kept) table_->kept_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

void ServerSession::Drop(ServerCall* call) {
  if (call->kept) table_->kept_bytes_.fetch_sub(call->reply.payload().size(), std::memory_order_relaxed);
  call->kept = false;
  call->dropped = true;
  const uint64_t seq = call->seq();
  call->reply = v1::Reply();
  call->reply.set_seq(seq);
  const absl::Status why = call->sent_items ? Unknown(absl::AbortedError("the stream broke between this call's items"))
                                            : Failed(absl::DataLossError("the call ran; its reply is no longer kept"));
  *call->reply.mutable_error() = ToProto(why);
}

void ServerSession::CancelCall(ServerCall* call, std::vector<Told>* told) {
  if (call->cancelled()) return;
  call->Cancel();
  table_->cancelled_.fetch_add(1, std::memory_order_relaxed);
  changed_.notify_all();
  if (!call->on_cancel) return;
  call->telling = true;
  told->push_back({call, std::move(call->on_cancel)});
}

void ServerSession::Tell(std::vector<Told>& told) {
  for (Told& one : told) {
    one.callback();
    std::lock_guard lock(mu_);
    one.call->telling = false;
    changed_.notify_all();
  }
}

void ServerSession::SetOnCancel(ServerCall* call, absl::AnyInvocable<void()> callback) {
  {
    std::lock_guard lock(mu_);
    if (!call->cancelled()) {
      call->on_cancel = std::move(callback);
      return;
    }
  }
  callback();
}

absl::Status ServerSession::WriteItem(ServerCall* call, std::string payload) {
  std::unique_lock lock(mu_);
  while (call->credit == 0 && !call->cancelled()) {
    // A caller that gives no credit is not waited for beyond the call's deadline.
    const absl::Duration left = call->deadline() - table_->options_.clock();
    if (left <= absl::ZeroDuration())
      return absl::DeadlineExceededError("the call's deadline passed between its items");
    changed_.wait_for(lock, absl::ToChronoNanoseconds(std::min(left, absl::Seconds(1))));
  }
  if (call->cancelled()) return absl::CancelledError("the call was cancelled");
  if (link_ == nullptr) {
    call->sent_items = true;  // this one is lost
    call->Cancel();
    return absl::CancelledError("the caller's stream broke");
  }
  --call->credit;
  call->sent_items = true;
  auto item = std::make_unique<v1::Reply>();
  item->set_seq(call->seq());
  item->set_more(true);
  item->mutable_payload()->swap(payload);
  out_.push_back({call, std::move(item)});
  Write(lock);
  return absl::OkStatus();
}

void ServerSession::Write(std::unique_lock<std::mutex>& lock) {
  while (link_ != nullptr && !writing_ && !in_write_call_ && (!out_.empty() || heartbeat_)) {
    BuildBatch();
    writing_ = in_write_call_ = true;
    const std::shared_ptr<ReplyBatchSink> link = link_;
    lock.unlock();
    link->Write(batch_);
    lock.lock();
    in_write_call_ = false;
  }
}

void ServerSession::BuildBatch() {
  batch_.Clear();
  size_t bytes = 0;
  while (!out_.empty() && batch_.replies_size() < kMaxBatchReplies && bytes < kMaxBatchBytes) {
    Out out = out_.pop_front();
    if (out.item != nullptr) {
      bytes += out.item->payload().size();
      batch_.add_replies()->Swap(out.item.get());
      continue;
    }
    if (out.call->state != ServerCall::State::kDone) continue;  // acknowledged before it was sent: nobody of ours does
    bytes += out.call->reply.payload().size();
    if (out.call->kept || out.call->dropped) {
      *batch_.add_replies() = out.call->reply;
    } else {  // too large to keep: it goes out once
      batch_.add_replies()->Swap(&out.call->reply);
      Drop(out.call);
    }
  }
  if (out_.empty()) dirty_ = false;
  if (heartbeat_) batch_.set_heartbeat(1);
  heartbeat_ = false;
}

}  // namespace manta::call
