// Which sequences share a microbatch: bin packing of lengths into bins of equal capacity. Pure functions, thread-safe.
//
// Bins hold indices into `lengths`. A sequence longer than the capacity is INVALID_ARGUMENT.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace manta::controller {

using Bins = std::vector<std::vector<int32_t>>;

enum class PackingAlgorithm { kConcatenative, kFirstFitDecreasing, kModifiedFirstFitDecreasing, kFirstFitShuffle };

// "concatenative", "first_fit_decreasing", "modified_first_fit_decreasing" or "first_fit_shuffle".
[[nodiscard]] absl::StatusOr<PackingAlgorithm> ParsePackingAlgorithm(std::string_view name);

// By the algorithm named; `seed` is first_fit_shuffle's.
[[nodiscard]] absl::StatusOr<Bins> Pack(PackingAlgorithm algorithm, std::span<const int64_t> lengths, int64_t capacity,
                                        uint64_t seed);

// In the order given: a new bin whenever the next sequence does not fit into the current one.
[[nodiscard]] absl::StatusOr<Bins> PackConcatenative(std::span<const int64_t> lengths, int64_t capacity);

// Each sequence, in `order`, goes into the first bin with room for it.
[[nodiscard]] absl::StatusOr<Bins> PackFirstFit(std::span<const int64_t> lengths, int64_t capacity,
                                                std::span<const int32_t> order);

// Longest first; of equal lengths the one with the larger index first.
[[nodiscard]] absl::StatusOr<Bins> PackFirstFitDecreasing(std::span<const int64_t> lengths, int64_t capacity);

// Johnson and Garey, "A 71/60 theorem for bin packing" (1985): sequences above half the capacity open bins, those above a
// third join the roomy ones, pairs of those above a sixth fill from the back, the rest greedily; what is left over goes to
// the emptiest further bin; those are listed last, the emptiest first. Lengths must be positive.
[[nodiscard]] absl::StatusOr<Bins> PackModifiedFirstFitDecreasing(std::span<const int64_t> lengths, int64_t capacity);

// First fit in an order drawn from `seed`.
[[nodiscard]] absl::StatusOr<Bins> PackFirstFitShuffle(std::span<const int64_t> lengths, int64_t capacity,
                                                       uint64_t seed);

// More bins until there are `min_bin_count`, and until the number is a multiple of `bin_count_multiple` (0 or 1: any). The
// bin with the most sequences (the last of equals) gives its last ones, one to each new bin, until it is left with one;
// then the next. INVALID_ARGUMENT where there are fewer sequences than bins wanted.
[[nodiscard]] absl::Status SpreadBins(Bins& bins, int64_t min_bin_count, int64_t bin_count_multiple);

struct PackingMetrics {
  int64_t num_sequences = 0, num_bins = 0, total_sequence_length = 0, total_bin_capacity = 0, total_waste = 0;
  double average_utilization = 0, waste_ratio = 0;
  double bin_balance = 1;  // 1 - the bins' standard deviation over their mean
  int64_t theoretical_min_bins = 0;
  double bin_efficiency = 0;  // theoretical_min_bins / num_bins
};
PackingMetrics MeasurePacking(std::span<const int64_t> lengths, int64_t capacity, const Bins& bins);

}  // namespace manta::controller
