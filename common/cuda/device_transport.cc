#include "common/cuda/device_transport.h"

#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cuda/nccl_peer_group.h"
#include "common/cuda/wait.h"

namespace manta::cuda {
namespace {

constexpr uint64_t kMaxPitch = (uint64_t{1} << 31) - 1;
constexpr char kHint[] =
    "; weights that go to another process must lie in one cudaMalloc allocation, so PyTorch's expandable segments "
    "(PYTORCH_CUDA_ALLOC_CONF) must be off";

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    absl::StrAppendFormat(&text, "%s%02x", dash ? "-" : "", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

// ATen gives out parts of its allocations: where the one begins that `data` lies in, and how long it is.
absl::Status FindAllocation(const void* data, CUdeviceptr* base, size_t* bytes) {
  using GetAddressRange = CUresult (*)(CUdeviceptr*, size_t*, CUdeviceptr);
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || function == nullptr) {
    return absl::UnavailableError("the driver has no cuMemGetAddressRange");
  }
  const CUresult result = reinterpret_cast<GetAddressRange>(function)(base, bytes, reinterpret_cast<CUdeviceptr>(data));
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("cuMemGetAddressRange: error ", static_cast<int>(result), kHint));
}

class CudaDeviceTransport final : public comm::DeviceTransport {
 public:
  explicit CudaDeviceTransport(int device) : device_(device) {}
  ~CudaDeviceTransport() override {
    const OnDevice guard(device_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Init() {
    cudaDeviceProp properties;
    if (absl::Status s = CudaStatus(cudaGetDeviceProperties(&properties, device_), "cudaGetDeviceProperties"); !s.ok())
      return s;
    gpu_ = UuidText(properties.uuid);
    const OnDevice guard(device_);
    return CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }

  const std::string& gpu() const override { return gpu_; }
  bool has_nccl() const override { return true; }  // this library is linked with it

  absl::StatusOr<Export> ExportMemory(const void* data, uint64_t bytes) override {
    const OnDevice guard(device_);
    CUdeviceptr base = 0;
    size_t length = 0;
    if (absl::Status s = FindAllocation(data, &base, &length); !s.ok()) return s;
    const uint64_t offset = reinterpret_cast<CUdeviceptr>(data) - base;
    if (offset + bytes > length) {
      return absl::FailedPreconditionError(absl::StrCat("the weights lie in several allocations", kHint));
    }
    cudaIpcMemHandle_t handle;
    if (absl::Status s = CudaStatus(cudaIpcGetMemHandle(&handle, const_cast<void*>(data)), "cudaIpcGetMemHandle");
        !s.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(s.message(), kHint));
    }
    Export result;
    result.handle.assign(reinterpret_cast<const char*>(&handle), sizeof(handle));
    result.offset = offset;
    return result;
  }

  absl::StatusOr<std::shared_ptr<std::byte>> OpenMemory(const std::string& text) override {
    cudaIpcMemHandle_t handle;
    if (text.size() != sizeof(handle)) return absl::InvalidArgumentError("not a handle of GPU memory");
    std::memcpy(&handle, text.data(), sizeof(handle));
    const OnDevice guard(device_);
    void* memory = nullptr;
    if (absl::Status s =
            CudaStatus(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
        !s.ok()) {
      return s;
    }
    return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [device = device_](std::byte* opened) {
      const OnDevice closing(device);
      cudaIpcCloseMemHandle(opened);
    });
  }

  absl::Status Copy(absl::Span<const comm::CopyRun> runs, absl::Time deadline) override {
    const OnDevice guard(device_);
    Event before, done;
    if (absl::Status s = WaitForCurrentStream(stream_, before); !s.ok()) return s;
    if (absl::Status s = QueueCopies(runs, stream_); !s.ok()) return s;
    if (absl::Status s = done.Record(stream_); !s.ok()) return s;
    // Waited for on the host: the other process is told when the copy is done, and does not see this one's events.
    Pause pause;
    for (;;) {
      const cudaError_t state = cudaEventQuery(done.get());
      if (state == cudaSuccess) return absl::OkStatus();
      if (state != cudaErrorNotReady) return CudaStatus(state, "copying weights");
      if (absl::Now() >= deadline) return absl::DeadlineExceededError("copying weights took too long");
      pause.Once();
    }
  }

  absl::StatusOr<std::string> NewGroupId() override {
    ncclUniqueId id = {};
    if (const ncclResult_t r = ncclGetUniqueId(&id); r != ncclSuccess) {
      return absl::InternalError(absl::StrCat("ncclGetUniqueId: ", ncclGetErrorString(r)));
    }
    return std::string(id.internal, sizeof(id.internal));
  }

  absl::StatusOr<std::unique_ptr<comm::PeerGroup>> Join(const std::string& id, int rank, int size, absl::Time deadline,
                                                        const comm::Check& check) override {
    return JoinNcclPeerGroup(device_, id, rank, size, deadline, check);
  }

 private:
  const int device_;
  std::string gpu_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

absl::Status QueueCopies(absl::Span<const comm::CopyRun> runs, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  for (const comm::CopyRun& run : runs) {
    if (run.bytes == 0) continue;
    cudaError_t error = cudaSuccess;
    if (run.count > 1 && run.to_stride <= kMaxPitch && run.from_stride <= kMaxPitch) {
      error = cudaMemcpy2DAsync(run.to, run.to_stride, run.from, run.from_stride, run.bytes, run.count,
                                cudaMemcpyDefault, on);
    } else {
      for (uint64_t i = 0; i < run.count && error == cudaSuccess; ++i) {
        error = cudaMemcpyAsync(run.to + i * run.to_stride, run.from + i * run.from_stride, run.bytes,
                                cudaMemcpyDefault, on);
      }
    }
    if (absl::Status s = CudaStatus(error, "copying weights"); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<comm::DeviceTransport>> NewDeviceTransport(int device) {
  auto transport = std::make_shared<CudaDeviceTransport>(device);
  if (absl::Status s = transport->Init(); !s.ok()) return s;
  return transport;
}

}  // namespace manta::cuda
