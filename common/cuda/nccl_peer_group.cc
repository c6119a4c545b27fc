#include "common/cuda/nccl_peer_group.h"

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/cuda/device_transport.h"
#include "common/cuda/wait.h"

namespace manta::cuda {
namespace {

constexpr absl::Duration kDrainTimeout = absl::Seconds(10);

class NcclPeerGroup final : public comm::PeerGroup {
 public:
  explicit NcclPeerGroup(int device) : device_(device) {}

  ~NcclPeerGroup() override {
    const OnDevice guard(device_);
    Abort();
    for (Slot& slot : slots_) {
      if (slot.memory != nullptr) cudaFree(slot.memory);
    }
    if (message_stream_ != nullptr) cudaStreamDestroy(message_stream_);
    if (copy_stream_ != nullptr) cudaStreamDestroy(copy_stream_);
  }

  absl::Status Join(const std::string& text, int rank, int size, absl::Time deadline, const comm::Check& check) {
    const OnDevice guard(device_);
    ncclUniqueId id = {};
    if (text.size() != sizeof(id.internal)) return absl::InvalidArgumentError("not an id of an NCCL communicator");
    std::memcpy(id.internal, text.data(), sizeof(id.internal));
    for (cudaStream_t* stream : {&message_stream_, &copy_stream_}) {
      if (absl::Status s = CudaStatus(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreate");
          !s.ok()) {
        return s;
      }
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const absl::Status status =
        Settle(ncclCommInitRankConfig(&comm_, size, id, rank, &config), "joining NCCL", deadline, check);
    if (!status.ok()) Abort();
    return status;
  }

  absl::StatusOr<std::byte*> Staging(int index, uint64_t bytes) override {
    Slot& slot = slots_[index];
    if (slot.bytes >= bytes) return slot.memory;
    const OnDevice guard(device_);
    if (slot.memory != nullptr) cudaFree(slot.memory);
    slot.memory = nullptr;
    slot.bytes = 0;
    void* memory = nullptr;
    if (absl::Status s = CudaStatus(cudaMalloc(&memory, bytes), "memory to pack weights in"); !s.ok()) return s;
    slot.memory = static_cast<std::byte*>(memory);
    slot.bytes = bytes;
    return slot.memory;
  }

  absl::Status Send(absl::Span<const comm::Bucket> buckets, absl::Time deadline, const comm::Check& check) override {
    return Run(buckets, deadline, check, /*send=*/true);
  }
  absl::Status Receive(absl::Span<const comm::Bucket> buckets, absl::Time deadline, const comm::Check& check) override {
    return Run(buckets, deadline, check, /*send=*/false);
  }

 private:
  struct Slot {
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
  };
  // Of the last bucket that used a slot: its messages have gone (come), its copies have been made.
  struct SlotEvents {
    Event messages, copies;
  };

  absl::Status Run(absl::Span<const comm::Bucket> buckets, absl::Time deadline, const comm::Check& check, bool send) {
    if (comm_ == nullptr) return absl::FailedPreconditionError("this communicator has failed before");
    const OnDevice guard(device_);
    absl::Status status = Queue(buckets, deadline, check, send);
    if (status.ok()) status = Wait(message_stream_, deadline, check);
    if (status.ok()) status = Wait(copy_stream_, deadline, check);
    if (!status.ok()) {
      Abort();
      Drain();
    }
    return status;
  }

  // Copies and messages go on streams of their own, so that one bucket is packed (unpacked) beside the messages of
  // another; a slot's staging memory is used again when the bucket before the last is through.
  absl::Status Queue(absl::Span<const comm::Bucket> buckets, absl::Time deadline, const comm::Check& check, bool send) {
    Event begin;
    if (absl::Status s = WaitForCurrentStream(message_stream_, begin); !s.ok()) return s;
    if (absl::Status s = WaitFor(copy_stream_, begin); !s.ok()) return s;
    SlotEvents events[2];
    for (size_t i = 0; i < buckets.size(); ++i) {
      const comm::Bucket& bucket = buckets[i];
      SlotEvents& slot = events[i % 2];
      if (send && !bucket.copies.empty()) {
        if (absl::Status s = WaitFor(copy_stream_, slot.messages); !s.ok()) return s;
        if (absl::Status s = QueueCopies(bucket.copies, copy_stream_); !s.ok()) return s;
        if (absl::Status s = slot.copies.Record(copy_stream_); !s.ok()) return s;
        if (absl::Status s = WaitFor(message_stream_, slot.copies); !s.ok()) return s;
      }
      if (!send) {
        if (absl::Status s = WaitFor(message_stream_, slot.copies); !s.ok()) return s;
      }
      if (absl::Status s = QueueMessages(bucket.messages, deadline, check, send); !s.ok()) return s;
      if (absl::Status s = slot.messages.Record(message_stream_); !s.ok()) return s;
      if (!send && !bucket.copies.empty()) {
        if (absl::Status s = WaitFor(copy_stream_, slot.messages); !s.ok()) return s;
        if (absl::Status s = QueueCopies(bucket.copies, copy_stream_); !s.ok()) return s;
        if (absl::Status s = slot.copies.Record(copy_stream_); !s.ok()) return s;
      }
    }
    return absl::OkStatus();
  }

  absl::Status QueueMessages(absl::Span<const comm::Message> messages, absl::Time deadline, const comm::Check& check,
                             bool send) {
    ncclResult_t result = ncclGroupStart();
    for (const comm::Message& message : messages) {
      if (result != ncclSuccess && result != ncclInProgress) break;
      result = send ? ncclSend(message.data, message.bytes, ncclUint8, message.peer, comm_, message_stream_)
                    : ncclRecv(message.data, message.bytes, ncclUint8, message.peer, comm_, message_stream_);
    }
    const ncclResult_t end = ncclGroupEnd();
    if (result == ncclSuccess || result == ncclInProgress) result = end;
    return Settle(result, send ? "sending weights" : "receiving weights", deadline, check);
  }

  absl::Status Error(ncclResult_t result, const char* what) const {
    return absl::InternalError(
        absl::StrCat(what, ": ", ncclGetErrorString(result), " (", ncclGetLastError(comm_), ")"));
  }

  // A non-blocking communicator answers ncclInProgress until what was asked has been queued.
  absl::Status Settle(ncclResult_t result, const char* what, absl::Time deadline, const comm::Check& check) {
    absl::Time next_check = absl::Now() + kPeerCheckPeriod;
    Pause pause;
    while (result == ncclInProgress) {
      if (absl::Status s = Look(what, deadline, check, next_check); !s.ok()) return s;
      pause.Once();
      if (const ncclResult_t r = ncclCommGetAsyncError(comm_, &result); r != ncclSuccess) result = r;
    }
    return result == ncclSuccess ? absl::OkStatus() : Error(result, what);
  }

  absl::Status Wait(cudaStream_t stream, absl::Time deadline, const comm::Check& check) {
    Event done;
    if (absl::Status s = done.Record(stream); !s.ok()) return s;
    absl::Time next_check = absl::Now() + kPeerCheckPeriod;
    Pause pause;
    for (;;) {
      const cudaError_t state = cudaEventQuery(done.get());
      if (state == cudaSuccess) return absl::OkStatus();
      if (state != cudaErrorNotReady) return CudaStatus(state, "moving weights");
      if (absl::Status s = Look("moving weights", deadline, check, next_check); !s.ok()) return s;
      ncclResult_t result = ncclSuccess;
      if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) result = ncclInternalError;
      if (result != ncclSuccess && result != ncclInProgress) {
        // A peer that is gone explains it better.
        if (absl::Status s = check(); !s.ok()) return s;
        return Error(result, "moving weights");
      }
      pause.Once();
    }
  }

  static absl::Status Look(const char* what, absl::Time deadline, const comm::Check& check, absl::Time& next_check) {
    const absl::Time now = absl::Now();
    if (now < next_check) return absl::OkStatus();
    next_check = now + kPeerCheckPeriod;
    if (now >= deadline) return absl::DeadlineExceededError(absl::StrCat(what, " took too long"));
    return check();
  }

  void Abort() {
    if (comm_ != nullptr) ncclCommAbort(comm_);
    comm_ = nullptr;
  }

  // After an abort the kernels return; then nothing writes any more.
  void Drain() {
    const absl::Time until = absl::Now() + kDrainTimeout;
    Pause pause;
    while (absl::Now() < until && (cudaStreamQuery(message_stream_) == cudaErrorNotReady ||
                                   cudaStreamQuery(copy_stream_) == cudaErrorNotReady)) {
      pause.Once();
    }
    (void)cudaGetLastError();
  }

  const int device_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t message_stream_ = nullptr, copy_stream_ = nullptr;
  Slot slots_[2];
};

}  // namespace

absl::StatusOr<std::unique_ptr<comm::PeerGroup>> JoinNcclPeerGroup(int device, const std::string& id, int rank,
                                                                   int size, absl::Time deadline,
                                                                   const comm::Check& check) {
  auto group = std::make_unique<NcclPeerGroup>(device);
  if (absl::Status s = group->Join(id, rank, size, deadline, check); !s.ok()) return s;
  return group;
}

}  // namespace manta::cuda
