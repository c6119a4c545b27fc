// CallService's unary methods, on the call server's own queue: Invoke, one call without a stream, which is a session of
// one call to the same table; and QueryCalls. Objects live as long as an operation of theirs is under way.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/call/server_stream.h"
#include "common/call/tag.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/async_unary_call.h"
#include "manta/v1/call.grpc.pb.h"

namespace manta::call {

class InvokeCall final : public ReplyBatchSink, public std::enable_shared_from_this<InvokeCall> {
 public:
  explicit InvokeCall(ServerStream::Host* host) : host_(host), responder_(&context_) {}
  template <typename Service>
  static void Accept(ServerStream::Host* host, Service& service, grpc::ServerCompletionQueue* queue) {
    auto call = std::make_shared<InvokeCall>(host);
    call->next_ = [host, &service, queue] { Accept(host, service, queue); };
    call->context_.AsyncNotifyWhenDone(call->done_.Begin(call));
    service.RequestInvoke(&call->context_, &call->request_, &call->responder_, queue, queue, call->accept_.Begin(call));
  }
  void Write(const v1::ReplyBatch& batch) override;
  void Close(const absl::Status& why) override;

 private:
  void OnAccepted(bool ok);
  void OnFinished(bool) {}
  void OnDone(bool);

  ServerStream::Host* const host_;
  grpc::ServerContext context_;
  v1::InvokeRequest request_;
  grpc::ServerAsyncResponseWriter<v1::InvokeReply> responder_;
  std::function<void()> next_;
  OpTag<InvokeCall> accept_{&InvokeCall::OnAccepted}, finish_{&InvokeCall::OnFinished}, done_{&InvokeCall::OnDone};
  std::shared_ptr<ServerSession> session_;
  std::mutex mu_;
  bool finished_ = false;
};

class QueryCall final : public std::enable_shared_from_this<QueryCall> {
 public:
  explicit QueryCall(ServerStream::Host* host) : host_(host), responder_(&context_) {}
  template <typename Service>
  static void Accept(ServerStream::Host* host, Service& service, grpc::ServerCompletionQueue* queue) {
    auto call = std::make_shared<QueryCall>(host);
    call->next_ = [host, &service, queue] { Accept(host, service, queue); };
    call->queue_ = queue;
    service.RequestQueryCalls(&call->context_, &call->request_, &call->responder_, queue, queue,
                              call->accept_.Begin(call));
  }

 private:
  void OnAccepted(bool ok);
  void OnAlarm(bool);
  void OnFinished(bool) {}
  void Answer();

  ServerStream::Host* const host_;
  grpc::ServerContext context_;
  v1::QueryCallsRequest request_;
  grpc::ServerAsyncResponseWriter<v1::QueryCallsReply> responder_;
  std::function<void()> next_;
  grpc::CompletionQueue* queue_ = nullptr;
  grpc::Alarm alarm_;
  absl::Time wait_until_;
  OpTag<QueryCall> accept_{&QueryCall::OnAccepted}, wait_{&QueryCall::OnAlarm}, finish_{&QueryCall::OnFinished};
};

}  // namespace manta::call
