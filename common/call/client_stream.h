// ClientStream: one stream of CallService.Open as the caller sees it: a session's link. It lives as long as an
// operation of it is under way. Write may come from any thread, the rest is the poller's.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "common/call/core/client_session.h"
#include "common/call/tag.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/async_stream.h"
#include "manta/v1/call.grpc.pb.h"

namespace manta::call {

class ClientStream final : public CallBatchSink, public std::enable_shared_from_this<ClientStream> {
 public:
  // `opened` once the session is attached, `ended` once the stream is over, with its status; on the poller's thread.
  ClientStream(std::shared_ptr<ClientSession> session, std::function<void()> opened,
               std::function<void(const absl::Status&)> ended)
      : session_(std::move(session)), opened_(std::move(opened)), ended_(std::move(ended)) {}
  void Start(v1::CallService::Stub& stub, grpc::CompletionQueue* queue);
  void Write(const v1::CallBatch& batch) override;
  void Break() { context_.TryCancel(); }
  void SayGoodbye();  // the server forgets the session

 private:
  void OnStarted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool);
  void OnGoodbye(bool) {}
  void Finish();
  void AttachOnce();

  const std::shared_ptr<ClientSession> session_;
  std::function<void()> opened_;
  std::function<void(const absl::Status&)> ended_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::CallBatch, v1::ReplyBatch>> stream_;
  OpTag<ClientStream> start_{&ClientStream::OnStarted}, read_{&ClientStream::OnRead}, write_{&ClientStream::OnWritten},
      finish_{&ClientStream::OnFinished}, goodbye_{&ClientStream::OnGoodbye};
  v1::ReplyBatch in_;
  grpc::Status status_;
  bool open_written_ = false, have_opened_ = false;
  uint64_t link_ = 0;  // 0: not attached
  std::mutex mu_;
  bool over_ = false, writing_ = false, goodbye_wanted_ = false;
};

}  // namespace manta::call
