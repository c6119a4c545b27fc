// What a node has to offer: CPUs, memory and GPUs. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "manta/v1/node.pb.h"

namespace manta::node {

int AvailableCpus();  // that this process may run on
uint64_t TotalMemoryBytes();

// By NVML, opened at run time: no GPUs where there is no driver.
std::vector<v1::Gpu> FindGpus();

}  // namespace manta::node
