// NameStream: one stream of ClusterService.Resolve on a caller's completion queue. Its callbacks run on whichever
// thread polls, one at a time, without locks held; `ended` is the last, once. It lives as long as an operation of it is
// under way. Start is called once. Cancel, from any thread, ends it without `ended`: nothing of it is begun on the
// queue afterwards, so that the queue may be shut down.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "common/call/tag.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/async_stream.h"
#include "manta/v1/cluster.grpc.pb.h"

namespace manta::actor {

class NameStream : public std::enable_shared_from_this<NameStream> {
 public:
  using OnReply = std::function<void(NameStream*, const v1::ResolveReply&)>;
  using OnEnd = std::function<void(NameStream*)>;
  NameStream(OnReply reply, OnEnd ended) : reply_(std::move(reply)), ended_(std::move(ended)) {}

  void Start(const std::shared_ptr<grpc::Channel>& channel, const v1::ResolveRequest& what,
             grpc::CompletionQueue* queue) {
    stub_ = v1::ClusterService::NewStub(channel);
    stream_ = stub_->PrepareAsyncResolve(&context_, what, queue);
    stream_->StartCall(start_.Begin(shared_from_this()));
  }
  void Cancel() {
    cancelled_ = true;
    context_.TryCancel();
  }

 private:
  void OnStarted(bool ok) { Next(ok); }
  void OnRead(bool ok) {
    if (ok) reply_(this, in_);
    Next(ok);
  }
  void Next(bool ok) {
    if (cancelled_) {
      LetGo();
    } else if (ok) {
      in_.Clear();
      stream_->Read(&in_, read_.Begin(shared_from_this()));
    } else {
      stream_->Finish(&status_, finish_.Begin(shared_from_this()));
    }
  }
  void OnFinished(bool) {
    const OnEnd ended = LetGo();
    if (!cancelled_) ended(this);
  }
  // The callbacks hold who holds this.
  OnEnd LetGo() {
    reply_ = nullptr;
    return std::exchange(ended_, nullptr);
  }

  OnReply reply_;
  OnEnd ended_;
  std::atomic<bool> cancelled_{false};
  std::unique_ptr<v1::ClusterService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::ResolveReply>> stream_;
  v1::ResolveReply in_;
  grpc::Status status_;
  call::OpTag<NameStream> start_{&NameStream::OnStarted}, read_{&NameStream::OnRead}, finish_{&NameStream::OnFinished};
};

}  // namespace manta::actor
