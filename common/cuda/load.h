// Finds out whether there is a GPU, and opens libmanta_cuda where there is. Thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "common/cuda/api.h"

namespace manta::cuda {

// GPUs that this process can use, asked of the driver alone (no LibTorch is loaded): 0 where there is no driver.
int DeviceCount();

// Opens the library at the first call and keeps it open; later calls return the same table, or the same error. It is
// looked for at $MANTA_CUDA_LIBRARY, beside the executable, in ../lib of its folder, and where the system looks.
// NOT_FOUND where there is no GPU or no library, FAILED_PRECONDITION where it is of another build.
[[nodiscard]] absl::StatusOr<const Api*> Load();

// The table where Load() has succeeded already; null otherwise.
const Api* Loaded();

}  // namespace manta::cuda
