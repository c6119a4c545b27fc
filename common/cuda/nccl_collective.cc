#include "common/cuda/nccl_collective.h"

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/cuda/wait.h"

namespace manta::cuda {
namespace {

using comm::DataType;
using comm::ReduceOp;

ncclDataType_t NcclType(DataType type) {
  switch (type) {
    case DataType::kF32:
      return ncclFloat32;
    case DataType::kF64:
      return ncclFloat64;
    case DataType::kBF16:
      return ncclBfloat16;
    case DataType::kI64:
      return ncclInt64;
  }
  return ncclFloat32;
}

ncclRedOp_t NcclOp(ReduceOp op) {
  return op == ReduceOp::kSum ? ncclSum : ncclMax;
}

class NcclCollective final : public comm::Collective {
 public:
  NcclCollective(std::shared_ptr<comm::Collective> bootstrap, absl::Duration timeout)
      : Collective(bootstrap->rank(), bootstrap->size()), bootstrap_(std::move(bootstrap)), timeout_(timeout) {}

  ~NcclCollective() override {
    absl::MutexLock lock(&mutex_);
    if (comm_ != nullptr) {
      // Destroying waits for the peers to do the same; a group that has failed is aborted instead.
      if (error_.ok()) {
        ncclCommFinalize(comm_);
        ncclResult_t result = ncclInProgress;
        const absl::Time until = absl::Now() + absl::Seconds(5);
        while (absl::Now() < until && ncclCommGetAsyncError(comm_, &result) == ncclSuccess &&
               result == ncclInProgress) {
          absl::SleepFor(absl::Milliseconds(1));
        }
        result == ncclSuccess ? ncclCommDestroy(comm_) : ncclCommAbort(comm_);
      } else {
        ncclCommAbort(comm_);
      }
    }
    if (event_ != nullptr) cudaEventDestroy(event_);
  }

  absl::Status Init() {
    // Everyone learns which GPU everyone has: NCCL would wait or fail less clearly where two are the same.
    char mine[64] = {};
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetPCIBusId(mine, sizeof(mine), device) != cudaSuccess) {
      return absl::InternalError("no current CUDA device");
    }
    gethostname(mine + 24, sizeof(mine) - 25);
    std::vector<char> all(sizeof(mine) * size());
    if (absl::Status s = bootstrap_->AllGather(mine, sizeof(mine), all.data()); !s.ok()) return s;
    for (int a = 0; a < size(); ++a) {
      for (int b = a + 1; b < size(); ++b) {
        if (std::memcmp(&all[a * sizeof(mine)], &all[b * sizeof(mine)], sizeof(mine)) == 0) {
          return absl::InvalidArgumentError(absl::StrCat("ranks ", a, " and ", b, " have the same GPU, ",
                                                         std::string(&all[a * sizeof(mine)]),
                                                         ": NCCL needs one for each rank"));
        }
      }
    }
    ncclUniqueId id = {};
    if (rank() == 0) {
      if (const ncclResult_t r = ncclGetUniqueId(&id); r != ncclSuccess) {
        bootstrap_->Abort("rank 0 cannot start NCCL");
        return Error(r, "ncclGetUniqueId");
      }
    }
    if (absl::Status s = bootstrap_->Broadcast(&id, sizeof(id), 0); !s.ok()) return s;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    absl::Status status;
    {
      absl::MutexLock lock(&mutex_);
      const ncclResult_t r = ncclCommInitRankConfig(&comm_, size(), id, rank(), &config);
      if (r != ncclSuccess && r != ncclInProgress) status = Error(r, "ncclCommInitRank");
    }
    if (status.ok()) status = Settle("joining NCCL");
    if (!status.ok()) return Fail(status);
    if (cudaEventCreateWithFlags(&event_, cudaEventDisableTiming) != cudaSuccess) {
      return Fail(absl::InternalError("cannot create a CUDA event"));
    }
    return absl::OkStatus();
  }

  absl::Status AllReduce(void* data, size_t count, DataType type, ReduceOp op) override {
    return Call("all_reduce", [&](cudaStream_t stream) {
      return ncclAllReduce(data, data, count, NcclType(type), NcclOp(op), comm_, stream);
    });
  }
  absl::Status Broadcast(void* data, size_t bytes, int root) override {
    return Call("broadcast",
                [&](cudaStream_t stream) { return ncclBroadcast(data, data, bytes, ncclUint8, root, comm_, stream); });
  }
  absl::Status AllGather(const void* in, size_t bytes, void* out) override {
    return Call("all_gather",
                [&](cudaStream_t stream) { return ncclAllGather(in, out, bytes, ncclUint8, comm_, stream); });
  }
  absl::Status ReduceScatter(const void* in, size_t count, void* out, DataType type, ReduceOp op) override {
    return Call("reduce_scatter", [&](cudaStream_t stream) {
      return ncclReduceScatter(in, out, count, NcclType(type), NcclOp(op), comm_, stream);
    });
  }
  absl::Status Send(const void* data, size_t bytes, int to) override {
    return Call("send", [&](cudaStream_t stream) { return ncclSend(data, bytes, ncclUint8, to, comm_, stream); });
  }
  absl::Status Recv(void* data, size_t bytes, int from) override {
    return Call("recv", [&](cudaStream_t stream) { return ncclRecv(data, bytes, ncclUint8, from, comm_, stream); });
  }
  absl::Status Barrier() override {
    if (absl::Status s = Wait(); !s.ok()) return s;
    const absl::Status status = bootstrap_->Barrier();
    return status.ok() ? status : Fail(status);
  }
  absl::Status CheckPeers() override { return Peers(); }

  absl::Status Wait() override {
    {
      absl::MutexLock lock(&mutex_);
      if (!error_.ok()) return error_;
      if (cudaEventRecord(event_, c10::cuda::getCurrentCUDAStream().stream()) != cudaSuccess) {
        error_ = absl::InternalError("cudaEventRecord failed: the GPU is in error");
        return error_;
      }
    }
    const absl::Time deadline = absl::Now() + timeout_;
    absl::Time next_check = absl::Now() + kPeerCheckPeriod;
    Pause pause;
    for (;;) {
      const cudaError_t done = cudaEventQuery(event_);
      if (done == cudaSuccess) return absl::OkStatus();
      if (done != cudaErrorNotReady) {
        return Fail(absl::InternalError(absl::StrCat("the GPU failed: ", cudaGetErrorString(done))));
      }
      if (absl::Status s = Progress(deadline, next_check, "waiting for the group's GPUs"); !s.ok()) return s;
      pause.Once();
    }
  }

  void Abort(std::string_view reason) override {
    (void)Fail(absl::CancelledError(absl::StrCat("collective aborted: ", std::string(reason))));
    bootstrap_->Abort(reason);
  }

 private:
  absl::Status Error(ncclResult_t result, const char* what) const {
    return absl::InternalError(absl::StrCat("rank ", rank(), ": ", what, ": ", ncclGetErrorString(result), " (",
                                            ncclGetLastError(comm_), ")"));
  }

  // Keeps the first error, and ends what is queued: kernels that wait for a peer return.
  absl::Status Fail(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (!error_.ok()) return error_;
    error_ = status;
    if (comm_ != nullptr) {
      ncclCommAbort(comm_);
      comm_ = nullptr;
    }
    return error_;
  }

  absl::Status Peers() {
    const absl::Status status = bootstrap_->CheckPeers();
    return status.ok() ? status : Fail(status);
  }

  // One look while waiting: abort, time, NCCL's own errors, peers.
  absl::Status Progress(absl::Time deadline, absl::Time& next_check, const char* what) {
    {
      absl::MutexLock lock(&mutex_);
      if (!error_.ok()) return error_;
    }
    const absl::Time now = absl::Now();
    if (now < next_check) return absl::OkStatus();
    next_check = now + kPeerCheckPeriod;
    if (now >= deadline) {
      return Fail(absl::DeadlineExceededError(
          absl::StrCat("rank ", rank(), ": ", what, " took longer than ", absl::FormatDuration(timeout_))));
    }
    ncclResult_t result = ncclSuccess;
    {
      absl::MutexLock lock(&mutex_);
      if (comm_ != nullptr && ncclCommGetAsyncError(comm_, &result) != ncclSuccess) result = ncclInternalError;
    }
    if (result != ncclSuccess && result != ncclInProgress) {
      // The peer's end explains it better, where it has ended.
      if (absl::Status s = Peers(); !s.ok()) return s;
      return Fail(Error(result, what));
    }
    return Peers();
  }

  // A non-blocking communicator answers ncclInProgress until what was asked has been queued.
  absl::Status Settle(const char* what) {
    const absl::Time deadline = absl::Now() + timeout_;
    absl::Time next_check = absl::Now() + kPeerCheckPeriod;
    Pause pause;
    for (;;) {
      ncclResult_t result = ncclSuccess;
      {
        absl::MutexLock lock(&mutex_);
        if (!error_.ok()) return error_;
        if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) result = ncclInternalError;
      }
      if (result == ncclSuccess) return absl::OkStatus();
      if (absl::Status s = Progress(deadline, next_check, what); !s.ok()) return s;
      if (result != ncclInProgress) return Fail(Error(result, what));
      pause.Once();
    }
  }

  template <typename Function>
  absl::Status Call(const char* what, const Function& function) {
    ncclResult_t result;
    {
      absl::MutexLock lock(&mutex_);
      if (!error_.ok()) return error_;
      result = function(c10::cuda::getCurrentCUDAStream().stream());
    }
    if (result == ncclInProgress) return Settle(what);
    if (result != ncclSuccess) return Fail(Error(result, what));
    return absl::OkStatus();
  }

  const std::shared_ptr<comm::Collective> bootstrap_;
  const absl::Duration timeout_;
  cudaEvent_t event_ = nullptr;
  absl::Mutex mutex_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<comm::Collective>> NewNcclCollective(std::shared_ptr<comm::Collective> bootstrap,
                                                                    absl::Duration timeout) {
  if (bootstrap == nullptr) return absl::InvalidArgumentError("NCCL needs a group to start from");
  auto collective = std::make_unique<NcclCollective>(std::move(bootstrap), timeout);
  if (absl::Status status = collective->Init(); !status.ok()) return status;
  return collective;
}

}  // namespace manta::cuda
