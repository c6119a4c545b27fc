#include "common/cuda/load.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace manta::cuda {
namespace {

constexpr char kLibrary[] = "libmanta_cuda.so";

std::atomic<const Api*> loaded{nullptr};

std::vector<std::string> Places() {
  if (const char* given = std::getenv("MANTA_CUDA_LIBRARY"); given != nullptr) return {given};
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  return {(folder / kLibrary).string(), (folder / ".." / "lib" / kLibrary).string(), kLibrary};
}

absl::StatusOr<const Api*> Open() {
  if (DeviceCount() == 0) return absl::NotFoundError("no CUDA device is to be found here");
  std::string reasons;
  for (const std::string& place : Places()) {
    if (place.find('/') != std::string::npos && !std::filesystem::exists(place)) continue;
    // Global, so that the executable's LibTorch finds the CUDA half; never closed.
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", dlerror());
      continue;
    }
    const auto* api = static_cast<const Api*>(dlsym(library, kApiSymbol));
    if (api == nullptr || api->version != kApiVersion) {
      return absl::FailedPreconditionError(absl::StrCat(place, " is of another build than this program"));
    }
    loaded.store(api, std::memory_order_release);
    return api;
  }
  return absl::NotFoundError(absl::StrCat(
      "cannot open ", kLibrary, " (a build without CUDA has none): ", reasons.empty() ? "not found" : reasons));
}

int CountDevices() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return 0;
  const auto initialise = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count_devices = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int count = 0;
  if (initialise == nullptr || count_devices == nullptr || initialise(0) != 0 || count_devices(&count) != 0) return 0;
  return count;
}

}  // namespace

int DeviceCount() {
  static const int count = CountDevices();
  return count;
}

absl::StatusOr<const Api*> Load() {
  static const auto* const result = new absl::StatusOr<const Api*>(Open());
  return *result;
}

const Api* Loaded() {
  return loaded.load(std::memory_order_acquire);
}

}  // namespace manta::cuda
