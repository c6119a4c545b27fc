#include "common/call/core/transfer_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/metrics/crc32c.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "manta/v1/call.pb.h"

namespace manta::call {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr uint64_t kMaxTransfer = uint64_t{64} << 30;
constexpr uint32_t kDataTag = v1::TransferChunk::kDataFieldNumber << 3 | WireFormatLite::WIRETYPE_LENGTH_DELIMITED;

struct Buffer {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

}  // namespace

absl::StatusOr<ChunkHeader> ParseChunkHeader(std::string_view prefix, size_t message_bytes) {
  const absl::Status bad = absl::InvalidArgumentError("a transfer's chunk is no TransferChunk with its data last");
  CodedInputStream in(reinterpret_cast<const uint8_t*>(prefix.data()), static_cast<int>(prefix.size()));
  ChunkHeader header;
  uint32_t length = 0;
  while (true) {
    const uint32_t tag = in.ReadTag();
    if (tag == 0) {
      if (in.CurrentPosition() != static_cast<int>(message_bytes)) return bad;
      header.header_bytes = message_bytes;  // no data
      return header;
    }
    if (tag == kDataTag) {
      if (!in.ReadVarint32(&length)) return bad;
      header.header_bytes = static_cast<size_t>(in.CurrentPosition());
      header.data_bytes = length;
      if (header.header_bytes + length != message_bytes) return bad;
      return header;
    }
    bool ok = true;
    switch (WireFormatLite::GetTagFieldNumber(tag)) {
      case v1::TransferChunk::kCallerFieldNumber: {
        v1::CallerId caller;
        std::string bytes;
        ok = WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED &&
             in.ReadVarint32(&length) && length < kMaxChunkHeader && in.ReadString(&bytes, static_cast<int>(length)) &&
             caller.ParseFromString(bytes);
        header.caller_id = caller.id();
        break;
      }
      case v1::TransferChunk::kTransferFieldNumber:
        ok = in.ReadVarint64(&header.transfer);
        break;
      case v1::TransferChunk::kTotalFieldNumber:
        ok = in.ReadVarint64(&header.total);
        break;
      case v1::TransferChunk::kOffsetFieldNumber:
        ok = in.ReadVarint64(&header.offset);
        break;
      case v1::TransferChunk::kCrcFieldNumber:
        ok = WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_FIXED32 &&
             in.ReadLittleEndian32(&header.crc);
        break;
      default:
        ok = WireFormatLite::SkipField(&in, tag);
    }
    if (!ok) return bad;
  }
}

std::string SerializeChunkHeader(const ChunkHeader& header) {
  v1::TransferChunk chunk;
  if (!header.caller_id.empty()) chunk.mutable_caller()->set_id(header.caller_id);
  chunk.set_transfer(header.transfer);
  chunk.set_total(header.total);
  chunk.set_offset(header.offset);
  chunk.set_crc(header.crc);
  std::string bytes = chunk.SerializeAsString();
  uint8_t tail[16];
  uint8_t* end = google::protobuf::io::CodedOutputStream::WriteTagToArray(kDataTag, tail);
  end = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(header.data_bytes), end);
  bytes.append(reinterpret_cast<const char*>(tail), static_cast<size_t>(end - tail));
  return bytes;
}

struct TransferStore::Transfer {
  std::pair<std::string, uint64_t> name;
  std::shared_ptr<Shared> shared;
  Buffer buffer;
  uint64_t total = 0, received = 0;
  absl::Time last;
  bool finished = false;
  ~Transfer();
};

struct TransferStore::Shared {
  explicit Shared(size_t max) : max_bytes(max) {}
  ~Shared() {
    for (const Buffer& buffer : spare) munmap(buffer.data, buffer.bytes);
  }
  absl::StatusOr<Buffer> Get(size_t bytes) {
    const size_t rounded = std::max<size_t>((bytes + 0xfffff) / 0x100000 * 0x100000, 0x100000);
    std::lock_guard lock(mu);
    const auto fits = std::find_if(spare.begin(), spare.end(),
                                   [&](const Buffer& b) { return b.bytes >= rounded && b.bytes <= 2 * rounded; });
    if (fits != spare.end()) {
      const Buffer buffer = *fits;
      spare.erase(fits);
      return buffer;
    }
    while (held + rounded > max_bytes && !spare.empty()) {
      munmap(spare.back().data, spare.back().bytes);
      held -= spare.back().bytes;
      spare.pop_back();
    }
    if (held + rounded > max_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("transfers hold ", held, " bytes; ", bytes, " more exceed ", max_bytes));
    }
    void* data = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (data == MAP_FAILED)
      return absl::ResourceExhaustedError(absl::StrCat("no memory for a transfer of ", bytes, " bytes"));
    held += rounded;
    return Buffer{static_cast<std::byte*>(data), rounded};
  }
  void GiveBack(const Buffer& buffer) {
    std::lock_guard lock(mu);
    spare.push_back(buffer);
  }
  const size_t max_bytes;
  std::mutex mu;
  std::map<std::pair<std::string, uint64_t>, std::shared_ptr<Transfer>> transfers;
  std::vector<Buffer> spare;
  size_t held = 0;
};

TransferStore::Transfer::~Transfer() {
  if (buffer.data != nullptr) shared->GiveBack(buffer);
}

TransferStore::TransferStore(Options options)
    : options_(std::move(options)), shared_(std::make_shared<Shared>(options_.max_bytes)) {}

TransferStore::~TransferStore() {
  std::map<std::pair<std::string, uint64_t>, std::shared_ptr<Transfer>> all;
  std::lock_guard lock(shared_->mu);
  all.swap(shared_->transfers);
  for (auto& [name, transfer] : all) {
    if (transfer.use_count() > 1) continue;
    shared_->spare.push_back(std::exchange(transfer->buffer, {}));
  }
}

absl::StatusOr<std::shared_ptr<TransferStore::Transfer>> TransferStore::Begin(const std::string& caller_id,
                                                                              uint64_t number, uint64_t total) {
  if (caller_id.empty() || number == 0)
    return absl::InvalidArgumentError("a transfer's first chunk names its caller and its number");
  if (total == 0 || total > kMaxTransfer)
    return absl::InvalidArgumentError(absl::StrCat("a transfer of ", total, " bytes"));
  auto transfer = std::make_shared<Transfer>();
  transfer->name = {caller_id, number};
  transfer->shared = shared_;
  transfer->total = total;
  transfer->last = options_.clock();
  {
    std::lock_guard lock(shared_->mu);
    if (!shared_->transfers.emplace(transfer->name, transfer).second) {
      return absl::AlreadyExistsError(absl::StrCat("transfer ", number, " of this caller is there already"));
    }
  }
  absl::StatusOr<Buffer> buffer = shared_->Get(total);
  if (!buffer.ok()) {
    std::lock_guard lock(shared_->mu);
    shared_->transfers.erase(transfer->name);
    return buffer.status();
  }
  transfer->buffer = *buffer;
  return transfer;
}

absl::Status TransferStore::Append(Transfer& transfer, const ChunkHeader& header,
                                   const std::vector<std::span<const std::byte>>& pieces) {
  if (header.offset != transfer.received || header.data_bytes > transfer.total - transfer.received) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk of ", header.data_bytes, " bytes at ", header.offset,
                                                   " of a transfer of ", transfer.total, " bytes, of which ",
                                                   transfer.received, " have come"));
  }
  std::byte* const start = transfer.buffer.data + transfer.received;
  std::byte* to = start;
  for (const auto& piece : pieces) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  const std::string_view bytes(reinterpret_cast<const char*>(start), static_cast<size_t>(to - start));
  if (metrics::Crc32c(bytes) != header.crc) {
    return absl::DataLossError(
        absl::StrCat("the chunk at ", header.offset, " has another checksum than it was sent with"));
  }
  transfer.received += header.data_bytes;
  std::lock_guard lock(shared_->mu);
  transfer.last = options_.clock();
  return absl::OkStatus();
}

absl::Status TransferStore::Finish(const std::shared_ptr<Transfer>& transfer) {
  std::lock_guard lock(shared_->mu);
  if (transfer->received == transfer->total) {
    transfer->finished = true;
    return absl::OkStatus();
  }
  shared_->transfers.erase(transfer->name);
  return absl::InvalidArgumentError(
      absl::StrCat("a transfer of ", transfer->total, " bytes ended after ", transfer->received));
}

void TransferStore::Drop(const std::shared_ptr<Transfer>& transfer) {
  std::lock_guard lock(shared_->mu);
  const auto found = shared_->transfers.find(transfer->name);
  if (found != shared_->transfers.end() && found->second == transfer) shared_->transfers.erase(found);
}

absl::StatusOr<TransferStore::Taken> TransferStore::Take(const std::string& caller_id, uint64_t number) {
  std::shared_ptr<Transfer> transfer;
  std::lock_guard lock(shared_->mu);
  const auto found = shared_->transfers.find({caller_id, number});
  if (found == shared_->transfers.end() || !found->second->finished) {
    return absl::FailedPreconditionError(absl::StrCat("the argument's transfer ", number, " is not here"));
  }
  transfer = std::move(found->second);
  shared_->transfers.erase(found);
  return Taken{.bytes = {transfer->buffer.data, transfer->total}, .holder = transfer};
}

void TransferStore::Tick() {
  std::vector<std::shared_ptr<Transfer>> old;  // destroyed without the lock
  const absl::Time now = options_.clock();
  const std::unique_lock lock(shared_->mu);
  for (auto it = shared_->transfers.begin(); it != shared_->transfers.end();) {
    const bool is_old = now - it->second->last >= options_.keep;
    if (is_old) old.push_back(it->second);
    it = is_old ? shared_->transfers.erase(it) : std::next(it);
  }
}

size_t TransferStore::bytes() const {
  std::lock_guard lock(shared_->mu);
  return shared_->held;
}

}  // namespace manta::call
