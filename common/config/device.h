// Where a run computes, and whether what it asks for can be computed there. Pure functions, thread-safe.
//
// The command line asks before anything starts, of its own machine; the controller asks again, of the nodes that have
// joined. Trainer and generator compute in float32 or bfloat16, the generator on a CPU in float32 alone; weights go from
// one to the other as they are, so that both have the same type.
#pragma once

#include "absl/status/statusor.h"
#include "common/config/run_config.h"
#include "common/config/tree.h"

namespace manta::config {

// Whether the run computes on GPUs, of which there are `num_gpus`. INVALID_ARGUMENT "file:line: key: ..." where it cannot
// have the device or the precision that it names.
[[nodiscard]] absl::StatusOr<bool> ChooseCuda(const Tree& tree, const RunConfig& run, int num_gpus);

// The generator's precision once the device is known: `auto` is the trainer's, or, in an evaluation, bfloat16 on a GPU and
// float32 on a CPU.
std::string GeneratorPrecision(const RunConfig& run, bool cuda);

}  // namespace manta::config
