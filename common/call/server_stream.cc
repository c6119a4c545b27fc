#include "common/call/server_stream.h"

#include "common/rpc/status.h"

namespace manta::call {

void ServerStream::OnAccepted(bool ok) {
  if (!ok) {  // the server shuts down; gRPC does not say OnDone then
    done_.Begin(nullptr);
    return;
  }
  accepted_ = true;
  host_->Listen();
  stream_.Read(&in_, read_.Begin(shared_from_this()));
}

void ServerStream::OnRead(bool ok) {
  if (!ok) {
    if (session_ != nullptr) session_->OnBroken(link_);
    std::lock_guard lock(mu_);
    if (!finished_ && !writing_) FinishLocked(absl::OkStatus());
    if (!finished_ && !closing_.has_value()) closing_ = absl::OkStatus();
    return;
  }
  if (session_ == nullptr) {
    Open();
    if (session_ == nullptr) return;
  } else {
    session_->OnBatch(link_, in_, &admitted_);
  }
  stream_.Read(&in_, read_.Begin(shared_from_this()));
  if (!admitted_.empty()) {
    host_->Admit(admitted_);
    admitted_.clear();
  }
}

void ServerStream::Open() {
  if (!in_.has_open()) {
    Close(absl::InvalidArgumentError("a stream's first batch must open a session"));
    return;
  }
  v1::ReplyBatch first;
  auto opened = host_->table().Open(in_.open(), shared_from_this(), first.mutable_opened());
  if (!opened.ok()) {
    Close(opened.status());
    return;
  }
  session_ = std::move(opened->session);
  link_ = opened->link;
  Write(first);
}

void ServerStream::Write(const v1::ReplyBatch& batch) {
  std::lock_guard lock(mu_);
  if (finished_ || is_done_) return;  // the link is dead, whoever waits for this write waits for another link
  writing_ = true;
  stream_.Write(batch, write_.Begin(shared_from_this()));
}

void ServerStream::OnWritten(bool ok) {
  {
    std::lock_guard lock(mu_);
    writing_ = false;
    if (closing_.has_value() && !finished_) FinishLocked(*closing_);
    if (finished_) return;
  }
  if (ok && session_ != nullptr) session_->OnWriteDone(link_);
}

void ServerStream::Close(const absl::Status& why) {
  std::lock_guard lock(mu_);
  if (finished_) return;
  if (writing_) {
    closing_ = why;
    return;
  }
  FinishLocked(why);
}

void ServerStream::FinishLocked(const absl::Status& why) {
  finished_ = true;
  stream_.Finish(rpc::ToGrpc(why), finish_.Begin(shared_from_this()));
}

void ServerStream::OnDone(bool) {
  const bool broken = context_.IsCancelled();
  {
    std::lock_guard lock(mu_);
    is_done_ = true;
  }
  if (session_ == nullptr) return;
  session_->OnBroken(link_);
  if (!broken) host_->table().Forget(session_, link_);
}

}  // namespace manta::call
