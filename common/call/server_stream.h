// ServerStream: one stream of CallService.Open as the server sees it: a session's link. It lives as long as an
// operation of it is under way. Thread-safe: handlers' threads write, the poller does the rest.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/call/core/call_table.h"
#include "common/call/tag.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/async_stream.h"
#include "manta/v1/call.grpc.pb.h"

namespace manta::call {

class ServerStream final : public ReplyBatchSink, public std::enable_shared_from_this<ServerStream> {
 public:
  // What streams share.
  class Host {
   public:
    virtual ~Host() = default;
    virtual void Listen() = 0;                            // one more stream is to be waited for
    virtual void Admit(std::vector<CallRef>& calls) = 0;  // on the poller's thread
    virtual CallTable& table() = 0;
  };
  using Stream = grpc::ServerAsyncReaderWriter<v1::ReplyBatch, v1::CallBatch>;

  explicit ServerStream(Host* host) : host_(host), stream_(&context_) {}
  // Waits for a caller.
  template <typename Service>
  void Accept(Service& service, grpc::ServerCompletionQueue* queue) {
    context_.AsyncNotifyWhenDone(done_.Begin(shared_from_this()));
    service.RequestOpen(&context_, &stream_, queue, queue, accept_.Begin(shared_from_this()));
  }

  void Write(const v1::ReplyBatch& batch) override;
  void Close(const absl::Status& why) override;

 private:
  void OnAccepted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool) {}
  void OnDone(bool);
  void Open();
  void FinishLocked(const absl::Status& why);

  Host* const host_;
  grpc::ServerContext context_;
  Stream stream_;
  OpTag<ServerStream> accept_{&ServerStream::OnAccepted}, read_{&ServerStream::OnRead},
      write_{&ServerStream::OnWritten}, finish_{&ServerStream::OnFinished}, done_{&ServerStream::OnDone};
  // The poller's:
  std::shared_ptr<ServerSession> session_;
  uint64_t link_ = 0;
  v1::CallBatch in_;
  std::vector<CallRef> admitted_;
  bool accepted_ = false;
  // Any thread's:
  std::mutex mu_;
  bool writing_ = false, finished_ = false, is_done_ = false;
  std::optional<absl::Status> closing_;
};

}  // namespace manta::call
