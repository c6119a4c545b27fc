// Collective: how the ranks of a group combine and exchange arrays.
//
// A call is collective: every rank of the group makes it, in the same order, with the same element count, type and
// root; ranks that disagree get FAILED_PRECONDITION on all of them where that can be seen. Buffers are raw pointers:
// host memory for the CPU implementation (cpu_collective.h), device memory for NCCL (in libmanta_cuda).
//
// Determinism: a sum is taken in rank order, element by element (((x0 + x1) + x2) + ...), so all ranks get the same
// bits, and get them again in a rerun, whatever the size, transport or timing. NCCL promises the first (same bits on
// all ranks), and the second for a fixed topology.
//
// Failure: no call waits longer than the time-out (DEADLINE_EXCEEDED, naming the ranks waited for). A rank whose
// process is gone gives UNAVAILABLE with ErrorInfo{origin WORKER_DIED, rank}, within about 100 ms on one host. Abort()
// makes the call in progress return CANCELLED with its reason; the other ranks' calls return that reason too (shared
// memory), or that the rank is gone (sockets). After any error the group is unusable: later calls return that first
// error. Contents of output buffers are then unspecified.
//
// Thread-safety: one thread at a time makes calls; Abort() may be called from any thread at any time. The caller owns
// all buffers, and keeps them alive until the call returns (CPU) or Wait() does (NCCL).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace manta::comm {

enum class DataType : uint8_t { kF32, kF64, kBF16, kI64 };
enum class ReduceOp : uint8_t { kSum, kMax };

size_t SizeOf(DataType type);
const char* Name(DataType type);

class Collective {
 public:
  virtual ~Collective() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Replaces data[0, count) by the sum (maximum) over ranks. BF16 is summed in float32 and rounded once. The maximum of
  // values with a NaN among them is NaN.
  [[nodiscard]] virtual absl::Status AllReduce(void* data, size_t count, DataType type, ReduceOp op) = 0;

  // Copies root's data[0, bytes) to every rank.
  [[nodiscard]] virtual absl::Status Broadcast(void* data, size_t bytes, int root) = 0;

  // out[r * bytes, (r + 1) * bytes) becomes rank r's in[0, bytes). `in` may be its own place in `out`.
  [[nodiscard]] virtual absl::Status AllGather(const void* in, size_t bytes, void* out) = 0;

  // in: [size, count]; out[0, count) becomes the sum (maximum) over ranks of in[rank, :]. `out` may be in + rank *
  // count.
  [[nodiscard]] virtual absl::Status ReduceScatter(const void* in, size_t count, void* out, DataType type,
                                                   ReduceOp op) = 0;

  // Point to point: rank `to` must call Recv with the same number of bytes. Send may return before the other has it
  // all.
  [[nodiscard]] virtual absl::Status Send(const void* data, size_t bytes, int to) = 0;
  [[nodiscard]] virtual absl::Status Recv(void* data, size_t bytes, int from) = 0;

  // Returns when every rank has called it.
  [[nodiscard]] virtual absl::Status Barrier() = 0;

  // Returns when what was called before has its results in place. The CPU's calls are done when they return; NCCL's are
  // queued on a stream.
  [[nodiscard]] virtual absl::Status Wait() { return absl::OkStatus(); }

  // OK while every rank is there, as far as can be seen without waiting: for a rank that waits for something else.
  [[nodiscard]] virtual absl::Status CheckPeers() = 0;

  // Ends the group: calls in progress return CANCELLED within 100 ms, here and on the other ranks. The first reason
  // stays.
  virtual void Abort(std::string_view reason) = 0;

  // Typed forms of the above.
  [[nodiscard]] absl::Status AllReduceSum(absl::Span<float> data);
  [[nodiscard]] absl::Status AllReduceSum(absl::Span<double> data);
  [[nodiscard]] absl::Status AllReduceMax(absl::Span<float> data);
  [[nodiscard]] absl::Status AllReduceMax(absl::Span<double> data);

 protected:
  Collective(int rank, int size) : rank_(rank), size_(size) {}
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

 private:
  const int rank_;
  const int size_;
};

}  // namespace manta::comm
