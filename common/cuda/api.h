// What libmanta_cuda offers to the processes that open it: one table of functions.
//
// Everything that needs CUDA, NCCL or LibTorch's CUDA half sits in that library, so that a process without a GPU
// neither loads nor links any of it. Opening it (load.h) also makes ATen work on CUDA tensors. Library and process are
// of one build: the table carries C++ types, and `build_id` is compared when it is opened.
//
// The functions are thread-safe unless said otherwise; where they say "current", the calling thread's current CUDA
// device or ATen's current stream on it is meant. Kernels queue their work on the stream given (see kernels.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/collective.h"
#include "common/comm/device_transport.h"
#include "common/kernels/cuda/kernels.h"

namespace manta::cuda {

inline constexpr char kApiSymbol[] = "manta_cuda_api";
inline constexpr uint64_t kApiVersion = 3;  // changes with every change of the table

struct DeviceInfo {
  std::string name;
  int multiprocessors = 0;
  int compute_major = 0, compute_minor = 0;
  uint64_t total_bytes = 0, free_bytes = 0;
};

struct Api {
  uint64_t version = kApiVersion;

  int (*device_count)();
  absl::StatusOr<DeviceInfo> (*device_info)(int device);
  absl::Status (*set_device)(int device);     // of the calling thread
  kernels::cuda::Stream (*current_stream)();  // ATen's
  absl::Status (*synchronize)();              // waits for the current stream; reports what failed on it
  // Copies between any of host and device memory, in order with the current stream; returns when done.
  absl::Status (*copy)(void* to, const void* from, size_t bytes);
  const char* (*error_text)(int cuda_error);  // of what kernels return

  // NCCL over the GPUs of the group that `bootstrap` (cpu_collective.h) has brought together; this rank's is the
  // current device. Calls are queued on the current stream; Wait() waits, watches the peers through `bootstrap` and
  // aborts NCCL when one is gone. Two ranks on one GPU are refused. The same thread may use `bootstrap` for arrays on
  // the host.
  absl::StatusOr<std::unique_ptr<comm::Collective>> (*new_nccl_collective)(std::shared_ptr<comm::Collective> bootstrap,
                                                                           absl::Duration timeout);

  // The weight channel's way from this GPU's memory to other processes: CUDA IPC and NCCL.
  absl::StatusOr<std::shared_ptr<comm::DeviceTransport>> (*new_device_transport)(int device);

  decltype(&kernels::cuda::AdamW) adamw;
  decltype(&kernels::cuda::RmsNorm) rms_norm;
  decltype(&kernels::cuda::RmsNormBackward) rms_norm_backward;
  decltype(&kernels::cuda::SplitNormRotate) split_norm_rotate;
  decltype(&kernels::cuda::SiluMul) silu_mul;
  decltype(&kernels::cuda::SiluMulBackward) silu_mul_backward;
  decltype(&kernels::cuda::LogSoftmaxGather) log_softmax_gather;
  decltype(&kernels::cuda::LogSoftmaxGatherBackward) log_softmax_gather_backward;
  decltype(&kernels::cuda::WriteKvCache) write_kv_cache;
  decltype(&kernels::cuda::PagedAttention) paged_attention;
  decltype(&kernels::cuda::Sample) sample;
};

}  // namespace manta::cuda
