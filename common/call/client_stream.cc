#include "common/call/client_stream.h"

#include "common/rpc/status.h"

namespace manta::call {

void ClientStream::Start(v1::CallService::Stub& stub, grpc::CompletionQueue* queue) {
  stream_ = stub.PrepareAsyncOpen(&context_, queue);
  stream_->StartCall(start_.Begin(shared_from_this()));
}

void ClientStream::OnStarted(bool ok) {
  if (!ok) {
    Finish();
    return;
  }
  const v1::CallBatch open = session_->OpenBatch();
  {
    std::lock_guard lock(mu_);
    writing_ = true;
    stream_->Write(open, write_.Begin(shared_from_this()));
  }
  stream_->Read(&in_, read_.Begin(shared_from_this()));
}

void ClientStream::OnRead(bool ok) {
  if (!ok) {
    if (link_ != 0) session_->OnBroken(link_);
    Finish();
    return;
  }
  if (link_ == 0) {
    have_opened_ = true;
    AttachOnce();
    if (link_ == 0) return;  // the next read is begun once it is attached
  } else {
    session_->OnReplies(link_, in_);
  }
  stream_->Read(&in_, read_.Begin(shared_from_this()));
}

void ClientStream::OnWritten(bool ok) {
  {
    std::lock_guard lock(mu_);
    writing_ = false;
    if (goodbye_wanted_ && !over_) {
      over_ = true;
      stream_->WritesDone(goodbye_.Begin(shared_from_this()));
      return;
    }
  }
  if (!ok) return;  // the read fails, too
  if (link_ != 0) {
    session_->OnWriteDone(link_);
    return;
  }
  open_written_ = true;
  if (!have_opened_) return;
  AttachOnce();
  stream_->Read(&in_, read_.Begin(shared_from_this()));
}

void ClientStream::AttachOnce() {
  if (!open_written_ || !have_opened_) return;
  link_ = session_->Attach(shared_from_this(), in_.opened());
  opened_();
}

void ClientStream::Write(const v1::CallBatch& batch) {
  std::lock_guard lock(mu_);
  if (over_) return;
  writing_ = true;
  stream_->Write(batch, write_.Begin(shared_from_this()));
}

void ClientStream::SayGoodbye() {
  std::lock_guard lock(mu_);
  goodbye_wanted_ = true;
  if (over_ || writing_ || link_ == 0) return;
  over_ = true;
  stream_->WritesDone(goodbye_.Begin(shared_from_this()));
}

void ClientStream::Finish() {
  stream_->Finish(&status_, finish_.Begin(shared_from_this()));
}

void ClientStream::OnFinished(bool) {
  {
    std::lock_guard lock(mu_);
    over_ = true;
  }
  auto ended = std::move(ended_);
  opened_ = nullptr;
  ended(status_.ok() ? absl::UnavailableError("the stream ended") : rpc::FromGrpc(status_));
}

}  // namespace manta::call
