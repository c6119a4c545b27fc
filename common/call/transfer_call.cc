#include "common/call/transfer_call.h"

#include <algorithm>
#include <string>

#include "common/base/status.h"
#include "common/rpc/status.h"

namespace manta::call {

void TransferCall::OnAccepted(bool ok) {
  if (!ok) return;
  next_();
  reader_.Read(&in_, read_.Begin(shared_from_this()));
}

void TransferCall::OnRead(bool ok) {
  absl::Status status;
  if (ok) {
    status = TakeChunk();
    if (status.ok()) {
      reader_.Read(&in_, read_.Begin(shared_from_this()));
      return;
    }
  } else {
    status =
        transfer_ == nullptr ? absl::InvalidArgumentError("a transfer without a chunk") : store_->Finish(transfer_);
  }
  if (!status.ok()) {
    if (transfer_ != nullptr) store_->Drop(transfer_);
    reader_.FinishWithError(rpc::ToGrpc(status), finish_.Begin(shared_from_this()));
    return;
  }
  v1::TransferReply reply;
  reply.set_received(received_);
  const grpc::Slice slice(reply.SerializeAsString());
  reader_.Finish(grpc::ByteBuffer(&slice, 1), grpc::Status::OK, finish_.Begin(shared_from_this()));
}

absl::Status TransferCall::TakeChunk() {
  slices_.clear();
  if (!in_.Dump(&slices_).ok()) return absl::InternalError("a transfer's message cannot be read");
  in_.Clear();
  std::string prefix;
  size_t bytes = 0;
  for (const grpc::Slice& slice : slices_) {
    prefix.append(reinterpret_cast<const char*>(slice.begin()),
                  std::min(slice.size(), kMaxChunkHeader - prefix.size()));
    bytes += slice.size();
  }
  MANTA_ASSIGN_OR_RETURN(const ChunkHeader header, ParseChunkHeader(prefix, bytes));
  if (transfer_ == nullptr) {
    MANTA_ASSIGN_OR_RETURN(transfer_, store_->Begin(header.caller_id, header.transfer, header.total));
  }
  pieces_.clear();
  size_t skip = header.header_bytes;
  for (const grpc::Slice& slice : slices_) {
    const size_t begin = std::min(skip, slice.size());
    skip -= begin;
    if (begin < slice.size()) pieces_.push_back(std::as_bytes(std::span(slice.begin() + begin, slice.size() - begin)));
  }
  MANTA_RETURN_IF_ERROR(store_->Append(*transfer_, header, pieces_));
  received_ += header.data_bytes;
  return absl::OkStatus();
}

}  // namespace manta::call
