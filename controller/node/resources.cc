#include "controller/node/resources.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/process_info.h"

namespace manta::node {
namespace {

// The part of NVML's stable C interface that is needed here; its header is not required to build.
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlPci {
  char legacy_bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
using NvmlDevice = void*;
struct NvmlFabricInfo {
  unsigned char cluster[16];
  int status;  // of joining the fabric: 0 where that went well
  unsigned clique;
  unsigned char state;
};
constexpr unsigned char kFabricCompleted = 3;
constexpr unsigned kMaxNvLinks = 18;

template <typename Function>
Function* Symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

int NumaNode(const std::string& bus_id) {
  std::string path = bus_id;  // NVML says 00000000:1B:00.0, sysfs 0000:1b:00.0
  if (path.size() > 12) path = path.substr(path.size() - 12);
  for (char& c : path) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::ifstream file(absl::StrCat("/sys/bus/pci/devices/", path, "/numa_node"));
  int node = -1;
  return file >> node ? node : -1;
}

// GPUs of one clique of an NVLink fabric reach each other across machines; others that have links do so in this one.
std::string NvlinkDomain(void* library, NvmlDevice device) {
  auto* fabric_of = Symbol<int(NvmlDevice, NvmlFabricInfo*)>(library, "nvmlDeviceGetGpuFabricInfo");
  NvmlFabricInfo fabric{};
  if (fabric_of != nullptr && fabric_of(device, &fabric) == 0 && fabric.state == kFabricCompleted &&
      fabric.status == 0) {
    const std::string cluster(reinterpret_cast<const char*>(fabric.cluster), sizeof(fabric.cluster));
    if (cluster != std::string(sizeof(fabric.cluster), '\0')) {
      return absl::StrCat(absl::BytesToHexString(cluster), ".", fabric.clique);
    }
  }
  auto* link_state = Symbol<int(NvmlDevice, unsigned, unsigned*)>(library, "nvmlDeviceGetNvLinkState");
  for (unsigned link = 0; link_state != nullptr && link < kMaxNvLinks; ++link) {
    unsigned active = 0;
    if (link_state(device, link, &active) == 0 && active != 0) return HostId();
  }
  return "";
}

}  // namespace

int AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

uint64_t TotalMemoryBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::vector<v1::Gpu> FindGpus() {
  std::vector<v1::Gpu> gpus;
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr) return gpus;
  absl::Cleanup unload = [nvml] { dlclose(nvml); };
  auto* init = Symbol<int()>(nvml, "nvmlInit_v2");
  auto* shutdown = Symbol<int()>(nvml, "nvmlShutdown");
  auto* count_of = Symbol<int(unsigned*)>(nvml, "nvmlDeviceGetCount_v2");
  auto* device_at = Symbol<int(unsigned, NvmlDevice*)>(nvml, "nvmlDeviceGetHandleByIndex_v2");
  auto* name_of = Symbol<int(NvmlDevice, char*, unsigned)>(nvml, "nvmlDeviceGetName");
  auto* uuid_of = Symbol<int(NvmlDevice, char*, unsigned)>(nvml, "nvmlDeviceGetUUID");
  auto* memory_of = Symbol<int(NvmlDevice, NvmlMemory*)>(nvml, "nvmlDeviceGetMemoryInfo");
  auto* pci_of = Symbol<int(NvmlDevice, NvmlPci*)>(nvml, "nvmlDeviceGetPciInfo_v3");
  if (!init || !shutdown || !count_of || !device_at || !name_of || !uuid_of || !memory_of || init() != 0) return gpus;
  unsigned count = 0;
  if (count_of(&count) != 0) count = 0;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    if (device_at(i, &device) != 0) continue;
    v1::Gpu& gpu = gpus.emplace_back();
    gpu.set_index(static_cast<int>(i));
    char text[128] = {};
    if (name_of(device, text, sizeof(text)) == 0) gpu.set_name(text);
    if (uuid_of(device, text, sizeof(text)) == 0) gpu.set_uuid(text);
    NvmlMemory memory{};
    if (memory_of(device, &memory) == 0) gpu.set_memory_bytes(memory.total);
    gpu.set_nvlink_domain(NvlinkDomain(nvml, device));
    NvmlPci pci{};
    gpu.set_numa_node(pci_of != nullptr && pci_of(device, &pci) == 0 ? NumaNode(pci.bus_id) : -1);
  }
  shutdown();
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? gpus : VisibleGpus(gpus, visible);
}

std::vector<v1::Gpu> VisibleGpus(const std::vector<v1::Gpu>& gpus, const std::string& visible) {
  std::vector<v1::Gpu> result;
  for (const absl::string_view part : absl::StrSplit(visible, ',')) {
    const std::string name(absl::StripAsciiWhitespace(part));
    int index = -1;
    const bool is_index = absl::SimpleAtoi(name, &index);
    const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const v1::Gpu& gpu) {
      return is_index ? gpu.index() == index : !name.empty() && absl::StartsWith(gpu.uuid(), name);
    });
    if (found == gpus.end()) break;
    result.push_back(*found);
  }
  return result;
}

}  // namespace manta::node
