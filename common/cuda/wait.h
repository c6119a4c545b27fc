// How libmanta_cuda waits for GPUs and for other processes: by looking, so that every wait can be given up.
#pragma once

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace manta::cuda {

inline constexpr absl::Duration kPeerCheckPeriod = absl::Milliseconds(20);

// Sleeps a little longer each time, up to a tenth of a millisecond: a wait of microseconds ends in microseconds.
class Pause {
 public:
  void Once() {
    if (++turns_ < 200) return;
    absl::SleepFor(absl::Microseconds(turns_ < 1000 ? 10 : 100));
  }

 private:
  int turns_ = 0;
};

inline absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();  // what is reported here is not reported again
  const std::string message = absl::StrCat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  if (error == cudaErrorInvalidDevice || error == cudaErrorInvalidValue) return absl::InvalidArgumentError(message);
  return absl::InternalError(message);
}

// The calling thread's current device, for a while.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    cudaGetDevice(&before_);
    if (before_ != device) cudaSetDevice(device);
    changed_ = before_ != device;
  }
  ~OnDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// An event without a clock; of the current device.
class Event {
 public:
  Event() { cudaEventCreateWithFlags(&event_, cudaEventDisableTiming); }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }
  absl::Status Record(cudaStream_t stream) { return CudaStatus(cudaEventRecord(event_, stream), "cudaEventRecord"); }

 private:
  cudaEvent_t event_ = nullptr;
};

// What is queued on `stream` from here on begins when what is queued on `first` has ended.
inline absl::Status WaitFor(cudaStream_t stream, Event& event) {
  return CudaStatus(cudaStreamWaitEvent(stream, event.get(), 0), "cudaStreamWaitEvent");
}
inline absl::Status WaitForCurrentStream(cudaStream_t stream, Event& event) {
  if (absl::Status s = event.Record(c10::cuda::getCurrentCUDAStream().stream()); !s.ok()) return s;
  return WaitFor(stream, event);
}

}  // namespace manta::cuda
