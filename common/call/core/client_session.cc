#include "common/call/core/client_session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/call/core/outcome.h"

namespace manta::call {
namespace {

constexpr absl::Duration kHeartbeat = absl::Seconds(2);
constexpr absl::Duration kSilence = absl::Seconds(6);
constexpr size_t kKeptCapacity = 4096;  // of a slot's payload: what a larger one held is given back

// The session whose replies this thread hands out: calls that their sinks start go out together afterwards.
thread_local const ClientSession* corked = nullptr;

}  // namespace

ClientSession::ClientSession(Options options) : options_(std::move(options)), mask_(options_.window - 1) {
  MANTA_CHECK(options_.window > 0 && (options_.window & mask_) == 0) << "window " << options_.window;
  slots_.resize(options_.window);
}

v1::CallBatch ClientSession::OpenBatch() {
  v1::CallBatch batch;
  v1::SessionOpen* open = batch.mutable_open();
  *open->mutable_caller() = options_.caller;
  open->set_actor_id(options_.actor_id);
  open->set_epoch(options_.epoch);
  open->set_host_id(options_.host_id);
  std::lock_guard lock(mu_);
  open->set_session(opened_once_ ? opened_.session() : 0);
  for (const Slot& slot : slots_) {
    if (slot.state == State::kWritten || slot.state == State::kAbandoned) open->add_pending(slot.seq);
  }
  return batch;
}

uint64_t ClientSession::Attach(std::shared_ptr<CallBatchSink> link, const v1::SessionOpened& opened) {
  std::unique_lock lock(mu_);
  if (!opened_once_) {
    opened_ = opened;
    opened_once_ = true;
  }
  for (const uint64_t seq : opened.never_seen()) {
    Slot* slot = Find(seq);
    if (slot == nullptr) continue;
    if (slot->state == State::kWritten) slot->state = State::kUnsent;
    if (slot->state == State::kAbandoned) Free(*slot);
  }
  std::vector<uint64_t> unsent;
  cancels_.clear();
  credits_.clear();
  for (const Slot& slot : slots_) {
    if (slot.state == State::kUnsent) unsent.push_back(slot.seq);
    if (slot.cancel && slot.state != State::kFree) cancels_.push_back(slot.seq);
  }
  std::sort(unsent.begin(), unsent.end());
  unsent_.clear();
  for (const uint64_t seq : unsent) unsent_.push_back(seq);
  link_ = std::move(link);
  writing_ = false;
  heartbeat_ = false;
  last_write_ = last_read_ = options_.clock();
  const uint64_t number = ++link_number_;
  Write(lock);
  return number;
}

void ClientSession::OnReplies(uint64_t link, v1::ReplyBatch& batch) {
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mu_);
    if (link != link_number_) return;
    last_read_ = options_.clock();
    ended.swap(ended_);
    for (v1::Reply& reply : *batch.mutable_replies()) {
      Slot* slot = Find(reply.seq());
      if (!reply.more()) acks_.push_back(reply.seq());  // also of what was not waited for any more
      if (slot == nullptr) continue;
      if (reply.more()) {
        if (slot->state == State::kWritten) ended.push_back({slot->sink, absl::OkStatus(), &reply});
        continue;
      }
      if (slot->state == State::kWritten) ended.push_back({std::move(slot->sink), absl::OkStatus(), &reply});
      Free(*slot);
    }
  }
  corked = this;
  for (Ended& one : ended) {
    if (one.reply->more()) {
      one.sink->OnItem(*one.reply);
      continue;
    }
    if (one.reply->has_error()) one.status = FromProto(one.reply->error());
    Run(one);
  }
  ended.clear();
  corked = nullptr;
  std::unique_lock lock(mu_);
  if (ended_.capacity() < ended.capacity()) ended_.swap(ended);
  Write(lock);
}

void ClientSession::OnWriteDone(uint64_t link) {
  std::unique_lock lock(mu_);
  if (link != link_number_) return;
  writing_ = false;
  Write(lock);
}

void ClientSession::OnBroken(uint64_t link) {
  std::lock_guard lock(mu_);
  if (link == link_number_) link_ = nullptr;
}

void ClientSession::Fail(const absl::Status& why) {
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mu_);
    if (!failure_.ok()) return;
    failure_ = why;
    link_ = nullptr;
    ++link_number_;
    for (Slot& slot : slots_) {
      if (slot.state == State::kUnsent) {
        ended.push_back({std::move(slot.sink), NotStarted(why), nullptr});
      } else if (slot.state == State::kWritten) {
        ended.push_back({std::move(slot.sink), Unknown(why), nullptr});
      }
      if (slot.state != State::kFree) Free(slot, /*safe=*/slot.state == State::kUnsent);
    }
  }
  for (Ended& one : ended) Run(one);
}

absl::Status ClientSession::Tick() {
  std::vector<Ended> ended;
  absl::Status silent;
  {
    std::unique_lock lock(mu_);
    const absl::Time now = options_.clock();
    if (now >= earliest_) {
      earliest_ = absl::InfiniteFuture();
      for (Slot& slot : slots_) {
        if (slot.state != State::kUnsent && slot.state != State::kWritten) continue;
        if (slot.deadline > now) {
          earliest_ = std::min(earliest_, slot.deadline);
          continue;
        }
        ended.push_back(EndHere(slot, absl::DeadlineExceededError("the call's deadline passed")));
      }
    }
    if (link_ != nullptr) {
      if (now - last_write_ >= kHeartbeat) heartbeat_ = true;
      if (now - last_read_ >= kSilence) {
        silent = absl::DeadlineExceededError(
            absl::StrCat(options_.actor_id, " has been silent for ", absl::FormatDuration(kSilence)));
      }
    }
    Write(lock);
  }
  for (Ended& one : ended) Run(one);
  return silent;
}

absl::StatusOr<uint32_t> ClientSession::FindMethod(std::string_view name) const {
  for (int i = 0; i < opened_.methods_size(); ++i) {
    if (opened_.methods(i).name() == name) return i;
  }
  return NotStarted(absl::UnimplementedError(absl::StrCat(options_.actor_id, " has no method ", std::string(name))));
}

bool ClientSession::streaming(uint32_t method) const {
  return method < static_cast<uint32_t>(opened_.methods_size()) && opened_.methods(method).streaming();
}

bool ClientSession::idempotent(uint32_t method) const {
  return method < static_cast<uint32_t>(opened_.methods_size()) && opened_.methods(method).idempotent();
}

absl::StatusOr<uint64_t> ClientSession::Start(const CallSpec& spec, std::shared_ptr<CallSink> sink) {
  MANTA_CHECK(spec.deadline < absl::InfiniteDuration()) << "a call without a deadline";
  std::unique_lock lock(mu_);
  if (!failure_.ok()) return NotStarted(failure_);
  if (spec.deadline <= absl::ZeroDuration()) {
    return NotStarted(absl::DeadlineExceededError("the call's deadline has passed already"));
  }
  if (used_ == options_.window) {
    return NotStarted(absl::ResourceExhaustedError(
        absl::StrCat(options_.window, " calls to ", options_.actor_id, " are without a reply already")));
  }
  if (bytes_ + spec.payload.size() > options_.max_bytes) {
    return NotStarted(absl::ResourceExhaustedError(absl::StrCat("calls to ", options_.actor_id, " hold ", bytes_,
                                                                " bytes already; at most ", options_.max_bytes)));
  }
  uint64_t seq = last_seq_ + 1;
  while (slots_[seq & mask_].state != State::kFree) ++seq;
  last_seq_ = seq;
  Slot& slot = slots_[seq & mask_];
  slot.seq = seq;
  slot.state = State::kUnsent;
  slot.cancel = false;
  slot.deadline = options_.clock() + spec.deadline;
  slot.sink = std::move(sink);
  slot.argument = spec.argument;
  slot.call.set_seq(seq);
  slot.call.set_method(spec.method);
  slot.call.mutable_payload()->assign(spec.payload.data(), spec.payload.size());
  slot.call.set_item_credit(spec.item_credit);
  slot.call.set_transfer(spec.transfer);
  if (!spec.key.empty()) slot.call.set_key(std::string(spec.key));
  if (spec.shm != nullptr) *slot.call.mutable_shm() = *spec.shm;
  bytes_ += spec.payload.size();
  ++used_;
  earliest_ = std::min(earliest_, slot.deadline);
  unsent_.push_back(seq);
  if (corked != this) Write(lock);
  return seq;
}

void ClientSession::Cancel(uint64_t seq) {
  Ended ended;
  {
    std::unique_lock lock(mu_);
    Slot* slot = Find(seq);
    if (slot == nullptr || slot->state == State::kAbandoned) return;
    ended = EndHere(*slot, absl::CancelledError("the caller cancelled the call"));
    Write(lock);
  }
  Run(ended);
}

void ClientSession::GiveCredit(uint64_t seq, uint32_t items) {
  std::unique_lock lock(mu_);
  if (Find(seq) == nullptr) return;
  credits_.emplace_back(seq, items);
  Write(lock);
}

bool ClientSession::attached() const {
  std::lock_guard lock(mu_);
  return link_ != nullptr;
}

absl::Status ClientSession::failure() const {
  std::lock_guard lock(mu_);
  return failure_;
}

uint32_t ClientSession::in_flight() const {
  std::lock_guard lock(mu_);
  return used_;
}

ClientSession::Slot* ClientSession::Find(uint64_t seq) {
  Slot& slot = slots_[seq & mask_];
  return slot.seq == seq && slot.state != State::kFree ? &slot : nullptr;
}

void ClientSession::Free(Slot& slot, bool safe) {
  std::string& payload = *slot.call.mutable_payload();
  bytes_ -= payload.size();
  if (payload.capacity() > kKeptCapacity) std::string().swap(payload);
  slot.call.clear_payload();
  if (slot.call.has_shm()) slot.call.clear_shm();
  if (!slot.call.key().empty()) slot.call.clear_key();
  slot.sink = nullptr;
  if (slot.argument != nullptr) std::exchange(slot.argument, nullptr)->Release(safe);
  slot.state = State::kFree;
  --used_;
}

ClientSession::Ended ClientSession::EndHere(Slot& slot, absl::Status status) {
  Ended ended{std::move(slot.sink), {}, nullptr};
  if (slot.state == State::kUnsent) {
    ended.status = NotStarted(status);
    Free(slot);
  } else {
    ended.status = Unknown(status);
    slot.state = State::kAbandoned;
    slot.cancel = true;
    cancels_.push_back(slot.seq);
  }
  return ended;
}

void ClientSession::Write(std::unique_lock<std::mutex>& lock) {
  while (link_ != nullptr && !writing_ && !in_write_call_ && BuildBatch()) {
    writing_ = in_write_call_ = true;
    const std::shared_ptr<CallBatchSink> link = link_;
    lock.unlock();
    link->Write(batch_);
    lock.lock();
    in_write_call_ = false;
  }
}

bool ClientSession::BuildBatch() {
  if (unsent_.empty() && cancels_.empty() && credits_.empty() && !heartbeat_ && acks_.size() < options_.window / 4) {
    return false;
  }
  const absl::Time now = options_.clock();
  batch_.Clear();
  size_t bytes = 0;
  while (!unsent_.empty() && batch_.calls_size() < static_cast<int>(options_.max_batch_calls) &&
         bytes < options_.max_batch_bytes) {
    Slot* slot = Find(unsent_.pop_front());
    if (slot == nullptr || slot->state != State::kUnsent) continue;  // it ended before it was written
    slot->call.set_deadline_ms(
        static_cast<uint32_t>(std::clamp<int64_t>(absl::ToInt64Milliseconds(slot->deadline - now), 1, UINT32_MAX)));
    *batch_.add_calls() = slot->call;
    slot->state = State::kWritten;
    bytes += slot->call.payload().size();
  }
  for (const uint64_t seq : cancels_) batch_.add_cancel(seq);
  cancels_.clear();
  for (const uint64_t seq : acks_) batch_.add_acked(seq);
  acks_.clear();
  for (const auto& [seq, items] : credits_) {
    v1::ItemCredit* credit = batch_.add_credit();
    credit->set_seq(seq);
    credit->set_items(items);
  }
  credits_.clear();
  if (heartbeat_) batch_.set_heartbeat(1);
  heartbeat_ = false;
  last_write_ = now;
  return true;
}

void ClientSession::Run(Ended& ended) {
  const std::shared_ptr<CallSink> sink = std::move(ended.sink);
  if (sink == nullptr) return;
  v1::Reply none;
  sink->OnDone(ended.status, ended.reply != nullptr ? *ended.reply : none);
}

}  // namespace manta::call
