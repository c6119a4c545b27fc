#include "common/call/transfer_sender.h"

#include <algorithm>
#include <utility>

#include "common/call/core/transfer_store.h"
#include "common/metrics/crc32c.h"
#include "common/rpc/status.h"
#include "grpcpp/channel.h"

namespace manta::call {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

}  // namespace

TransferSender::TransferSender(std::shared_ptr<grpc::Channel> channel, grpc::CompletionQueue* queue,
                               std::string caller_id, uint64_t number, std::span<const std::byte> bytes,
                               absl::Duration deadline, std::function<void(absl::Status)> done)
    : stub_(std::shared_ptr<grpc::ChannelInterface>(std::move(channel))),
      queue_(queue),
      caller_id_(std::move(caller_id)),
      number_(number),
      bytes_(bytes),
      done_(std::move(done)) {
  context_.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
}

void TransferSender::Start() {
  stream_ = stub_.PrepareCall(&context_, "/manta.v1.CallService/Transfer", queue_);
  stream_->StartCall(start_.Begin(shared_from_this()));
}

void TransferSender::OnStarted(bool ok) {
  if (!ok) {
    stream_->Finish(&status_, finish_.Begin(shared_from_this()));
    return;
  }
  stream_->Read(&reply_, read_.Begin(shared_from_this()));  // ends with the call, or with the server's answer
  WriteNext();
}

void TransferSender::WriteNext() {
  const std::span<const std::byte> data = bytes_.subspan(sent_, std::min(kChunk, bytes_.size() - sent_));
  ChunkHeader header;
  if (sent_ == 0) {
    header.caller_id = caller_id_;
    header.transfer = number_;
    header.total = bytes_.size();
  }
  header.offset = sent_;
  header.data_bytes = data.size();
  header.crc = metrics::Crc32c({reinterpret_cast<const char*>(data.data()), data.size()});
  sent_ += data.size();
  const grpc::Slice slices[] = {grpc::Slice(SerializeChunkHeader(header)),
                                grpc::Slice(data.data(), data.size(), grpc::Slice::STATIC_SLICE)};
  writing_ = true;
  stream_->Write(grpc::ByteBuffer(slices, 2), write_.Begin(shared_from_this()));
}

void TransferSender::OnWritten(bool ok) {
  writing_ = false;
  if (read_ended_) {
    FinishIfReady();
  } else if (ok && sent_ < bytes_.size()) {
    WriteNext();
  } else if (ok) {
    stream_->WritesDone(writes_done_.Begin(shared_from_this()));
  }  // else the read ends, too
}

void TransferSender::OnRead(bool) {
  read_ended_ = true;
  FinishIfReady();
}

// Not while a write may still read the caller's bytes.
void TransferSender::FinishIfReady() {
  if (!writing_) stream_->Finish(&status_, finish_.Begin(shared_from_this()));
}

void TransferSender::OnFinished(bool) {
  auto done = std::move(done_);
  done(rpc::FromGrpc(status_));
}

}  // namespace manta::call
