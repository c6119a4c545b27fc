// How large the paged cache may be. Thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace manta::gen {

// Bytes that this process could still allocate on the host: what the system says is available, or what its control
// group leaves it, whichever is less.
int64_t AvailableHostBytes();

struct CacheRequest {
  int64_t num_blocks = 0;      // asked for; 0: choose
  double memory_fraction = 0;  // of what is available, for the cache; 0: 0.5
  int64_t block_bytes = 0;
  int64_t blocks_per_sequence = 0;  // of the longest sequence
  int64_t max_num_seqs = 0;
};

// The number of blocks: as many as asked for, else what the fraction holds but no more than max_num_seqs sequences of
// the greatest length can use. INVALID_ARGUMENT for a fraction that is none; RESOURCE_EXHAUSTED, with the numbers,
// where one sequence of the greatest length would not fit.
absl::StatusOr<int32_t> ChooseNumBlocks(const CacheRequest& request, int64_t available_bytes);

}  // namespace manta::gen
