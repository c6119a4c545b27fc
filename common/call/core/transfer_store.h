// TransferStore: the bytes of large arguments that come in chunks, until the call that names them takes them. Buffers
// are kept and used again, so that in steady state a transfer costs one copy and no page faults. Bounded: transfers
// that would exceed `max_bytes` are refused; what no call has taken within a minute of its last chunk is dropped.
//
// A transfer is named by its caller and a number of the caller's. Chunks come in order, each with its checksum; one
// that does not fit ends its transfer with INVALID_ARGUMENT or DATA_LOSS. Thread-safe; one thread at a time appends to
// one transfer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/call/core/transport.h"

namespace manta::call {

// What precedes a chunk's bytes in a serialised v1::TransferChunk; `data` is the message's last field.
struct ChunkHeader {
  std::string caller_id;  // of the first chunk
  uint64_t transfer = 0;  // of the first chunk
  uint64_t total = 0;     // of the first chunk
  uint64_t offset = 0;
  uint32_t crc = 0;
  uint64_t data_bytes = 0;
  size_t header_bytes = 0;  // where the data begin
};
inline constexpr size_t kMaxChunkHeader = 512;
// `prefix`: the message's first bytes, kMaxChunkHeader of them or all; `message_bytes` is the whole's.
absl::StatusOr<ChunkHeader> ParseChunkHeader(std::string_view prefix, size_t message_bytes);
std::string SerializeChunkHeader(const ChunkHeader& header);

class TransferStore {
 public:
  struct Options {
    size_t max_bytes = size_t{1} << 30;
    absl::Duration keep = absl::Minutes(1);
    Clock clock = SteadyNow;
  };
  explicit TransferStore(Options options);
  ~TransferStore();

  struct Transfer;
  absl::StatusOr<std::shared_ptr<Transfer>> Begin(const std::string& caller_id, uint64_t number, uint64_t total);
  // The pieces of one chunk.
  absl::Status Append(Transfer& transfer, const ChunkHeader& header,
                      const std::vector<std::span<const std::byte>>& pieces);
  // All chunks have come: a call may take it.
  absl::Status Finish(const std::shared_ptr<Transfer>& transfer);

  void Drop(const std::shared_ptr<Transfer>& transfer);

  struct Taken {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> holder;  // gives the buffer back
  };
  absl::StatusOr<Taken> Take(const std::string& caller_id, uint64_t number);
  void Tick();
  size_t bytes() const;  // of all buffers, those that wait to be used again among them

 private:
  struct Shared;
  const Options options_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace manta::call
