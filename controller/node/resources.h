// What a node has to offer: CPUs, memory and GPUs. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "manta/v1/node.pb.h"

namespace manta::node {

int AvailableCpus();  // that this process may run on
uint64_t TotalMemoryBytes();

// By NVML, opened at run time: no GPUs where there is no driver. Where CUDA_VISIBLE_DEVICES is set, as Slurm does, only
// those of it.
std::vector<v1::Gpu> FindGpus();

// Those of `gpus` that `visible` names, a value of CUDA_VISIBLE_DEVICES: by index, or by uuid or the beginning of one;
// as for CUDA, in its order and up to the first that is not there. A part of a GPU (MIG) is not.
std::vector<v1::Gpu> VisibleGpus(const std::vector<v1::Gpu>& gpus, const std::string& visible);

}  // namespace manta::node
