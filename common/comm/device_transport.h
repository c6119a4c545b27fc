// DeviceTransport: how bytes go from one process's GPU memory to another's. Implemented by libmanta_cuda (CUDA IPC and
// NCCL), and in memory for tests.
//
// The weight channel's sessions decide what goes where and when; a transport only moves it. Every call that waits has a
// deadline, and looks at `check` every few milliseconds: once that returns an error, the call gives up with it, within
// a second. Thread-safe, but a PeerGroup is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace manta::comm {

// `count` pieces of `bytes` each; the starts of two that follow each other lie a stride apart.
struct CopyRun {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
  uint64_t count = 1;
  uint64_t to_stride = 0, from_stride = 0;
};

// One contiguous piece that goes to, or comes from, another rank of a group.
struct Message {
  int peer = 0;
  std::byte* data = nullptr;
  uint64_t bytes = 0;
};

// What goes in one step: `copies` run before its messages are sent, or after they have come.
struct Bucket {
  std::vector<CopyRun> copies;
  std::vector<Message> messages;
};

using Check = std::function<absl::Status()>;  // of whether it is still worth waiting

// Processes that can send each other device memory. Its end is local: it waits for no peer.
class PeerGroup {
 public:
  virtual ~PeerGroup() = default;

  // Device memory for packed pieces; two buffers of `bytes`, used by even and odd buckets. Kept and grown.
  [[nodiscard]] virtual absl::StatusOr<std::byte*> Staging(int slot, uint64_t bytes) = 0;

  // Buckets go in order, and the copies of one beside the messages of the one before. Returns when all have gone
  // (come). After an error the group is of no further use, and nothing of it writes to memory any more.
  [[nodiscard]] virtual absl::Status Send(absl::Span<const Bucket> buckets, absl::Time deadline,
                                          const Check& check) = 0;
  [[nodiscard]] virtual absl::Status Receive(absl::Span<const Bucket> buckets, absl::Time deadline,
                                             const Check& check) = 0;
};

class DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;

  virtual const std::string& gpu() const = 0;  // its UUID
  virtual bool has_nccl() const = 0;

  // ---- Two processes on one GPU ----
  struct Export {
    std::string handle;
    uint64_t offset = 0;  // of the memory asked for, in what the handle opens
  };
  // Makes memory of this process's GPU known to others. The whole of it must lie in one allocation.
  [[nodiscard]] virtual absl::StatusOr<Export> ExportMemory(const void* data, uint64_t bytes) = 0;
  // The start of what another process exported; closed with the last reference.
  [[nodiscard]] virtual absl::StatusOr<std::shared_ptr<std::byte>> OpenMemory(const std::string& handle) = 0;
  // Copies between any memory that this process can reach, in order with what the calling thread has queued on the GPU.
  [[nodiscard]] virtual absl::Status Copy(absl::Span<const CopyRun> runs, absl::Time deadline) = 0;

  // ---- Processes on several GPUs ----
  [[nodiscard]] virtual absl::StatusOr<std::string> NewGroupId() = 0;
  // Returns when all `size` ranks have joined.
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<PeerGroup>> Join(const std::string& id, int rank, int size,
                                                                        absl::Time deadline, const Check& check) = 0;
};

}  // namespace manta::comm
