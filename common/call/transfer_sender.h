// TransferSender: sends a large argument in chunks, out of the caller's own memory. The bytes must stay where they are
// until `done`, which is called once, on the poller's thread. Lives as long as an operation of it is under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/call/tag.h"
#include "grpcpp/generic/generic_stub.h"

namespace manta::call {

class TransferSender final : public std::enable_shared_from_this<TransferSender> {
 public:
  TransferSender(std::shared_ptr<grpc::Channel> channel, grpc::CompletionQueue* queue, std::string caller_id,
                 uint64_t number, std::span<const std::byte> bytes, absl::Duration deadline,
                 std::function<void(absl::Status)> done);
  void Start();

 private:
  void OnStarted(bool ok);
  void OnWritten(bool ok);
  void OnWritesDone(bool) {}
  void OnRead(bool ok);
  void OnFinished(bool);
  void WriteNext();
  void FinishIfReady();

  grpc::GenericStub stub_;
  grpc::CompletionQueue* const queue_;
  const std::string caller_id_;
  const uint64_t number_;
  const std::span<const std::byte> bytes_;
  std::function<void(absl::Status)> done_;
  size_t sent_ = 0;
  bool read_ended_ = false, writing_ = false;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer reply_;
  grpc::Status status_;
  OpTag<TransferSender> start_{&TransferSender::OnStarted}, write_{&TransferSender::OnWritten},
      writes_done_{&TransferSender::OnWritesDone}, read_{&TransferSender::OnRead}, finish_{&TransferSender::OnFinished};
};

}  // namespace manta::call
