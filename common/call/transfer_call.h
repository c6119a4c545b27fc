// TransferCall: CallService.Transfer as the server sees it: raw messages, whose bytes go straight into the transfer's
// buffer. Lives as long as an operation of it is under way; all on the poller's thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/call/core/transfer_store.h"
#include "common/call/tag.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/async_stream.h"
#include "grpcpp/support/byte_buffer.h"
#include "manta/v1/call.pb.h"

namespace manta::call {

class TransferCall final : public std::enable_shared_from_this<TransferCall> {
 public:
  explicit TransferCall(TransferStore* store) : store_(store), reader_(&context_) {}
  template <typename Service>
  static void Accept(TransferStore* store, Service& service, grpc::ServerCompletionQueue* queue) {
    auto call = std::make_shared<TransferCall>(store);
    call->next_ = [store, &service, queue] { Accept(store, service, queue); };
    service.RequestTransfer(&call->context_, &call->reader_, queue, queue, call->accept_.Begin(call));
  }

 private:
  void OnAccepted(bool ok);
  void OnRead(bool ok);
  void OnFinished(bool) {}
  absl::Status TakeChunk();

  TransferStore* const store_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer> reader_;
  std::function<void()> next_;
  OpTag<TransferCall> accept_{&TransferCall::OnAccepted}, read_{&TransferCall::OnRead},
      finish_{&TransferCall::OnFinished};
  grpc::ByteBuffer in_;
  std::vector<grpc::Slice> slices_;
  std::vector<std::span<const std::byte>> pieces_;
  std::shared_ptr<TransferStore::Transfer> transfer_;
  uint64_t received_ = 0;
};

}  // namespace manta::call
