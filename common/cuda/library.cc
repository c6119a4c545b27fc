// The table of libmanta_cuda.
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include "common/cuda/api.h"
#include "common/cuda/device_transport.h"
#include "common/cuda/nccl_collective.h"
#include "common/cuda/wait.h"

namespace manta::cuda {
namespace {

cudaStream_t CurrentStream() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

int DeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

absl::StatusOr<DeviceInfo> GetDeviceInfo(int device) {
  cudaDeviceProp properties;
  if (absl::Status s = CudaStatus(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"); !s.ok())
    return s;
  DeviceInfo info;
  info.name = properties.name;
  info.multiprocessors = properties.multiProcessorCount;
  info.compute_major = properties.major;
  info.compute_minor = properties.minor;
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device);
  size_t free = 0, total = 0;
  const absl::Status status = CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  cudaSetDevice(before);
  if (!status.ok()) return status;
  info.free_bytes = free;
  info.total_bytes = total;
  return info;
}

absl::Status SetDevice(int device) {
  return CudaStatus(cudaSetDevice(device), "cudaSetDevice");
}

kernels::cuda::Stream CurrentStreamPointer() {
  return CurrentStream();
}

absl::Status Synchronize() {
  return CudaStatus(cudaStreamSynchronize(CurrentStream()), "waiting for the GPU");
}

absl::Status Copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const absl::Status status =
      CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, CurrentStream()), "cudaMemcpyAsync");
  return status.ok() ? Synchronize() : status;
}

const char* ErrorText(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

}  // namespace
}  // namespace manta::cuda

extern "C" __attribute__((visibility("default"))) const manta::cuda::Api manta_cuda_api = {
    .version = manta::cuda::kApiVersion,
    .device_count = manta::cuda::DeviceCount,
    .device_info = manta::cuda::GetDeviceInfo,
    .set_device = manta::cuda::SetDevice,
    .current_stream = manta::cuda::CurrentStreamPointer,
    .synchronize = manta::cuda::Synchronize,
    .copy = manta::cuda::Copy,
    .error_text = manta::cuda::ErrorText,
    .new_nccl_collective = manta::cuda::NewNcclCollective,
    .new_device_transport = manta::cuda::NewDeviceTransport,
    .adamw = manta::kernels::cuda::AdamW,
    .rms_norm = manta::kernels::cuda::RmsNorm,
    .rms_norm_backward = manta::kernels::cuda::RmsNormBackward,
    .split_norm_rotate = manta::kernels::cuda::SplitNormRotate,
    .silu_mul = manta::kernels::cuda::SiluMul,
    .silu_mul_backward = manta::kernels::cuda::SiluMulBackward,
    .log_softmax_gather = manta::kernels::cuda::LogSoftmaxGather,
    .log_softmax_gather_backward = manta::kernels::cuda::LogSoftmaxGatherBackward,
    .write_kv_cache = manta::kernels::cuda::WriteKvCache,
    .paged_attention = manta::kernels::cuda::PagedAttention,
    .sample = manta::kernels::cuda::Sample,
};
