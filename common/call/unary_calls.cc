#include "common/call/unary_calls.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/call/core/outcome.h"
#include "common/rpc/status.h"

namespace manta::call {
namespace {

constexpr absl::Duration kLongestInvoke = absl::Hours(1);
constexpr absl::Duration kLongestQuery = absl::Seconds(30);

}  // namespace

void InvokeCall::OnAccepted(bool ok) {
  if (!ok) {
    done_.Begin(nullptr);
    return;
  }
  next_();
  const auto& methods = host_->table().options().methods;
  const auto method = std::find_if(methods.begin(), methods.end(),
                                   [&](const v1::MethodInfo& m) { return m.name() == request_.method_name(); });
  if (method == methods.end() || method->streaming()) {
    Close(NotStarted(absl::UnimplementedError(
        absl::StrCat(method == methods.end() ? "there is no method " : "Invoke cannot stream the results of ",
                     request_.method_name()))));
    return;
  }
  v1::SessionOpened opened;
  request_.mutable_open()->set_session(0);
  auto session = host_->table().Open(request_.open(), shared_from_this(), &opened);
  if (!session.ok()) {
    Close(session.status());
    return;
  }
  session_ = session->session;
  session_->OnWriteDone(session->link);
  v1::CallBatch batch;
  v1::Call* call = batch.add_calls();
  call->Swap(request_.mutable_call());
  call->set_seq(1);
  call->set_method(static_cast<uint32_t>(method - methods.begin()));
  if (call->deadline_ms() == 0) {
    const absl::Duration left = absl::FromChrono(context_.deadline()) - absl::Now();
    call->set_deadline_ms(
        static_cast<uint32_t>(absl::ToInt64Milliseconds(std::clamp(left, absl::Milliseconds(1), kLongestInvoke))));
  }
  std::vector<CallRef> admitted;
  session_->OnBatch(session->link, batch, &admitted);
  host_->Admit(admitted);
}

void InvokeCall::Write(const v1::ReplyBatch& batch) {
  std::lock_guard lock(mu_);
  if (finished_ || batch.replies_size() == 0) return;
  finished_ = true;
  v1::InvokeReply reply;
  *reply.mutable_reply() = batch.replies(0);
  responder_.Finish(reply, grpc::Status::OK, finish_.Begin(shared_from_this()));
}

void InvokeCall::Close(const absl::Status& why) {
  std::lock_guard lock(mu_);
  if (finished_) return;
  finished_ = true;
  responder_.FinishWithError(rpc::ToGrpc(why.ok() ? absl::CancelledError("the session ended") : why),
                             finish_.Begin(shared_from_this()));
}

void InvokeCall::OnDone(bool) {
  // Answered, or its caller has gone: then what runs is cancelled.
  if (session_ != nullptr) host_->table().Close(session_);
}

void QueryCall::OnAccepted(bool ok) {
  if (!ok) return;
  next_();
  wait_until_ = absl::Now() + std::min(absl::Milliseconds(request_.wait_ms()), kLongestQuery);
  Answer();
}

void QueryCall::OnAlarm(bool) {
  Answer();
}

void QueryCall::Answer() {
  v1::QueryCallsReply reply = host_->table().Query(request_);
  request_.clear_release();
  const bool under_way = std::any_of(reply.results().begin(), reply.results().end(), [](const v1::CallResult& result) {
    return result.state() == v1::CALL_STATE_QUEUED || result.state() == v1::CALL_STATE_RUNNING;
  });
  if (under_way && absl::Now() < wait_until_) {
    alarm_.Set(queue_, absl::ToChronoTime(absl::Now() + absl::Milliseconds(20)), wait_.Begin(shared_from_this()));
    return;
  }
  responder_.Finish(reply, grpc::Status::OK, finish_.Begin(shared_from_this()));
}

}  // namespace manta::call
